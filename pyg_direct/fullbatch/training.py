"""Train a model on a whole graph over the ranks: Adam, masked cross-entropy, checkpoints.

Shape legend: ``m`` rows of this rank, ``P`` ranks.
Assumption: every rank makes the same calls in the same order.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from pyg_direct.fullbatch.counter_random import stream_key
from pyg_direct.fullbatch.engine import Engine
from pyg_direct.fullbatch.layer_weights import LayerWeights
from pyg_direct.fullbatch.local_graph import Features, LocalGraph, Placement
from pyg_direct.fullbatch.loss import count_correct, cross_entropy_in_place
from pyg_direct.fullbatch.memory import MemoryPlan, MemoryReport
from pyg_direct.fullbatch.model import FullBatchGNN, flat_parameters, sum_over_ranks
from pyg_direct.fullbatch.partition import Balance, Order
from pyg_direct.fullbatch.processes import Ranks
from pyg_direct.fullbatch.setup import COPIES_PER_PARAMETER, prepare
from pyg_direct.fullbatch.source import GraphSource

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


class FullBatchTrainer:
    """Trains ``model`` on the part of the graph that this rank owns, in step with the others.

    Parameters
    ----------
    model : FullBatchGNN
        Moved to the device of ``ranks``. Must have equal values on every rank.
    source : GraphSource
        Read once, in pieces; not kept.
    ranks : Ranks, optional
        One process alone on the CPU where not given.
    lr, weight_decay : float
        Of Adam.
    seed : int
        Of the permutation of the vertices and of dropout.
    features : {"device", "host"}
        Where A X stays: in device memory, or in page-locked host memory from which it streams.
    dtype : torch.dtype
        Of the features and buffers: float32, bfloat16 (parameters stay float32) or float64.
    order : {"natural", "random"}
        See ``partition_nodes``. One rank alone leaves the vertices as they are.
    engine : {"library", "kernel"}, optional
        Sparse products by torch's library (cuSPARSE, MKL), or by a kernel of our own. Where not
        given, the kernel on CUDA for float32 and bfloat16, else the library.
    column_block : int, optional
        Columns that a product takes at a time: the fewer, the less memory for its operand. Where
        not given, all for the library, and for the kernel what fits L2: see ``choose_engine``.

    Raises
    ------
    ValueError
        If an argument is out of range, or differs between ranks.
    RuntimeError
        If a rank died or did not answer in time.
    """

    def __init__(
        self,
        model: FullBatchGNN,
        source: GraphSource,
        *,
        ranks: Ranks | None = None,
        lr: float = 1e-2,
        weight_decay: float = 5e-4,
        seed: int = 42,
        features: Features = "device",
        dtype: torch.dtype = torch.float32,
        order: Order = "random",
        engine: Engine | None = None,
        column_block: int | None = None,
    ) -> None:
        self.ranks = Ranks() if ranks is None else ranks
        placement = Placement(
            features=features,
            dtype=dtype,
            order=order,
            seed=seed,
            engine=engine,
            column_block=column_block,
        )
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        self.model = model.to(device=self.ranks.device, dtype=wide)
        self._check_agreement(source, seed, dtype)
        self.seed = seed
        self.epoch = 0
        self.graph: LocalGraph = prepare(self.model, source, self.ranks, placement)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr, weight_decay=weight_decay)
        self.plan = self.watch_memory()

    def _check_agreement(self, source: GraphSource, seed: int, dtype: torch.dtype) -> None:
        checksum = sum(float(p.detach().double().sum()) for p in self.model.parameters())
        self.ranks.meet("the start of training")
        self.ranks.check_equal("number of vertices", source.num_nodes)
        self.ranks.check_equal("seed", seed)
        self.ranks.check_equal("dtype", str(dtype))
        self.ranks.check_equal("architecture", str(self.model.architecture))
        self.ranks.check_equal("sum of the initial parameters", checksum)

    def watch_memory(self) -> MemoryPlan:
        """Predict the peak of an epoch, and start to watch it; print the plan before training.

        On a GPU two rehearsals run first: they make cuBLAS allocate what it keeps, and show what
        cuSPARSE and cuBLAS allocate and free, of which no formula is published. What else the
        process holds on the device is part of the plan as well. On the CPU only the tensors that
        are held throughout are predicted, for nothing counts the others there. Every rank must
        call.
        """
        parts, device = dict(self.graph.parts), self.ranks.device
        if device.type == "cuda":
            parts["temporaries"] = max(parts["temporaries"], self._passing_bytes())
            expected = self.graph.predicted_held_bytes - self._coming_bytes()
            parts["others"] = max(0, torch.cuda.memory_allocated(device) - expected)
        else:
            del parts["temporaries"]
        self.plan = MemoryPlan(parts=parts)
        return self.plan

    def rehearse(self) -> None:
        """Run a forward and a backward whose results nobody takes; every rank must call.

        Parameters, optimizer, epoch and the state of random generators stay as they are.
        """
        weights, key = self._weights(), self._dropout_key()
        self.graph.propagation.forward(weights, key)
        # The logits stand in for their gradient: only the shapes matter.
        sum_over_ranks(self.graph.propagation.backward(weights, key), self.ranks)

    def _passing_bytes(self) -> int:
        """Measure on a GPU what a forward and a backward allocate and free."""
        device = self.ranks.device
        # What libraries allocate for good, they do the first time.
        self.rehearse()
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        self.rehearse()
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak - before

    def _parameter_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.model.parameters())

    def _coming_bytes(self) -> int:
        """Return the bytes of gradients and moments that the next step will allocate."""
        copies = 1 if self.optimizer.state else COPIES_PER_PARAMETER - 1
        return copies * self._parameter_bytes()

    @property
    def balance(self) -> Balance:
        """How evenly the edges are cut."""
        return self.graph.balance

    def train_epoch(self) -> Tensor:
        """Run one step of Adam over the whole graph.

        Returns
        -------
        Tensor
            Loss before the step, shape (), equal on every rank, on the device; does not wait for
            the GPU.
        """
        graph = self.graph
        weights, key = self._weights(), self._dropout_key()
        logits = graph.propagation.forward(weights, key)
        loss = cross_entropy_in_place(
            logits, graph.label, graph.masks["train"], graph.num_labelled["train"]
        )
        self.ranks.sum_in_place(loss)
        gradients = sum_over_ranks(graph.propagation.backward(weights, key), self.ranks)
        parameters = flat_parameters(self.model.layer_weights())
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.contiguous()
        self.optimizer.step()
        self.epoch += 1
        return loss

    def _dropout_key(self) -> int | None:
        dropout = self.model.architecture.dropout
        return stream_key(self.seed, self.epoch) if dropout else None

    def _weights(self) -> list[LayerWeights]:
        dtype = self.graph.propagation.logits.dtype
        return [layer.to(dtype) for layer in self.model.layer_weights()]

    def evaluate(self, splits: Sequence[Split] = SPLITS) -> dict[str, float]:
        """Return the share of right predictions, without dropout, of each split that exists.

        Waits for the GPU and for every rank.
        """
        graph = self.graph
        present = [split for split in splits if graph.num_labelled.get(split, 0)]
        logits = graph.propagation.forward(self._weights())
        correct = count_correct(logits, graph.label, [graph.masks[split] for split in present])
        self.ranks.sum_in_place(correct)
        return {
            split: count / graph.num_labelled[split]
            for split, count in zip(present, correct.tolist(), strict=True)
        }

    def predict(self) -> tuple[Tensor, Tensor]:
        """Return this rank's vertices (int64 CPU tensor, shape (m,)) and their logits, a copy."""
        logits = self.graph.propagation.forward(self._weights())
        return self.graph.node, logits.clone()

    def memory_report(self) -> MemoryReport:
        """Return the prediction beside the peak since ``watch_memory``; waits for the GPU.

        On the CPU, where no allocator counts, the peak is the sum of the tensors that are held.
        """
        peak = self.graph.held_bytes() + COPIES_PER_PARAMETER * self._parameter_bytes()
        if self.ranks.device.type == "cuda":
            torch.cuda.synchronize(self.ranks.device)
            peak = torch.cuda.max_memory_allocated(self.ranks.device)
        return MemoryReport(predicted_bytes=self.plan.total_bytes, peak_bytes=peak)

    def save(self, path: Path | str) -> None:
        """Write parameters, optimizer and epoch to ``path``, on rank 0; every rank must call."""
        if self.ranks.rank == 0:
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "epoch": self.epoch,
                "seed": self.seed,
            }
            torch.save(state, path)
        self.ranks.meet("the end of a checkpoint")

    def load(self, path: Path | str) -> None:
        """Continue from what ``save`` wrote, with any number of ranks.

        Raises
        ------
        ValueError
            If the checkpoint was made with another seed: its dropout would not go on.
        """
        state = torch.load(path, map_location=self.ranks.device, weights_only=True)
        if state["seed"] != self.seed:
            raise ValueError(
                f"seed = {self.seed}, the checkpoint has {state['seed']}: use the same seed"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]

    def close(self) -> None:
        """Free the buffers and unlock host memory; harmless twice."""
        self.graph.close()

    def __enter__(self) -> "FullBatchTrainer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
