"""Guess how often training reads each node, from the graph or from a few batches.

A mini-batch walks edges backwards, from seeds to their in-neighbours; a node is read as often as
such walks come by. Reverse PageRank lets them start anywhere, weighted reverse PageRank at the
seeds (Min et al. 2021, "Graph Neural Network Training with Data Tiering", sections 4.1 and 4.2).

Shape legend: ``n`` nodes of one type, ``E`` edges of one type.
Scores are float32, shape (n,), on the CPU, for each node type (None in a homogeneous graph); only
their order and proportions mean anything.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
        stepped = _step(graph_store, _shared(graph_store, scores))
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


def expected_accesses(
    graph_store: DirectGraphStore,
    num_neighbors: Sequence[int] | Mapping[Any, Sequence[int]],
    *,
    batch_size: int,
    seeds: Any = None,
    device: torch.device | str = "cpu",
) -> Scores:
    """Score nodes by the probability that a mini-batch holds them.

    A node that is drawn ``a`` times in expectation is in the batch with probability
    ``1 - exp(-a)``, and once however often it is drawn; what a hop adds draws the next.

    Parameters
    ----------
    graph_store : DirectGraphStore
        The graph.
    num_neighbors : sequence of int, or mapping of them by edge type
        Fan-outs, as a loader takes them; -1 for all neighbours. Draws are without replacement.
    batch_size : int
        Seeds a batch.
    seeds : index, or dict of indices by node type, optional
        The training nodes; all nodes by default.
    device : torch.device or str
        Where to count; edges are copied there in pieces, at each hop.

    Returns
    -------
    dict of float32 tensors
        By node type.

    Raises
    ------
    ValueError
        If edge types have different numbers of hops, or ``batch_size`` is less than 1.
    KeyError
        If an edge type has no fan-outs, or there are seeds of a node type that is not there.
    """
    fanouts = {
        kind: [*(num_neighbors[kind] if isinstance(num_neighbors, Mapping) else num_neighbors)]
        for kind in graph_store.edge_types()
    }
    num_hops = {len(each) for each in fanouts.values()}
    if batch_size < 1 or len(num_hops) > 1:
        raise ValueError(
            f"batch_size is {batch_size} and num_neighbors {num_neighbors}, expected 1 or more, "
            "and as many hops for each edge type"
        )
    starts = _starts(graph_store, seeds, torch.device(device))
    drawn = {kind: start * batch_size for kind, start in starts.items()}
    added = {kind: 1 - torch.exp(-times) for kind, times in drawn.items()}
    for hop in range(max(num_hops, default=0)):
        weights = {kind: added[_ends(kind)[1]] for kind in fanouts}
        more = _step(graph_store, weights, {kind: each[hop] for kind, each in fanouts.items()})
        before, drawn = drawn, {kind: drawn[kind] + more[kind] for kind in drawn}
        added = {kind: torch.exp(-before[kind]) - torch.exp(-drawn[kind]) for kind in drawn}
    return _on_cpu({kind: 1 - torch.exp(-times) for kind, times in drawn.items()})


def _shared(graph_store: DirectGraphStore, scores: Scores) -> Scores:
    """Share the score of a node among its edge types: a batch draws from every one."""
    targets = [_ends(edge_type)[1] for edge_type in graph_store.edge_types()]
    return {
        edge_type: scores[_ends(edge_type)[1]] / targets.count(_ends(edge_type)[1])
        for edge_type in graph_store.edge_types()
    }


def _step(
    graph_store: DirectGraphStore, weights: Scores, fanouts: Mapping[Any, int] | None = None
) -> Scores:
    """Take one edge backwards: for each edge type, from nodes of these weights.

    Each node passes its weight on to its neighbours in equal parts; with fan-outs, its weight for
    every draw.
    """
    device = next((weight.device for weight in weights.values()), torch.device("cpu"))
    stepped = _zeros(graph_store, device)
    for edge_type, weight in weights.items():
        source = stepped[_ends(edge_type)[0]]
        for row, colptr, first in _pieces(graph_store.topology(edge_type), device):
            degrees = colptr.diff()
            draws = torch.ones_like(degrees)
            if fanouts is not None:
                limit = fanouts[edge_type]
                draws = degrees.clamp(max=limit) if limit >= 0 else degrees
            share = weight[first : first + degrees.numel()] * draws / degrees.clamp(min=1)
            source.index_add_(0, row, share.repeat_interleave(degrees))
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
