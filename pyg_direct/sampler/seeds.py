"""Check the seeds of a batch, and find their times."""

import numpy as np
import torch
from numba import njit
from torch import Tensor

from pyg_direct.sampler.graph import SamplerGraph
from pyg_direct.sampler.relation import NodeType


def check_seeds(graph: SamplerGraph, kind: NodeType, ids: Tensor) -> Tensor:
    """Return seeds as contiguous int64 on the CPU, shape (num_seeds,).

    Raises
    ------
    ValueError
        If the graph has no such node type.
    IndexError
        If a seed is not a node.
    """
    if kind not in graph.num_nodes:
        raise ValueError(f"input_type is {kind!r}, expected one of {list(graph.num_nodes)}")
    if ids.dtype != torch.int64 or ids.dim() != 1 or not ids.is_cpu or not ids.is_contiguous():
        ids = ids.detach().cpu().reshape(-1).long().contiguous()
    size = graph.num_nodes[kind]
    wrong = _find_outside(ids.numpy(), size)
    if wrong >= 0:
        raise IndexError(
            f"seed {ids[wrong]} of node type {kind!r} is not a node, expected ids in [0, {size})"
        )
    return ids


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _find_outside(ids: np.ndarray, size: int) -> int:
    """Return where the first id stands that is not in ``[0, size)``, -1 if there is none."""
    for place in range(len(ids)):
        if ids[place] < 0 or ids[place] >= size:
            return place
    return -1


def find_seed_times(
    graph: SamplerGraph, seeds: dict[NodeType, Tensor], given: dict[NodeType, Tensor] | None
) -> Tensor:
    """Return the time of each seed: what was given, else the time of the seed node.

    Parameters
    ----------
    graph : SamplerGraph
        With time.
    seeds, given : dict of tensors
        By node type, on the CPU.

    Returns
    -------
    int64 tensor
        On the CPU, all types one after another.

    Raises
    ------
    ValueError
        If a seed has no time.
    """
    times = []
    node_time = graph.node_time or {}
    for kind, ids in seeds.items():
        time = None if given is None else given.get(kind)
        if time is None:
            if kind not in node_time:
                raise ValueError(f"seeds of node type {kind!r} have no time, expected input_time")
            time = node_time[kind][ids]
        times.append(time.detach().cpu().reshape(-1).long())
    return torch.cat(times)
