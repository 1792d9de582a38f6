"""PyG's own sampling operation, for comparison, where its package is installed."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import WITH_PYG_LIB

from pyg_direct import DirectFeatureStore, DirectGraphStore


def make_pyg_lib_sampler(
    graph: tuple[DirectFeatureStore, DirectGraphStore],
    num_neighbors: list[int],
    options: dict[str, Any],
) -> Callable[[Tensor, int], Any] | None:
    """Return a sampler of batches, or None where pyg-lib is not there or cannot do it.

    Parameters
    ----------
    graph : pair of stores
        Homogeneous. Its sources are copied to int64, because pyg-lib wants one type of id.
    num_neighbors : list of int
        Fan-outs.
    options : dict
        As of ``DirectNeighborSampler``; only ``replace`` is known here.
    """
    if not WITH_PYG_LIB or set(options) - {"replace"}:
        return None
    topology = graph[1].topology(None)
    row, replace = topology.row.long(), options.get("replace", False)

    def sample(seeds: Tensor, batch: int) -> Any:
        torch.manual_seed(batch)
        out = torch.ops.pyg.neighbor_sample(
            topology.colptr, row, seeds, num_neighbors, None, None, None, None, True, replace,
            True, False, "uniform", True,
        )  # fmt: skip
        return SimpleNamespace(row=out[0], node=out[2])

    return sample
