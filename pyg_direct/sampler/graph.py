"""Turn a graph into relations that the sampler walks: direction, order of time, weights.

Shape legend: ``E`` edges of one type, ``D`` nodes that can be in the frontier.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pyg_direct.kernels.weighted import sum_weights_cpu
from pyg_direct.sampler.relation import EdgeType, NodeType, Relation
from pyg_direct.sampler.source import GraphSource, open_source
from pyg_direct.stores.topology import Topology

MAX_DEGREE = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerGraph:
    """What the sampler knows of a graph, on the CPU.

    Parameters
    ----------
    relations : list of Relation
        One for each edge type, in the order in which the edge types were put.
    num_nodes : dict of int
        For each node type, in order.
    node_time : dict of int64 tensors, or None
        Time of each node; None where time is not of nodes.
    is_temporal, is_hetero : bool
        Whether there is time, and whether there are types.
    """

    relations: list[Relation]
    num_nodes: dict[NodeType, int]
    node_time: dict[NodeType, Tensor] | None
    is_temporal: bool
    is_hetero: bool

    @classmethod
    def from_data(
        cls,
        data: Any,
        *,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        is_backward: bool = False,
    ) -> "SamplerGraph":
        """Read a graph.

        Parameters
        ----------
        data : Data, HeteroData, or pair of stores
            Its topology is used in place where it is compressed already and needs no other order.
        time_attr : str, optional
            Name of the time of nodes or of edges. Edges are put in order of time within each
            neighbourhood, which copies.
        weight_attr : str, optional
            Name of the weight of edges. Edges of weight 0 are left out, since they are never drawn.
        is_sorted : bool
            Edges of ``Data`` and ``HeteroData`` are in order of destination.
        is_backward : bool
            Walk from sources to destinations.

        Raises
        ------
        ValueError
            If an attribute is nowhere, is of nodes and of edges, has another length, or holds
            weights that are negative or not finite; or if a degree does not fit in 32 bits.
        TypeError
            If times are not integers.
        """
        source = open_source(data, is_sorted)
        num_nodes = {kind: source.num_nodes(kind) for kind in source.node_types}
        node_time, edge_time = _read_times(source, time_attr)
        weights = _read_weights(source, weight_attr)
        relations = []
        for kind in source.edge_types:
            relation = _relate(kind, source.topology(kind), is_backward)
            time = _edge_times(relation, node_time, edge_time)
            if time is not None:
                relation = _in_order_of_time(relation, time)
            if weights is not None:
                relation = _with_weights(relation, weights.get(kind))
            _check_degrees(relation)
            relations.append(relation)
        return cls(
            relations=relations, num_nodes=num_nodes, node_time=node_time or None,
            is_temporal=time_attr is not None, is_hetero=source.is_hetero,
        )  # fmt: skip


def _read_times(
    source: GraphSource, name: str | None
) -> tuple[dict[NodeType, Tensor], dict[EdgeType, Tensor]]:
    if name is None:
        return {}, {}
    nodes = {kind: source.node_values(kind, name) for kind in source.node_types}
    edges = {kind: source.edge_values(kind, name) for kind in source.edge_types}
    node_time = {k: _as_times(name, v) for k, v in nodes.items() if v is not None}
    # One tensor that could be either is of nodes, as in PyG.
    either = [value for value in nodes.values() if value is not None]
    edge_time = {
        k: _as_times(name, v)
        for k, v in edges.items()
        if v is not None and not any(v is each for each in either)
    }
    if bool(node_time) == bool(edge_time):
        found = "both nodes and edges have" if node_time else "neither nodes nor edges have"
        raise ValueError(f"time_attr is {name!r}, which {found}, expected one of the two")
    for node_type, time in node_time.items():
        if time.numel() < source.num_nodes(node_type):
            raise ValueError(
                f"{name!r} has {time.numel()} times for node type {node_type!r}, "
                f"expected {source.num_nodes(node_type)}"
            )
    return node_time, edge_time


def _as_times(name: str, values: Tensor) -> Tensor:
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise TypeError(f"time_attr {name!r} holds {values.dtype}, expected integers")
    return values.detach().cpu().reshape(-1).long()


def _read_weights(source: GraphSource, name: str | None) -> dict[EdgeType, Tensor] | None:
    if name is None:
        return None
    found = {kind: source.edge_values(kind, name) for kind in source.edge_types}
    weights = {kind: values for kind, values in found.items() if values is not None}
    if not weights:
        raise ValueError(f"weight_attr is {name!r}, which no edge type has")
    for kind, values in weights.items():
        values = weights[kind] = values.detach().cpu().reshape(-1).double()
        if not bool(((values >= 0) & values.isfinite()).all()):
            raise ValueError(
                f"{name!r} of edge type {kind!r} holds weights that are negative or not finite, "
                "expected 0 or more"
            )
    return weights


def _relate(kind: EdgeType, topology: Topology, is_backward: bool) -> Relation:
    source, destination = (None, None) if kind is None else (kind[0], kind[2])
    if not is_backward:
        return Relation(
            edge_type=kind, frontier_type=destination, neighbor_type=source,
            colptr=topology.colptr, row=topology.row, perm=topology.perm,
        )  # fmt: skip
    col = torch.repeat_interleave(topology.colptr.diff()).to(topology.row.dtype)
    order = torch.argsort(topology.row, stable=True)
    rowptr = torch.zeros(topology.size[0] + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(topology.row, minlength=topology.size[0]), 0, out=rowptr[1:])
    return Relation(
        edge_type=kind, frontier_type=source, neighbor_type=destination, colptr=rowptr,
        row=col[order], perm=order if topology.perm is None else topology.perm[order],
    )  # fmt: skip


def _edge_times(
    relation: Relation, node_time: dict[NodeType, Tensor], edge_time: dict[EdgeType, Tensor]
) -> Tensor | None:
    if relation.neighbor_type in node_time:
        return node_time[relation.neighbor_type][relation.row.long()]
    time = edge_time.get(relation.edge_type)
    if time is None:
        return None
    _check_length("time", relation, time)
    return time if relation.perm is None else time[relation.perm]


def _check_length(name: str, relation: Relation, values: Tensor) -> None:
    if values.numel() != relation.num_edges:
        raise ValueError(
            f"{values.numel()} {name}s for edge type {relation.edge_type!r}, "
            f"expected {relation.num_edges}, one an edge"
        )


def _in_order_of_time(relation: Relation, time: Tensor) -> Relation:
    owner = torch.repeat_interleave(relation.colptr.diff())
    if bool(((time[1:] >= time[:-1]) | (owner[1:] != owner[:-1])).all()):
        return replace(relation, time=time)
    order = torch.argsort(time, stable=True)
    order = order[torch.argsort(owner[order], stable=True)]
    perm = order if relation.perm is None else relation.perm[order]
    return replace(relation, row=relation.row[order], perm=perm, time=time[order])


def _with_weights(relation: Relation, weight: Tensor | None) -> Relation:
    """Add weights, and leave out the edges without any; ``weight`` is in the user's order."""
    if weight is None:
        return relation
    _check_length("weight", relation, weight)
    weight = weight if relation.perm is None else weight[relation.perm]
    if not bool((weight > 0).all()):
        relation, weight = _without_zeros(relation, weight)
    weight_sum = torch.empty_like(weight)
    sum_weights_cpu(relation.colptr.numpy(), weight.numpy(), weight_sum.numpy())
    return replace(relation, weight=weight.contiguous(), weight_sum=weight_sum)


def _without_zeros(relation: Relation, weight: Tensor) -> tuple[Relation, Tensor]:
    kept = (weight > 0).nonzero().view(-1)
    num_before = torch.cat([torch.zeros(1, dtype=torch.int64), (weight > 0).cumsum(0)])
    return replace(
        relation,
        colptr=num_before[relation.colptr],
        row=relation.row[kept],
        perm=kept if relation.perm is None else relation.perm[kept],
        time=None if relation.time is None else relation.time[kept],
    ), weight[kept]


def _check_degrees(relation: Relation) -> None:
    largest = int(relation.colptr.diff().max()) if relation.num_frontier_nodes else 0
    if largest > MAX_DEGREE:
        raise ValueError(
            f"a node of edge type {relation.edge_type!r} has {largest} neighbours, "
            f"expected at most {MAX_DEGREE}"
        )
