"""How long it takes to save a graph, to open it again, and until the first batch is there."""

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from experiments.device import choose_device
from experiments.rmat_stores import make_rmat
from pyg_direct import DirectFeatureStore, NeighborLoader, load, save
from pyg_direct.memory import MappedArray

NUM_CHECKED = 1000


def run(
    *,
    num_nodes: int,
    num_edges: int,
    quadrants: list[float],
    num_features: int,
    num_neighbors: list[int],
    batch_size: int,
    repeats: int,
    folder: str | None = None,
    device: str | None = None,
    seed: int = 42,
) -> list[dict[str, Any]]:
    """Save once, open several times, and return a row for each.

    Parameters
    ----------
    num_nodes, num_edges, quadrants
        See ``experiments.rmat_stores.make_rmat``.
    num_features : int
        Of float32 size, a row.
    num_neighbors, batch_size
        Of the first batch.
    repeats : int
        Times that the graph is opened; after the first the page cache is as warm as it gets.
    folder : str or None
        Where to save, in a folder of its own that is removed; null: where temporary files go.
    device : str or None
        See ``choose_device``.
    seed : int
        Of the graph.
    """
    place = choose_device(device)
    graph_store, _memory = make_rmat(
        num_nodes=num_nodes, num_edges=num_edges, quadrants=quadrants, seed=seed, device=place
    )
    x = MappedArray.empty((num_nodes, num_features), torch.int32).cpu_view()
    x.copy_(torch.arange(num_nodes, dtype=torch.int32)[:, None])
    feature_store = DirectFeatureStore("cpu")
    feature_store.put_tensor(x, group_name=None, attr_name="x", index=None)
    rows = []
    with tempfile.TemporaryDirectory(dir=folder) as target:
        begin = time.perf_counter()
        save((feature_store, graph_store), target)
        save_s = time.perf_counter() - begin
        num_bytes = sum(path.stat().st_size for path in Path(target).iterdir())
        for number in range(repeats):
            row = {"opened": number + 1, "gb": num_bytes / 1e9, "save_s": save_s}
            row |= _open(target, place, num_neighbors, batch_size)
            rows.append(row)
            print(
                f"{row['gb']:.2f} GB  saved in {save_s:.2f} s  opened in {row['open_s']:.3f} s  "
                f"first batch after {row['first_batch_s']:.3f} s",
                flush=True,
            )
    return rows


def _open(
    folder: str, device: torch.device, num_neighbors: list[int], batch_size: int
) -> dict[str, float]:
    begin = time.perf_counter()
    stores = load(folder, device)
    open_s = time.perf_counter() - begin
    loader = NeighborLoader(
        stores,
        num_neighbors,
        input_nodes=torch.arange(batch_size),
        batch_size=batch_size,
    )
    batch = next(iter(loader))
    if not bool((batch.x[:NUM_CHECKED] == batch.n_id[:NUM_CHECKED, None]).all()):
        raise RuntimeError("the opened graph gave rows that the ids do not name")
    return {"open_s": open_s, "first_batch_s": time.perf_counter() - begin}
