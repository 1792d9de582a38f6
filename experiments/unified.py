"""A training loop written for plain tensors, and the same with one line more: ``unified(x)``.

The loop gathers rows of host memory by ids on the CPU and moves them to the device, as PyG's
examples do. Batches are sampled once, before; both runs see the same, from the same weights, so
that losses must agree. Times are those of the line that gathers and moves, with an idle GPU before.
"""

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import NodeSamplerInput

from experiments.device import choose_device
from experiments.rmat_stores import make_rmat
from pyg_direct import DirectFeatureStore, DirectNeighborSampler, unified
from pyg_direct.memory import MappedArray

NUM_CLASSES = 7
NUM_WARM_UPS = 2
VALUES_PER_PIECE = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a loader gives: ids and edges on the CPU, seeds first."""

    n_id: Tensor
    edge_index: Tensor
    batch_size: int


def run(
    *,
    num_nodes: int,
    num_edges: int,
    quadrants: list[float],
    num_features: list[int],
    num_neighbors: list[int],
    batch_size: int,
    num_batches: int,
    lr: float,
    device: str | None = None,
    seed: int = 42,
) -> list[dict[str, Any]]:
    """Train with plain and with unified features and return a row for each.

    Parameters
    ----------
    num_nodes, num_edges, quadrants
        See ``experiments.rmat_stores.make_rmat``.
    num_features : list of int
        Of float32, a row; each is a run of its own.
    num_neighbors, batch_size, num_batches
        Of the sampler.
    lr : float
        Of Adam.
    device : str or None
        See ``choose_device``.
    seed : int
        Of graph, features, weights and sampling.
    """
    place = choose_device(device)
    graph_store, _memory = make_rmat(
        num_nodes=num_nodes, num_edges=num_edges, quadrants=quadrants, seed=seed, device=place
    )
    sampler = DirectNeighborSampler(
        (DirectFeatureStore("cpu"), graph_store), num_neighbors, device=place, seed=seed
    )
    batches = [_sample(sampler, num_nodes, batch_size, batch) for batch in range(num_batches)]
    y = torch.randint(NUM_CLASSES, (num_nodes,), generator=torch.Generator().manual_seed(seed))
    rows: list[dict[str, Any]] = []
    for width in num_features:
        x = _draw_features(num_nodes, width, seed, place)
        for name, features in (("plain", x), ("unified", unified(x))):
            row = {"features": name, "row_bytes": width * 4}
            row |= train(features, y, batches, device=place, lr=lr, seed=seed)
            row["transfer_saved"] = 1 - row["transfer_ms"] / _plain(rows, row)["transfer_ms"]
            row["loss_difference"] = abs(row["loss"] - _plain(rows, row)["loss"])
            rows.append(row)
            print(_line(row), flush=True)
    return rows


def train(
    x: Tensor, y: Tensor, batches: list[Batch], *, device: torch.device, lr: float, seed: int
) -> dict[str, Any]:
    """Train GraphSAGE for an epoch; a script for plain tensors.

    Parameters
    ----------
    x : float tensor, shape (num_nodes, F)
        In host memory.
    y : int64 tensor, shape (num_nodes,)
        In host memory.
    batches : list of Batch
        In host memory.
    device : torch.device
        Where the model is.
    lr : float
        Of Adam.
    seed : int
        Of the weights.
    """
    torch.manual_seed(seed)
    model = GraphSAGE(x.shape[1], 64, num_layers=2, out_channels=NUM_CLASSES).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    times, loss, num_rows = [], torch.zeros(()), 0
    for batch in batches:
        _wait(device)
        begin = time.perf_counter()
        inputs = x[batch.n_id].to(device)
        _wait(device)
        times.append(time.perf_counter() - begin)
        out = model(inputs, batch.edge_index.to(device))[: batch.batch_size]
        loss = functional.cross_entropy(out, y[batch.n_id[: batch.batch_size]].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        num_rows += batch.n_id.numel()
    transfer_s = median(times[NUM_WARM_UPS:])
    payload = num_rows / len(batches) * x.shape[1] * 4
    return {
        "transfer_ms": transfer_s * 1e3,
        "gb_per_s": payload / transfer_s / 1e9,
        "loss": loss.item(),
        "rows_a_batch": num_rows / len(batches),
        "batches": len(batches),
    }


def _sample(sampler: DirectNeighborSampler, num_nodes: int, batch_size: int, batch: int) -> Batch:
    generator = torch.Generator().manual_seed(batch)
    seeds = torch.randint(num_nodes, (batch_size,), generator=generator)
    out = sampler.sample_from_nodes(NodeSamplerInput(None, seeds), batch=batch)
    edge_index = torch.stack([out.row, out.col]).cpu()
    return Batch(n_id=out.node.cpu(), edge_index=edge_index.long(), batch_size=batch_size)


def _draw_features(num_nodes: int, num_features: int, seed: int, device: torch.device) -> Tensor:
    memory = MappedArray.empty((num_nodes, num_features), torch.float32)
    generator = torch.Generator(device).manual_seed(seed)
    for piece in memory.cpu_view().split(max(1, VALUES_PER_PIECE // num_features)):
        piece.copy_(torch.randn(piece.shape, generator=generator, device=device))
    return memory.cpu_view()


def _plain(rows: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of plain tensors of the same width, which comes first."""
    return next((each for each in rows if each["row_bytes"] == row["row_bytes"]), row)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['row_bytes']:>5} B  {row['features']:<8} {row['transfer_ms']:9.3f} ms a batch  "
        f"{row['gb_per_s']:6.1f} GB/s  {row['transfer_saved']:6.1%} saved  loss {row['loss']:.6f}"
    )
