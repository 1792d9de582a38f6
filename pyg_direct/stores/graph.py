"""PyG's ``GraphStore`` over compressed topology that keeps its permutation.

Shape legend: ``E`` edges of one edge type.
"""

from typing import Any

from torch import Tensor
from torch_geometric.data import EdgeAttr, GraphStore

from pyg_direct.stores.topology import Topology

Key = tuple[Any, str]


class DirectGraphStore(GraphStore):  # type: ignore[misc]
    """Edges in host memory, compressed by destination when they are put.

    One edge type may be put in several layouts; samplers use the one that was put first, and its
    order is what ``e_id`` counts in. For CSC that is the order of the compressed edges.

    Parameters
    ----------
    edge_attr_cls : type, optional
        PyG's hook for an attribute class of one's own.

    Notes
    -----
    Ids are checked when edges are put, so that no kernel meets a wrong one. CSC is kept in place;
    COO and CSR are copied.
    """

    def __init__(self, edge_attr_cls: Any | None = None) -> None:
        super().__init__(edge_attr_cls)
        self._topologies: dict[Key, Topology] = {}
        self._num_nodes: dict[str, int] = {}
        # Where samplers on a GPU keep the topology, unless they are told.
        self.placement = "mapped"

    def topology(self, edge_type: Any = None) -> Topology:
        """Return the compressed edges of a type; None for a homogeneous graph.

        Raises
        ------
        KeyError
            If no such edges are stored.
        """
        for (stored_type, _), topology in self._topologies.items():
            if stored_type == edge_type:
                return topology
        raise KeyError(f"no edges of type {edge_type!r}; stored: {self.edge_types()}")

    def topologies(self) -> dict[Key, Topology]:
        """Return the compressed edges by edge type and layout, in the order they were put."""
        return dict(self._topologies)

    def put_topology(self, topology: Topology, edge_type: Any = None) -> None:
        """Put edges that are compressed already, without a copy and without a check.

        Parameters
        ----------
        topology : Topology
            Of another store, say.
        edge_type : tuple or None
            None for a homogeneous graph.
        """
        self._topologies[edge_type, topology.layout] = topology

    def put_num_nodes(self, num_nodes: int, node_type: str) -> None:
        """Say how many nodes of a type there are, which matters for types that no edge type names.

        Raises
        ------
        ValueError
            If ``num_nodes`` is less than 0, or ``node_type`` is None.
        """
        if node_type is None or num_nodes < 0:
            raise ValueError(
                f"num_nodes of {node_type!r} is {num_nodes}, expected 0 or more of a node type; a "
                "homogeneous graph's number comes with its edges: EdgeAttr(..., size=...)"
            )
        self._num_nodes[node_type] = int(num_nodes)

    def edge_types(self) -> list[Any]:
        """Return the edge types in the order in which they were first put."""
        return list(dict.fromkeys(edge_type for edge_type, _ in self._topologies))

    def num_nodes(self) -> dict[Any, int]:
        """Return the number of nodes of each type: the largest of what was said of it.

        Types come in the order in which edge types name them, then those of ``put_num_nodes``
        alone. The one type of a homogeneous graph is None.
        """
        sizes: dict[Any, int] = {}
        for (edge_type, _), topology in self._topologies.items():
            ends = (None, None) if edge_type is None else (edge_type[0], edge_type[-1])
            for node_type, size in zip(ends, topology.size, strict=True):
                sizes[node_type] = max(size, sizes.get(node_type, 0))
        for node_type, size in self._num_nodes.items():
            sizes[node_type] = max(size, sizes.get(node_type, 0))
        return sizes

    def _put_edge_index(self, edge_index: tuple[Tensor, Tensor], edge_attr: EdgeAttr) -> bool:
        edge_type = edge_attr.edge_type
        self._topologies[_key(edge_attr)] = Topology.from_layout(
            edge_attr.layout.value,
            edge_index,
            size=edge_attr.size,
            is_sorted=edge_attr.is_sorted,
            is_square=edge_type is None,
        )
        return True

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        topology = self._topologies.get(_key(edge_attr))
        return None if topology is None else topology.as_put()

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return self._topologies.pop(_key(edge_attr), None) is not None

    def get_all_edge_attrs(self) -> list[Any]:
        """Return a fresh attribute, with sizes, for all edges that were put."""
        return [
            self._edge_attr_cls(
                edge_type, layout, topology.perm is None and layout != "csr", topology.size
            )
            for (edge_type, layout), topology in self._topologies.items()
        ]

    def csc(self, edge_types: list[Any] | None = None, store: bool = False) -> Any:
        """Return the edges compressed by destination, as the samplers read them, without a copy.

        Parameters
        ----------
        edge_types : list, optional
            Types to return; all by default.
        store : bool
            Without effect: the compressed edges are what the store holds.

        Returns
        -------
        tuple
            ``(row, colptr, perm)``; three dictionaries by edge type if the graph is heterogeneous.

        Raises
        ------
        ValueError
            If an edge type is not stored.
        """
        stored = self.edge_types()
        missing = [each for each in edge_types or [] if each not in stored]
        if missing:
            raise ValueError(f"edge types {missing} are not stored; stored: {stored}")
        if None in stored:
            topology = self.topology(None)
            return topology.row, topology.colptr, topology.perm
        chosen = {each: self.topology(each) for each in stored if each in (edge_types or stored)}
        return (
            {edge_type: topology.row for edge_type, topology in chosen.items()},
            {edge_type: topology.colptr for edge_type, topology in chosen.items()},
            {edge_type: topology.perm for edge_type, topology in chosen.items()},
        )


def _key(edge_attr: EdgeAttr) -> Key:
    return edge_attr.edge_type, edge_attr.layout.value
