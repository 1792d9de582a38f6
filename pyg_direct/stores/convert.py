"""From PyG's in-memory graphs to a pair of stores, without a copy of any feature."""

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
    if isinstance(data, Data):
        _put_nodes(feature_store, data._store, None)
        stores, size = (feature_store, graph_store), (data.num_nodes,) * 2
        _put_edges(*stores, data._store, None, size, is_sorted)
        if data.num_nodes and not graph_store.edge_types():
            graph_store.put_edge_index(
                torch.empty((2, 0), dtype=torch.int64), edge_type=None, layout="coo", size=size
            )
    else:
        _put_types(feature_store, graph_store, data, is_sorted)
    if budget_bytes is not None:
        place(feature_store, graph_store, budget_bytes, score=score, seeds=seeds)
    return feature_store, graph_store


def _put_types(
    feature_store: DirectFeatureStore,
    graph_store: DirectGraphStore,
    data: HeteroData,
    is_sorted: bool,
) -> None:
    for node_type, storage in zip(data.node_types, data.node_stores, strict=True):
        _put_nodes(feature_store, storage, node_type)
        if storage.num_nodes is not None:
            graph_store.put_num_nodes(storage.num_nodes, node_type)
    for edge_type, storage in zip(data.edge_types, data.edge_stores, strict=True):
        size = (data[edge_type[0]].num_nodes, data[edge_type[-1]].num_nodes)
        _put_edges(feature_store, graph_store, storage, edge_type, size, is_sorted)


def _put_nodes(feature_store: DirectFeatureStore, storage: Any, group_name: Any) -> None:
    for name, value in storage.items():
        if isinstance(value, Tensor | np.ndarray) and storage.is_node_attr(name):
            _refuse_sparse(name, value)
            feature_store.put_tensor(value, group_name=group_name, attr_name=name, index=None)
        elif isinstance(value, TensorFrame):
            raise TypeError(
                f"{name} is a TensorFrame, expected tensors; make one of each kind of column"
            )


def _put_edges(
    feature_store: DirectFeatureStore,
    graph_store: DirectGraphStore,
    storage: Any,
    edge_type: Any,
    size: tuple[int | None, int | None],
    is_sorted: bool,
) -> None:
    group_name = HOMOGENEOUS_EDGES if edge_type is None else edge_type
    for name, value in storage.items():
        if name == "adj_t":
            raise TypeError("data holds 'adj_t', expected 'edge_index'; remove T.ToSparseTensor")
        if name == "edge_index":
            graph_store.put_edge_index(
                (value[0], value[1]), edge_type=edge_type, layout="coo", size=size,
                is_sorted=is_sorted,
            )  # fmt: skip
        # Pairs of nodes, such as ``edge_label_index``, are no rows, even if there are as many.
        elif (
            isinstance(value, Tensor | np.ndarray)
            and storage.is_edge_attr(name)
            and "index" not in name
        ):
            _refuse_sparse(name, value)
            feature_store.put_tensor(value, group_name=group_name, attr_name=name, index=None)


def _refuse_sparse(name: str, value: Any) -> None:
    if isinstance(value, Tensor) and value.layout != torch.strided:
        raise TypeError(
            f"{name} is a {value.layout} tensor, expected a dense one; call .to_dense()"
        )
