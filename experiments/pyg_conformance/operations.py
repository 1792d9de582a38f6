"""The two operations that PyG's ``NeighborSampler`` calls, done by ``DirectNeighborSampler``.

Names, order and meaning of the arguments are PyG's; they get compressed edges, already in order of
time.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_direct.sampler import DirectNeighborSampler


def neighbor_sample(
    colptr: Tensor,
    row: Tensor,
    seed: Tensor,
    num_neighbors: list[int],
    node_time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    edge_weight: Tensor | None = None,
    csc: bool = True,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[Any, ...]:
    """Sample in a homogeneous graph."""
    num_nodes = max([colptr.numel() - 1, *(int(ids.max()) + 1 for ids in (row, seed) if len(ids))])
    data = Data(edge_index=_expand(colptr, row), num_nodes=num_nodes)
    _set(data, node_time=node_time, edge_time=edge_time, edge_weight=edge_weight)
    sampler = DirectNeighborSampler(
        data, num_neighbors, replace=replace, disjoint=disjoint, device="cpu",
        temporal_strategy=temporal_strategy, is_sorted=True,
        **_attributes(node_time, edge_time, edge_weight),
    )  # fmt: skip
    times = None if seed_time is None else {None: seed_time}
    out = sampler._start({None: seed}, times, sampler._next_key(None))()
    node = out.node if out.batch is None else torch.stack([out.batch, out.node], 1)
    return out.row, out.col, node, out.edge, out.num_sampled_nodes, out.num_sampled_edges


def hetero_neighbor_sample(
    node_types: list[str],
    edge_types: list[tuple[str, str, str]],
    colptr_dict: dict[str, Tensor],
    row_dict: dict[str, Tensor],
    seed_dict: dict[str, Tensor],
    num_neighbors_dict: dict[str, list[int]],
    node_time_dict: dict[str, Tensor] | None = None,
    edge_time_dict: dict[str, Tensor] | None = None,
    seed_time_dict: dict[str, Tensor] | None = None,
    edge_weight_dict: dict[str, Tensor] | None = None,
    csc: bool = True,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[Any, ...]:
    """Sample in a heterogeneous graph."""
    data = _make_hetero(node_types, edge_types, colptr_dict, row_dict, seed_dict, node_time_dict)
    for kind in edge_types:
        name = "__".join(kind)
        _set(
            data[kind],
            edge_time=(edge_time_dict or {}).get(name),
            edge_weight=(edge_weight_dict or {}).get(name),
        )
    sampler = DirectNeighborSampler(
        data, {kind: num_neighbors_dict["__".join(kind)] for kind in edge_types},
        replace=replace, disjoint=disjoint, temporal_strategy=temporal_strategy, is_sorted=True,
        device="cpu", **_attributes(node_time_dict, edge_time_dict, edge_weight_dict),
    )  # fmt: skip
    out = sampler._start(seed_dict, seed_time_dict, sampler._next_key(None))()
    node = out.node
    if out.batch is not None:
        node = {kind: torch.stack([out.batch[kind], ids], 1) for kind, ids in node.items()}
    row, col, edge, num_edges = (
        {"__".join(kind): value for kind, value in values.items()}
        for values in (out.row, out.col, out.edge, out.num_sampled_edges)
    )
    return row, col, node, edge, out.num_sampled_nodes, num_edges


def _make_hetero(
    node_types: list[str],
    edge_types: list[tuple[str, str, str]],
    colptr_dict: dict[str, Tensor],
    row_dict: dict[str, Tensor],
    seed_dict: dict[str, Tensor],
    node_time_dict: dict[str, Tensor] | None,
) -> HeteroData:
    """Return the graph, with as many nodes of each type as its edges, seeds and times name."""
    data = HeteroData()
    sizes = dict.fromkeys(node_types, 0)
    for kind in edge_types:
        name = "__".join(kind)
        ends = (kind[2], colptr_dict[name].numel() - 1), (kind[0], _size(row_dict[name]))
        for end, size in ends:
            sizes[end] = max(size, sizes.get(end, 0))
    for node_type, ids in seed_dict.items():
        sizes[node_type] = max(sizes.get(node_type, 0), _size(ids))
    for node_type, size in sizes.items():
        time = (node_time_dict or {}).get(node_type)
        data[node_type].num_nodes = size if time is None else max(size, time.numel())
        _set(data[node_type], node_time=time)
    for kind in edge_types:
        name = "__".join(kind)
        data[kind].edge_index = _expand(colptr_dict[name], row_dict[name])
    return data


def _expand(colptr: Tensor, row: Tensor) -> Tensor:
    return torch.stack([row.long(), torch.repeat_interleave(colptr.long().diff())])


def _size(ids: Tensor) -> int:
    return int(ids.max()) + 1 if ids.numel() else 0


def _set(storage: Any, **attributes: Tensor | None) -> None:
    for name, value in attributes.items():
        if value is not None:
            storage[name] = value


def _attributes(node_time: Any, edge_time: Any, edge_weight: Any) -> dict[str, str | None]:
    time = None
    if node_time is not None:
        time = "node_time"
    elif edge_time is not None:
        time = "edge_time"
    weight = None if edge_weight is None else "edge_weight"
    return {"time_attr": time, "weight_attr": weight}
