"""The main job: train a model through the loader, and say what it reached and what it cost.

Cross entropy on the seed nodes of each batch, Adam; accuracies are taken through the loader, with
the fan-out of the training, after the last epoch. Each epoch is timed; one batch before the first
warms up kernels and allocators without a step of the optimizer.
"""

from collections.abc import Callable
from contextlib import nullcontext
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from tqdm import tqdm

from experiments.device import choose_device
from experiments.epoch import EpochResult, Trainer
from experiments.placement import Placement
from experiments.repeatable import repeatable_sums

SPLITS = ("train", "val", "test")


def run(
    *,
    dataset: Callable[[], Data],
    store: Callable[..., Placement],
    model: Callable[..., Module],
    device: str | None = None,
    seed: int = 42,
    epochs: int = 10,
    batch_size: int = 512,
    num_neighbors: list[int],
    lr: float = 0.01,
    weight_decay: float = 0.0,
    repeatable: bool = False,
) -> list[dict[str, Any]]:
    """Train a node classifier and return the one row of its result table.

    Parameters
    ----------
    dataset : callable
        Returns a graph with ``x``, ``y`` and a mask for each split, on the CPU.
    store : callable
        Takes the graph and ``device``; see ``experiments.placement``.
    model : callable
        Takes ``in_channels`` and ``out_channels``; called with features and ``edge_index``.
    device : str or None
        See ``choose_device``.
    seed : int
        Of the weights, the order of the seeds, dropout and the sampler.
    epochs, batch_size : int
        1 or more.
    num_neighbors : list of int
        Fan-out of each hop; -1 takes all neighbours.
    lr, weight_decay : float
        Of Adam.
    repeatable : bool
        On a GPU, make equal runs give equal losses to the last digit, at a cost in time.

    Raises
    ------
    ValueError
        If an option has no meaning; before the data is loaded where that can be told.
    """
    _check_options(epochs, batch_size, num_neighbors, lr, weight_decay)
    place = choose_device(device)
    data = dataset()
    torch.manual_seed(seed)
    network = _build_model(model, data, num_hops=len(num_neighbors)).to(place)
    placement = store(data, device=place)
    loaders = _build_loaders(
        placement, data, num_neighbors=num_neighbors, batch_size=batch_size, seed=seed
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=lr, weight_decay=weight_decay)
    with repeatable_sums() if repeatable else nullcontext():
        results = _train(Trainer(network, optimizer, loaders["train"], place), epochs)
    return [
        {
            "model": type(network).__name__,
            "device": str(place),
            "store": placement.store,
            "rows": placement.rows,
            "num_nodes": data.num_nodes,
            "num_edges": data.num_edges,
            "row_bytes": data.x[0].nbytes,
            "epochs": epochs,
            "loss": results[-1].loss,
            **{f"{split}_accuracy": accuracy(network, loaders[split]) for split in SPLITS},
            **_summarize_times(results),
        }
    ]


def accuracy(model: Module, loader: NodeLoader) -> float:
    """Return the share of a loader's seed nodes whose class the model tells, between 0 and 1.

    Parameters
    ----------
    model : Module
        Left in evaluation mode.
    loader : NodeLoader
        Its batches must be on the device of the model.
    """
    model.eval()
    num_right: Tensor | int = 0
    num_seeds = 0
    with torch.no_grad():
        for batch in loader:
            predicted = model(batch.x, batch.edge_index)[: batch.batch_size].argmax(dim=-1)
            num_right = num_right + (predicted == batch.y[: batch.batch_size]).sum()
            num_seeds += batch.batch_size
    return int(num_right) / max(num_seeds, 1)


def _train(trainer: Trainer, epochs: int) -> list[EpochResult]:
    trainer.warm_up()
    results = []
    with tqdm(total=epochs * trainer.num_batches, unit="batch") as progress:
        for epoch in range(1, epochs + 1):
            progress.set_description(f"epoch {epoch}/{epochs}")
            results.append(trainer.train_epoch(progress.update))
            progress.set_postfix(loss=f"{results[-1].loss:.4f}")
    return results


def _summarize_times(results: list[EpochResult]) -> dict[str, float]:
    epochs_s = [result.epoch_s for result in results]
    return {
        "epoch_s": median(epochs_s),
        "epoch_min_s": min(epochs_s),
        "epoch_max_s": max(epochs_s),
        "sample_s": median(result.sample_s for result in results),
        "gather_s": median(result.gather_s for result in results),
        "train_s": median(result.train_s for result in results),
        "gather_gb_per_s": median(result.gather_gb_per_s for result in results),
    }


def _build_loaders(placement: Placement, data: Data, **options: Any) -> dict[str, NodeLoader]:
    return {
        split: placement.loader(
            input_nodes=data[f"{split}_mask"], shuffle=split == "train", **options
        )
        for split in SPLITS
    }


def _build_model(model: Callable[..., Module], data: Data, *, num_hops: int) -> Module:
    network = model(in_channels=data.num_features, out_channels=int(data.y.max()) + 1)
    num_layers = getattr(network, "num_layers", num_hops)
    if num_layers != num_hops:
        raise ValueError(
            f"num_neighbors has {num_hops} hops, but {type(network).__name__} has {num_layers} "
            "layers; give one fan-out a layer, or set model.num_layers"
        )
    return network


def _check_options(
    epochs: int, batch_size: int, num_neighbors: list[int], lr: float, weight_decay: float
) -> None:
    for name, count in {"epochs": epochs, "batch_size": batch_size}.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} ({count!r}) must be a whole number, 1 or more")
    for name, rate in {"lr": lr, "weight_decay": weight_decay}.items():
        if not isinstance(rate, int | float) or rate < 0:
            raise ValueError(f"{name} ({rate!r}) must be a number, 0 or more")
    if not isinstance(num_neighbors, list) or not num_neighbors:
        raise ValueError(f"num_neighbors ({num_neighbors!r}) must be a list, such as [10,5]")
    if any(not isinstance(fanout, int) or fanout < -1 for fanout in num_neighbors):
        raise ValueError(f"num_neighbors ({num_neighbors}) must hold whole numbers, -1 or more")
