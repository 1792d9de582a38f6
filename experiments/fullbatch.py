"""Full-batch training on one process or on several, and what it reached and cost.

``torchrun --nproc-per-node P -m experiments.run experiment=fullbatch`` starts P ranks; plain
``python -m experiments.run experiment=fullbatch`` is one, or as many as ``num_ranks`` says.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch_geometric.data import Data

from experiments.device import choose_device
from pyg_direct.fullbatch import (
    FullBatchGNN,
    FullBatchTrainer,
    GraphSource,
    Ranks,
    joined_ranks,
    spawn_ranks,
)

GIB = 2.0**30


def run(
    *,
    dataset: Callable[[], Data],
    architecture: dict[str, Any],
    placement: dict[str, Any],
    device: str | None = None,
    seed: int = 42,
    num_ranks: int | None = None,
    epochs: int = 200,
    report_every: int = 20,
    lr: float = 0.01,
    weight_decay: float = 0.0005,
    timeout_s: float = 120.0,
    checkpoint: str | None = None,
) -> list[dict[str, Any]]:
    """Train on the whole graph and return the one row of the result table.

    Parameters
    ----------
    dataset : callable
        Returns a graph with ``x``, ``y`` and masks.
    architecture : dict
        Arguments of ``FullBatchGNN`` beside the numbers of features and classes.
    placement : dict
        ``features``, ``dtype`` (by name), ``order``, ``engine`` and ``column_block`` of
        ``FullBatchTrainer``.
    device : str or None
        See ``choose_device``.
    seed : int
        Of the weights, the order of the vertices and dropout.
    num_ranks : int or None
        ``None``: as many as torchrun started, or one.
    epochs, report_every : int
        Epochs in all, and between two lines of progress.
    lr, weight_decay : float
        Of Adam.
    timeout_s : float
        Longest wait for another rank, in seconds.
    checkpoint : str or None
        Read before the first epoch if it exists, and written after the last.

    Raises
    ------
    ValueError
        If an option has no meaning, or ``num_ranks`` is not what torchrun started.
    """
    if epochs < 1 or report_every < 1:
        raise ValueError(f"epochs = {epochs}, report_every = {report_every}, expected 1 or more")
    device_type = choose_device(device).type
    options = {
        **{"dataset": dataset, "architecture": architecture, "placement": placement},
        **{"seed": seed, "epochs": epochs, "report_every": report_every},
        **{"lr": lr, "weight_decay": weight_decay, "checkpoint": checkpoint},
    }
    if num_ranks in (None, 1) or "WORLD_SIZE" in os.environ:
        with joined_ranks(device_type, timeout_s=timeout_s, num_ranks=num_ranks) as ranks:
            return [train(ranks, options)]
    with tempfile.TemporaryDirectory() as folder:
        args = (options, folder)
        spawn_ranks(_train_rank, num_ranks, args=args, device_type=device_type, timeout_s=timeout_s)
        return [torch.load(Path(folder) / "row.pt", weights_only=True)]


def _train_rank(ranks: Ranks, options: dict[str, Any], folder: str) -> None:
    row = train(ranks, options)
    if ranks.rank == 0:
        torch.save(row, Path(folder) / "row.pt")


def train(ranks: Ranks, options: dict[str, Any]) -> dict[str, Any]:
    """Train on one rank among others; return the row of the result table.

    Parameters
    ----------
    ranks : Ranks
    options : dict
        The arguments of ``run`` from ``dataset`` to ``checkpoint``.
    """
    data = options["dataset"]()
    torch.manual_seed(options["seed"])
    model = FullBatchGNN(
        in_channels=data.num_features,
        out_channels=int(data.y.max()) + 1,
        **options["architecture"],
    )
    placement = dict(options["placement"])
    placement["dtype"] = getattr(torch, placement.get("dtype", "float32"))
    with FullBatchTrainer(
        model,
        GraphSource(data),
        ranks=ranks,
        seed=options["seed"],
        lr=options["lr"],
        weight_decay=options["weight_decay"],
        **placement,
    ) as trainer:
        del data
        _resume(trainer, options["checkpoint"])
        _say(ranks, str(trainer.watch_memory()))
        losses, times = _epochs(trainer, options)
        row = _row(trainer, losses, times)
        if options["checkpoint"]:
            trainer.save(options["checkpoint"])
    return row


def _resume(trainer: FullBatchTrainer, checkpoint: str | None) -> None:
    if checkpoint and Path(checkpoint).exists():
        trainer.load(checkpoint)
        _say(trainer.ranks, f"continues after epoch {trainer.epoch} of {checkpoint}")


def _epochs(trainer: FullBatchTrainer, options: dict[str, Any]) -> tuple[list[float], list[float]]:
    losses, times = [], []
    while trainer.epoch < options["epochs"]:
        start = time.perf_counter()
        # Reading the loss waits for the GPU, and so ends the epoch.
        losses.append(trainer.train_epoch().item())
        times.append(time.perf_counter() - start)
        if trainer.epoch % options["report_every"] == 0 or trainer.epoch == options["epochs"]:
            reached = ", ".join(f"{k} {v:.3f}" for k, v in trainer.evaluate().items())
            _say(trainer.ranks, f"epoch {trainer.epoch}: loss {losses[-1]:.4f}, {reached}")
    return losses, times


def _row(trainer: FullBatchTrainer, losses: list[float], times: list[float]) -> dict[str, Any]:
    memory = trainer.memory_report()
    _say(trainer.ranks, str(memory))
    accuracy = trainer.evaluate()
    return {
        "ranks": trainer.ranks.num_ranks,
        "device": trainer.ranks.device.type,
        "epochs": trainer.epoch,
        "loss": losses[-1] if losses else None,
        **{f"{split}_accuracy": value for split, value in accuracy.items()},
        "epoch_ms": 1e3 * median(times) if times else None,
        "peak_gib": memory.peak_bytes / GIB,
        "predicted_gib": memory.predicted_bytes / GIB,
        "balance": trainer.balance.rows,
    }


def _say(ranks: Ranks, text: str) -> None:
    if ranks.rank == 0:
        print(text, flush=True)
