"""One epoch of training, stage by stage: sample, gather, train.

A loader shows two steps, as PyG's node loader does: ``collate_fn(index)`` samples, and
``filter_fn(sample)`` gathers.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader

from experiments.stages import StageClock, wait_for


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """What an epoch reached and cost.

    Parameters
    ----------
    loss : float
        Mean over the seeds.
    epoch_s, sample_s, gather_s, train_s : float
        Seconds; the stages exclude what lies between them.
    payload_bytes : int
        Bytes of node attributes that the gather delivered, counted from shapes.
    """

    loss: float
    epoch_s: float
    sample_s: float
    gather_s: float
    train_s: float
    payload_bytes: int

    @property
    def gather_gb_per_s(self) -> float:
        """Payload of the gather, in 10^9 bytes a second."""
        return self.payload_bytes / self.gather_s / 1e9


class Trainer:
    """Trains one model with one loader.

    Parameters
    ----------
    model : Module
        On ``device``.
    optimizer : torch.optim.Optimizer
        Of the model's parameters.
    loader : NodeLoader
        Its batches must appear on ``device``.
    device : torch.device
        Where the model lives.
    """

    def __init__(
        self,
        model: Module,
        optimizer: torch.optim.Optimizer,
        loader: NodeLoader,
        device: torch.device,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._loader, self._device = loader, device
        self.num_batches = len(loader)
        if self.num_batches == 0:
            raise ValueError("the training split has 0 nodes, expected 1 or more")

    def warm_up(self) -> None:
        """Take one batch through all stages without a step of the optimizer.

        Raises
        ------
        RuntimeError
            If the batch is not wholly on the device.
        """
        batch = self._loader(next(iter(self._loader.batch_sampler)))
        for name, value in batch:
            if isinstance(value, Tensor) and value.device.type != self._device.type:
                raise RuntimeError(
                    f"{name} of a batch is on {value.device}, expected {self._device}"
                )
        self._loss(batch).backward()
        self._optimizer.zero_grad()
        wait_for(self._device)

    def train_epoch(self, on_batch: Callable[[], object]) -> EpochResult:
        """Train on every seed once.

        Parameters
        ----------
        on_batch : callable
            Called after each batch, to show progress.
        """
        self._model.train()
        clock = StageClock(self._device)
        loss_sum = torch.zeros((), device=self._device)
        num_seeds = payload_bytes = 0
        start_s = time.perf_counter()
        for index in self._loader.batch_sampler:
            with clock.stage("sample"):
                sample = self._loader.collate_fn(index)
            with clock.stage("gather"):
                batch = self._loader.filter_fn(sample)
            with clock.stage("train"):
                loss_sum += self._step(batch) * batch.batch_size
            num_seeds += batch.batch_size
            payload_bytes += count_payload_bytes(batch)
            on_batch()
        return EpochResult(
            loss=float(loss_sum) / num_seeds,
            epoch_s=time.perf_counter() - start_s,
            payload_bytes=payload_bytes,
            **{f"{name}_s": seconds for name, seconds in clock.seconds.items()},
        )

    def _step(self, batch: Data) -> Tensor:
        self._optimizer.zero_grad()
        loss = self._loss(batch)
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def _loss(self, batch: Data) -> Tensor:
        logits = self._model(batch.x, batch.edge_index)[: batch.batch_size]
        return cross_entropy(logits, batch.y[: batch.batch_size])


def count_payload_bytes(batch: Data) -> int:
    """Return the bytes of a batch's node attributes: what the gather fetched from the tables.

    Parameters
    ----------
    batch : Data
        Node ids, edge ids and edges come from the sampler and do not count.
    """
    from_sampler = {"n_id", "e_id", "edge_index", "batch", "input_id", "seed_time"}
    return sum(
        value.nbytes
        for name, value in batch
        if isinstance(value, Tensor) and name not in from_sampler and batch.is_node_attr(name)
    )
