"""Write a graph that is in memory into a folder, with no second copy of any feature."""

from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_direct.files.writing import edge_index_bytes, replace_graph
from pyg_direct.memory import MappedArray
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore, edges_of, sizes_of, tensors_of

Stores = tuple[DirectFeatureStore, DirectGraphStore]


def save(stores: Stores | Data | HeteroData, path: str | Path, *, progress: bool = False) -> None:
    """Save a graph, in the place of what an earlier save left there, if anything.

    Parameters
    ----------
    stores : pair of stores, Data or HeteroData
        Features are written in pieces, never held twice, wherever they are and however they lie.
        Edges of ``Data`` are compressed first, one type at a time, which copies those.
    path : str or Path
        A folder, made if it is not there. Stores that were opened from it may be saved to it.
    progress : bool
        Show a bar, which needs tqdm.

    Raises
    ------
    TypeError
        If ``stores`` is something else, or a type of elements cannot be stored.
    ValueError
        If there are other files in the folder.
    """
    if isinstance(stores, Data | HeteroData):
        _save_data(stores, path, progress)
    else:
        _save_stores(_check_stores(stores), path, progress)


def _save_data(data: Data | HeteroData, path: str | Path, progress: bool) -> None:
    tensors, edges = list(tensors_of(data)), list(edges_of(data))
    num_bytes = sum(tensor.nbytes for _, _, tensor in tensors) + sum(
        edge_index_bytes(edge_index, size) for _, edge_index, size in edges
    )
    with replace_graph(path, num_bytes=num_bytes, title="save", progress=progress) as writer:
        for group, name, tensor in tensors:
            writer.put_tensor(group, name, _as_tensor(tensor))
        for edge_type, edge_index, size in edges:
            writer.put_edge_index(edge_type, edge_index, size)
        for node_type, num_nodes in sizes_of(data):
            writer.put_num_nodes(node_type, num_nodes)


def _as_tensor(value: Any) -> Tensor:
    # Arrays and memory maps may be read-only, of which torch warns.
    return value if isinstance(value, Tensor) else MappedArray.from_array(value).cpu_view()


def _save_stores(stores: Stores, path: str | Path, progress: bool) -> None:
    feature_store, graph_store = stores
    num_bytes = _num_bytes(feature_store, graph_store)
    with replace_graph(path, num_bytes=num_bytes, title="save", progress=progress) as writer:
        for group, names in feature_store.groups().items():
            for name in names:
                writer.put_tensor(group, name, feature_store.table(group, name).rows())
        for (edge_type, _), topology in graph_store.topologies().items():
            writer.put_topology(edge_type, topology)
        for node_type, num_nodes in graph_store.num_nodes().items():
            if node_type is not None:
                writer.put_num_nodes(node_type, num_nodes)


def _num_bytes(feature_store: DirectFeatureStore, graph_store: DirectGraphStore) -> int:
    tables = [
        feature_store.table(group, name)
        for group, names in feature_store.groups().items()
        for name in names
    ]
    parts = [
        part
        for each in graph_store.topologies().values()
        for part in (each.colptr, each.row, each.perm)
    ]
    return sum(table.num_rows * table.row_bytes for table in tables) + sum(
        part.nbytes for part in parts if part is not None
    )


def _check_stores(stores: Any) -> Stores:
    is_pair = isinstance(stores, tuple | list) and len(stores) == 2
    if (
        not is_pair
        or not isinstance(stores[0], DirectFeatureStore)
        or not isinstance(stores[1], DirectGraphStore)
    ):
        raise TypeError(
            f"stores is a {type(stores).__name__}, expected (DirectFeatureStore, "
            "DirectGraphStore), Data or HeteroData"
        )
    return stores[0], stores[1]
