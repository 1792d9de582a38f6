"""From PyG's in-memory graphs to a pair of stores, without a copy of any feature."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.typing import TensorFrame

from pyg_direct.stores.attributes import HOMOGENEOUS_EDGES
from pyg_direct.stores.feature import DirectFeatureStore
from pyg_direct.stores.graph import DirectGraphStore
from pyg_direct.stores.placing import Score, place

Size = tuple[int | None, int | None]
Array = np.ndarray[Any, Any]


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
        Its tensors, NumPy arrays and memory maps are used in place where they are contiguous; edges
        are compressed, which copies them. What belongs to the graph as a whole, and lists, stay in
        ``data`` alone.
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
        Every ``edge_index``, as COO, with the sizes of ``data``, and the number of nodes of every
        type. A homogeneous graph without edges gets an empty ``edge_index``.

    Raises
    ------
    TypeError
        If ``data`` is neither, or holds a sparse tensor or a ``TensorFrame``.
    ValueError
        As ``place``.
    """
    if not isinstance(data, Data | HeteroData):
        raise TypeError(f"data is a {type(data).__name__}, expected Data or HeteroData")
    feature_store, graph_store = DirectFeatureStore(device), DirectGraphStore()
    for group_name, name, value in tensors_of(data):
        feature_store.put_tensor(value, group_name=group_name, attr_name=name, index=None)
    for edge_type, edge_index, size in edges_of(data):
        graph_store.put_edge_index(
            edge_index, edge_type=edge_type, layout="coo", size=size, is_sorted=is_sorted
        )
    for node_type, num_nodes in sizes_of(data):
        graph_store.put_num_nodes(num_nodes, node_type)
    if budget_bytes is not None:
        place(feature_store, graph_store, budget_bytes, score=score, seeds=seeds)
    return feature_store, graph_store


def tensors_of(data: Data | HeteroData) -> Iterator[tuple[Any, str, Tensor | Array]]:
    """Yield group, name and tensor or array of all nodes and edges, where they are; no copy.

    Raises
    ------
    TypeError
        If one of them is sparse, or a ``TensorFrame``.
    """
    for node_type, storage in _node_storages(data):
        for name, value in storage.items():
            if isinstance(value, Tensor | np.ndarray) and storage.is_node_attr(name):
                yield node_type, name, _dense(name, value)
            elif isinstance(value, TensorFrame):
                raise TypeError(
                    f"{name} is a TensorFrame, expected tensors; make one of each kind of column"
                )
    for edge_type, storage in _edge_storages(data):
        group_name = HOMOGENEOUS_EDGES if edge_type is None else edge_type
        for name, value in storage.items():
            # Pairs of nodes, such as ``edge_label_index``, are no rows, even if there are as many.
            is_row = storage.is_edge_attr(name) and "index" not in name and name != "adj_t"
            if isinstance(value, Tensor | np.ndarray) and is_row:
                yield group_name, name, _dense(name, value)


def edges_of(data: Data | HeteroData) -> Iterator[tuple[Any, tuple[Tensor, Tensor], Size]]:
    """Yield edge type, sources and destinations, and sizes of every ``edge_index``; no copy.

    A homogeneous graph always has one, if only an empty one that says how many nodes there are.

    Raises
    ------
    TypeError
        If there is an ``adj_t``.
    """
    for edge_type, storage in _edge_storages(data):
        if "adj_t" in storage:
            raise TypeError("data holds 'adj_t', expected 'edge_index'; remove T.ToSparseTensor")
        ends = (data, data) if edge_type is None else (data[edge_type[0]], data[edge_type[-1]])
        size = (ends[0].num_nodes, ends[1].num_nodes)
        if "edge_index" in storage:
            yield edge_type, (storage["edge_index"][0], storage["edge_index"][1]), size
        elif edge_type is None and data.num_nodes:
            empty = torch.empty(0, dtype=torch.int64)
            yield None, (empty, empty), size


def sizes_of(data: Data | HeteroData) -> Iterator[tuple[str, int]]:
    """Yield the node types of ``HeteroData`` and their numbers of nodes, where they are known."""
    if isinstance(data, HeteroData):
        for node_type, storage in zip(data.node_types, data.node_stores, strict=True):
            if storage.num_nodes is not None:
                yield node_type, storage.num_nodes


def _node_storages(data: Data | HeteroData) -> list[tuple[Any, Any]]:
    if isinstance(data, Data):
        return [(None, data._store)]
    return list(zip(data.node_types, data.node_stores, strict=True))


def _edge_storages(data: Data | HeteroData) -> list[tuple[Any, Any]]:
    if isinstance(data, Data):
        return [(None, data._store)]
    return list(zip(data.edge_types, data.edge_stores, strict=True))


def _dense(name: str, value: Tensor | Array) -> Tensor | Array:
    if isinstance(value, Tensor) and value.layout != torch.strided:
        raise TypeError(
            f"{name} is a {value.layout} tensor, expected a dense one; call .to_dense()"
        )
    return value
