"""Where the sampler reads a graph: ``Data``, ``HeteroData``, or a pair of PyG stores.

A homogeneous graph has the node type None and the edge type None.
"""

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.sampler.utils import to_csc

from pyg_direct.sampler.relation import EdgeType, NodeType
from pyg_direct.stores import HOMOGENEOUS_EDGES, Topology


class GraphSource(Protocol):
    """A graph, on the CPU."""

    node_types: list[NodeType]
    edge_types: list[EdgeType]
    is_hetero: bool

    def topology(self, edge_type: EdgeType) -> Topology:
        """Return the edges of a type, compressed by destination."""
        ...

    def num_nodes(self, node_type: NodeType) -> int:
        """Return the number of nodes of a type."""
        ...

    def node_values(self, node_type: NodeType, name: str) -> Tensor | None:
        """Return an attribute of all nodes of a type, shape (num_nodes, ...)."""
        ...

    def edge_values(self, edge_type: EdgeType, name: str) -> Tensor | None:
        """Return an attribute of all edges of a type, in the order in which they were put."""
        ...


def open_source(data: Any, is_sorted: bool = False) -> GraphSource:
    """Return a source for whatever PyG's own sampler takes.

    Parameters
    ----------
    data : Data, HeteroData, or tuple of FeatureStore and GraphStore
        Not copied.
    is_sorted : bool
        Edges of ``Data`` and ``HeteroData`` are in order of destination.

    Raises
    ------
    TypeError
        If ``data`` is something else.
    """
    if isinstance(data, Data):
        return DataSource(data, is_sorted)
    if isinstance(data, HeteroData):
        return HeteroDataSource(data, is_sorted)
    if isinstance(data, tuple | list) and len(data) == 2:
        feature_store, graph_store = data
        if isinstance(feature_store, FeatureStore) and isinstance(graph_store, GraphStore):
            return StoreSource(feature_store, graph_store)
    raise TypeError(
        f"data is a {type(data).__name__}, expected Data, HeteroData, or a pair "
        "(FeatureStore, GraphStore)"
    )


def _read_topology(storage: Any, size: tuple[int, int], is_sorted: bool) -> Topology:
    """Compress the edges of a ``Data`` object or of one edge type of ``HeteroData``."""
    if "adj" in storage or "adj_t" in storage:
        colptr, row, perm = to_csc(storage, device="cpu")
        return Topology(colptr=colptr, row=row, perm=perm, size=size, layout="csc")
    edge_index = storage.edge_index if "edge_index" in storage else None
    if edge_index is None:
        edge_index = torch.empty((2, 0), dtype=torch.int64)
    return Topology.from_layout(
        "coo", (edge_index[0], edge_index[1]), size=size, is_sorted=is_sorted
    )


def _read(storage: Any, name: str) -> Tensor | None:
    # Indexing makes a missing attribute an error, and ``get`` is no method of every storage.
    return getattr(storage, name) if name in storage else None


class DataSource:
    """A homogeneous ``Data`` object."""

    is_hetero = False

    def __init__(self, data: Data, is_sorted: bool) -> None:
        self.node_types: list[NodeType] = [None]
        self.edge_types: list[EdgeType] = [None]
        self._data, self._is_sorted = data, is_sorted

    def topology(self, edge_type: EdgeType) -> Topology:
        # docstring inherited
        num_nodes = self.num_nodes(None)
        return _read_topology(self._data, (num_nodes, num_nodes), self._is_sorted)

    def num_nodes(self, node_type: NodeType) -> int:
        # docstring inherited
        return int(self._data.num_nodes or 0)

    def node_values(self, node_type: NodeType, name: str) -> Tensor | None:
        # docstring inherited
        if name in self._data and self._data.is_node_attr(name):
            return _read(self._data, name)
        return None

    def edge_values(self, edge_type: EdgeType, name: str) -> Tensor | None:
        # docstring inherited
        # With as many nodes as edges, PyG takes most attributes for those of nodes.
        values = _read(self._data, name)
        is_per_edge = values is not None and values.size(0) == self._data.num_edges
        return values if is_per_edge else None


class HeteroDataSource:
    """A ``HeteroData`` object."""

    is_hetero = True

    def __init__(self, data: HeteroData, is_sorted: bool) -> None:
        node_types, edge_types = data.metadata()
        self.node_types: list[NodeType] = list(node_types)
        self.edge_types: list[EdgeType] = list(edge_types)
        self._data, self._is_sorted = data, is_sorted

    def topology(self, edge_type: EdgeType) -> Topology:
        # docstring inherited
        source, _, destination = edge_type or ("", "", "")
        size = (self.num_nodes(source), self.num_nodes(destination))
        return _read_topology(self._data[edge_type], size, self._is_sorted)

    def num_nodes(self, node_type: NodeType) -> int:
        # docstring inherited
        return int(self._data[node_type].num_nodes or 0)

    def node_values(self, node_type: NodeType, name: str) -> Tensor | None:
        # docstring inherited
        return _read(self._data[node_type], name)

    def edge_values(self, edge_type: EdgeType, name: str) -> Tensor | None:
        # docstring inherited
        return _read(self._data[edge_type], name)


