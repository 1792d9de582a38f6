"""Guess how often training reads each node, from the graph or from a few batches.

A mini-batch walks edges backwards, from seeds to their in-neighbours; a node is read as often as
such walks come by. Reverse PageRank lets them start anywhere, weighted reverse PageRank at the
seeds (Min et al. 2021, "Graph Neural Network Training with Data Tiering", sections 4.1 and 4.2).

Shape legend: ``n`` nodes of one type, ``E`` edges of one type.
Scores are float32, shape (n,), on the CPU, for each node type (None in a homogeneous graph); only
their order and proportions mean anything.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_direct.stores.graph import DirectGraphStore
from pyg_direct.stores.index import row_ids
from pyg_direct.stores.topology import Topology

Scores = dict[Any, Tensor]

EDGES_PER_PIECE = 1 << 26
DAMPING = 0.85
NUM_ITERATIONS = 10


def degree(graph_store: DirectGraphStore, *, device: torch.device | str = "cpu") -> Scores:
    """Score nodes by the number of edges that lead from them.

    Parameters
    ----------
    graph_store : DirectGraphStore
        The graph.
    device : torch.device or str
        Where to count; edges are copied there in pieces.

    Returns
    -------
    dict of float32 tensors
        By node type.
    """
    scores = _zeros(graph_store, torch.device(device))
    for edge_type in graph_store.edge_types():
        source = scores[_ends(edge_type)[0]]
        topology = graph_store.topology(edge_type)
        for row in topology.row.split(EDGES_PER_PIECE):
            row = row.to(source.device)
            source.index_add_(0, row, torch.ones(1, device=source.device).expand(row.numel()))
    return _on_cpu(scores)


def reverse_pagerank(
    graph_store: DirectGraphStore,
    *,
    seeds: Any = None,
    device: torch.device | str = "cpu",
    num_iterations: int = NUM_ITERATIONS,
    damping: float = DAMPING,
) -> Scores:
    """Score nodes by walks against the edges: from any node, or weighted, from the seeds alone.

    Parameters
    ----------
    graph_store : DirectGraphStore
        The graph.
    seeds : index, or dict of indices by node type, optional
        The training nodes, as ids or masks; they make the score a weighted one.
    device : torch.device or str
        Where to walk; edges are copied there in pieces, at each iteration.
    num_iterations : int
        Steps of the power iteration, 1 or more.
    damping : float
        Probability in ``[0, 1]`` that a walk goes on.

    Returns
    -------
    dict of float32 tensors
        By node type; all sum to 1 or, where walks end early, to less.

    Raises
    ------
    ValueError
        If a number is outside its range.
    KeyError
        If there are seeds of a node type that is not in the graph.
    """
    if num_iterations < 1 or not 0 <= damping <= 1:
        raise ValueError(
            f"num_iterations is {num_iterations} and damping {damping}, expected 1 or more and a "
            "number in [0, 1]"
        )
    starts = _starts(graph_store, seeds, torch.device(device))
    scores = starts
    for _ in range(num_iterations):
        stepped = _step(graph_store, scores)
        scores = {kind: starts[kind] * (1 - damping) + stepped[kind] * damping for kind in starts}
    return _on_cpu(scores)


def count_accesses(
    batches: Iterable[Tensor | Mapping[Any, Tensor]], graph_store: DirectGraphStore
) -> Scores:
    """Score nodes by the number of times that batches read them.

    Parameters
    ----------
    batches : iterable of id tensors, or of dicts of them by node type
        ``n_id`` of a few batches of training; read one at a time.
    graph_store : DirectGraphStore
        The graph.

    Returns
    -------
    dict of float32 tensors
        By node type.

    Raises
    ------
    KeyError
        If there are ids of a node type that is not in the graph.
    """
    scores: Scores = {}
    for batch in batches:
        for kind, ids in batch.items() if isinstance(batch, Mapping) else [(None, batch)]:
            if not scores:
                scores = _zeros(graph_store, ids.device)
            _check_type(kind, scores)
            scores[kind].index_add_(0, ids, torch.ones(1, device=ids.device).expand(ids.numel()))
    return _on_cpu(scores or _zeros(graph_store, torch.device("cpu")))


def _step(graph_store: DirectGraphStore, scores: Scores) -> Scores:
    """Let every walk take one edge backwards."""
    edge_types = graph_store.edge_types()
    targets = [_ends(edge_type)[1] for edge_type in edge_types]
    stepped = {kind: torch.zeros_like(score) for kind, score in scores.items()}
    for edge_type in edge_types:
        source, target = _ends(edge_type)
        topology = graph_store.topology(edge_type)
        # A batch draws from every edge type of a node.
        weight = scores[target] / targets.count(target)
        for row, colptr, first in _pieces(topology, weight.device):
            degrees = colptr.diff()
            share = weight[first : first + degrees.numel()] / degrees.clamp(min=1)
            stepped[source].index_add_(0, row, share.repeat_interleave(degrees))
    return stepped


def _pieces(topology: Topology, device: torch.device) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Yield edges of whole destinations, their pointers from 0, and the first destination."""
    first, num_nodes = 0, topology.colptr.numel() - 1
    while first < num_nodes:
        begin = int(topology.colptr[first])
        last = int(torch.searchsorted(topology.colptr, begin + EDGES_PER_PIECE, right=True)) - 1
        last = min(max(last, first + 1), num_nodes)
        colptr = topology.colptr[first : last + 1].to(device) - begin
        yield topology.row[begin : int(topology.colptr[last])].to(device), colptr, first
        first = last


def _starts(graph_store: DirectGraphStore, seeds: Any, device: torch.device) -> Scores:
    starts = _zeros(graph_store, device)
    if seeds is None:
        starts = {kind: torch.ones_like(score) for kind, score in starts.items()}
    else:
        for kind, index in seeds.items() if isinstance(seeds, Mapping) else [(None, seeds)]:
            _check_type(kind, starts)
            ids = row_ids(index, starts[kind].numel())
            starts[kind][ids.to(device).long() if isinstance(ids, Tensor) else ids] = 1.0
    total = sum(float(score.sum()) for score in starts.values()) or 1.0
    return {kind: score / total for kind, score in starts.items()}


def _check_type(kind: Any, scores: Scores) -> None:
    if kind not in scores:
        raise KeyError(f"node type {kind!r} is not in the graph, expected one of {[*scores]}")


def _zeros(graph_store: DirectGraphStore, device: torch.device) -> Scores:
    return {
        kind: torch.zeros(size, device=device) for kind, size in graph_store.num_nodes().items()
    }


def _on_cpu(scores: Scores) -> Scores:
    return {kind: score.cpu() for kind, score in scores.items()}


def _ends(edge_type: Any) -> tuple[Any, Any]:
    return (None, None) if edge_type is None else (edge_type[0], edge_type[-1])
