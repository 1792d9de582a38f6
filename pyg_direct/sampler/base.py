"""What a sampler tells of its graph."""

from torch_geometric.sampler import BaseSampler

from pyg_direct.sampler.graph import SamplerGraph
from pyg_direct.sampler.relation import EdgeType, NodeType


class GraphSampler(BaseSampler):  # type: ignore[misc]  # PyG is not typed
    """A sampler of ours; subclasses set the graph."""

    _graph: SamplerGraph

    @property
    def node_types(self) -> list[NodeType]:
        """All node types; ``[None]`` for a homogeneous graph."""
        return list(self._graph.num_nodes)

    @property
    def edge_types(self) -> list[EdgeType]:
        """All edge types; ``[None]`` for a homogeneous graph."""
        return [relation.edge_type for relation in self._graph.relations]

    @property
    def num_nodes(self) -> int | dict[NodeType, int]:
        """Number of nodes, by type in a heterogeneous graph."""
        return dict(self._graph.num_nodes) if self.is_hetero else self._graph.num_nodes[None]

    @property
    def is_hetero(self) -> bool:
        """Whether the graph has types."""
        return self._graph.is_hetero

    @property
    def is_temporal(self) -> bool:
        """Whether nodes or edges have a time."""
        return self._graph.is_temporal
