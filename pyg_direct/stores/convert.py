"""From PyG's in-memory graphs to a pair of stores, without a copy of any feature."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_direct.stores.attributes import HOMOGENEOUS_EDGES
from pyg_direct.stores.feature import DirectFeatureStore
from pyg_direct.stores.graph import DirectGraphStore
from pyg_direct.stores.placing import Score, place

Size = tuple[int | None, int | None]


def from_data(
    data: Data | HeteroData,
    device: torch.device | str | None = None,
    *,
    is_sorted: bool = False,
    budget_bytes: int | str | None = None,
    score: Score = "reverse_pagerank",
    seeds: Any = None,
) -> tuple[DirectFeatureStore, DirectGraphStore]:
    """Put every node and edge tensor of a graph into stores.

    Parameters
    ----------
    data : Data or HeteroData
        Its tensors are used in place where they are contiguous; edges are compressed, which copies
        them. What belongs to the graph as a whole stays in ``data`` alone.
    device : torch.device or str, optional
        Where rows appear. None: the current GPU if there is one, else the CPU.
    is_sorted : bool
        Edges are in order of destination, and need no sort.
    budget_bytes : int or str, optional
        Of device memory, for pointers, edges and hot rows, as ``place`` takes it. None leaves all
        in host memory.
    score, seeds
        As ``place`` takes them.

    Returns
    -------
    feature_store : DirectFeatureStore
        Node tensors under their node type (None if homogeneous), edge tensors under their edge type
        (``(None, None)`` if homogeneous).
    graph_store : DirectGraphStore
        Every ``edge_index``, as COO, with the sizes of ``data``.

    Raises
    ------
    TypeError
        If ``data`` is neither, or holds a sparse tensor.
    ValueError
        As ``place``.
    """
    if not isinstance(data, Data | HeteroData):
        raise TypeError(f"data is a {type(data).__name__}, expected Data or HeteroData")
    feature_store, graph_store = DirectFeatureStore(device), DirectGraphStore()
    for group_name, name, tensor in tensors_of(data):
        feature_store.put_tensor(tensor, group_name=group_name, attr_name=name, index=None)
    for edge_type, edge_index, size in edges_of(data):
        graph_store.put_edge_index(
            edge_index, edge_type=edge_type, layout="coo", size=size, is_sorted=is_sorted
        )
    if budget_bytes is not None:
        place(feature_store, graph_store, budget_bytes, score=score, seeds=seeds)
    return feature_store, graph_store


def tensors_of(data: Data | HeteroData) -> Iterator[tuple[Any, str, Tensor]]:
    """Yield group, name and tensor of all nodes and edges, where they are, without a copy.

    Raises
    ------
    TypeError
        If one of them is sparse.
    """
    for node_type, storage in _node_storages(data):
        for name, value in storage.items():
            if isinstance(value, Tensor) and storage.is_node_attr(name):
                yield node_type, name, _dense(name, value)
    for edge_type, storage in _edge_storages(data):
        group_name = HOMOGENEOUS_EDGES if edge_type is None else edge_type
        for name, value in storage.items():
            # Pairs of nodes, such as ``edge_label_index``, are no rows, even if there are as many.
            is_row = storage.is_edge_attr(name) and "index" not in name and name != "adj_t"
            if isinstance(value, Tensor) and is_row:
                yield group_name, name, _dense(name, value)


def edges_of(data: Data | HeteroData) -> Iterator[tuple[Any, tuple[Tensor, Tensor], Size]]:
    """Yield edge type, sources and destinations, and sizes of every ``edge_index``; no copy.

    Raises
    ------
    TypeError
        If there is an ``adj_t``.
    """
    for edge_type, storage in _edge_storages(data):
        if "adj_t" in storage:
            raise TypeError("data holds 'adj_t', expected 'edge_index'; remove T.ToSparseTensor")
        if "edge_index" in storage:
            ends = (data, data) if edge_type is None else (data[edge_type[0]], data[edge_type[-1]])
            size = (ends[0].num_nodes, ends[1].num_nodes)
            yield edge_type, (storage["edge_index"][0], storage["edge_index"][1]), size


def _node_storages(data: Data | HeteroData) -> list[tuple[Any, Any]]:
    if isinstance(data, Data):
        return [(None, data._store)]
    return list(zip(data.node_types, data.node_stores, strict=True))


def _edge_storages(data: Data | HeteroData) -> list[tuple[Any, Any]]:
    if isinstance(data, Data):
        return [(None, data._store)]
    return list(zip(data.edge_types, data.edge_stores, strict=True))


def _dense(name: str, value: Tensor) -> Tensor:
    if value.layout != torch.strided:
        raise TypeError(
            f"{name} is a {value.layout} tensor, expected a dense one; call .to_dense()"
        )
    return value