class StoreSource:
    """A pair of stores: ours, or any that follow PyG."""

    def __init__(self, feature_store: FeatureStore, graph_store: GraphStore) -> None:
        self._features = feature_store
        self._topologies = _read_topologies(graph_store)
        # Only a store of ours knows of node types without edges and features.
        self._sizes: dict[Any, int] = {}
        if hasattr(graph_store, "put_num_nodes"):
            self._sizes = graph_store.num_nodes()
        self._attrs = list(feature_store.get_all_tensor_attrs())
        self.edge_types: list[EdgeType] = list(self._topologies)
        groups = [attr.group_name for attr in self._attrs if isinstance(attr.group_name, str)]
        groups += [kind for kind in self._sizes if kind is not None]
        self.is_hetero = any(kind is not None for kind in self.edge_types) or (
            not self.edge_types and bool(groups)
        )
        ends = [end for kind in self.edge_types if kind for end in (kind[0], kind[2])]
        self.node_types: list[NodeType] = [None]
        if self.is_hetero:
            self.node_types = list(dict.fromkeys([*groups, *ends]))
        elif not self.edge_types:
            self._topologies[None] = Topology.from_layout(
                "coo", (torch.empty(0, dtype=torch.int64),) * 2
            )
            self.edge_types = [None]

    def topology(self, edge_type: EdgeType) -> Topology:
        # docstring inherited
        return self._topologies[edge_type]

    def num_nodes(self, node_type: NodeType) -> int:
        # docstring inherited
        if node_type is None:
            return max(self._topologies[None].size)
        sizes = [self._sizes.get(node_type, 0)]
        for kind, topology in self._topologies.items():
            if kind is not None:
                ends = ((kind[0], topology.size[0]), (kind[2], topology.size[1]))
                sizes += [size for end, size in ends if end == node_type]
        for attr in self._attrs:
            if attr.group_name == node_type:
                size = self._features.get_tensor_size(attr)
                sizes += [size[0]] if size else []
        return max(sizes)

    def node_values(self, node_type: NodeType, name: str) -> Tensor | None:
        # docstring inherited
        if node_type is not None:
            return self._read(node_type, name)
        values = self._read_anywhere(name)
        return None if values is None or self._is_edge_attribute(values, name) else values

    def edge_values(self, edge_type: EdgeType, name: str) -> Tensor | None:
        # docstring inherited
        values = self._read(edge_type or HOMOGENEOUS_EDGES, name)
        if edge_type is not None or values is not None:
            return values
        values = self._read_anywhere(name)
        return values if values is not None and self._is_edge_attribute(values, name) else None

    def _read_anywhere(self, name: str) -> Tensor | None:
        """Read an attribute of a homogeneous graph, which PyG looks up by name alone."""
        groups = [attr.group_name for attr in self._attrs if attr.attr_name == name]
        groups = [group for group in groups if group != HOMOGENEOUS_EDGES]
        return self._read(groups[0], name) if groups else None

    def _is_edge_attribute(self, values: Tensor, name: str) -> bool:
        """Tell what a foreign store's homogeneous attribute belongs to, from its length.

        Where the graph has as many edges as nodes, PyG's own rule decides: ``"time"`` is of nodes.
        """
        num_nodes, num_edges = self.num_nodes(None), self._topologies[None].num_edges
        if num_nodes != num_edges and values.size(0) in (num_nodes, num_edges):
            return values.size(0) == num_edges
        return name != "time"

    def _read(self, group: Any, name: str) -> Tensor | None:
        try:
            values = self._features.get_tensor(group_name=group, attr_name=name, index=None)
        except KeyError:
            return None
        return values.detach().cpu() if isinstance(values, Tensor) else None


def _read_topologies(graph_store: Any) -> dict[EdgeType, Topology]:
    if hasattr(graph_store, "topology") and hasattr(graph_store, "edge_types"):
        kinds = [kind for kind in graph_store.edge_types() if kind is None or len(kind) == 3]
        return {kind: graph_store.topology(kind) for kind in kinds}
    sizes = {attr.edge_type: attr.size for attr in graph_store.get_all_edge_attrs()}
    if not sizes:
        return {}
    row, colptr, perm = graph_store.csc()
    if list(sizes) == [None]:
        row, colptr, perm = {None: row}, {None: colptr}, {None: perm}
    # ``csc()`` has PyG's order of edge types, which changes from process to process.
    return {kind: _from_csc(colptr[kind], row[kind], perm[kind], sizes[kind]) for kind in sizes}


def _from_csc(
    colptr: Tensor, row: Tensor, perm: Tensor | None, size: tuple[int | None, int | None] | None
) -> Topology:
    topology = Topology.from_layout("csc", (row, colptr), size=size)
    return replace(topology, perm=perm)
