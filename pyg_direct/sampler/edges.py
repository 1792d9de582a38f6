"""The edges of one relation and one hop, the frontier they start from, and how they are drawn.

Shape legend: ``N`` bound of the frontier's size, ``K`` bound of the number of edges. On the CPU
the bounds are exact. On the GPU only the first ``ends[-1]`` slots are in use, which the host
learns at the end of the batch.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pyg_direct.kernels import sample
from pyg_direct.sampler.relation import Relation

NO_IDS = torch.empty(0, dtype=torch.int64)


@dataclass(slots=True, kw_only=True)
class Level:
    """Nodes of one type that were reached in one hop; the seeds are the first level.

    Parameters
    ----------
    node : int64 tensor, shape (N,)
        Node ids, on the sampler's device.
    totals : int64 tensor
        ``totals[place]`` is the local id of the first node, ``totals[place + 1]`` of the one after
        the last.
    tree : int64 tensor, shape (N,), or None
        The seed whose tree each node is in, where trees are disjoint.
    """

    node: Tensor
    totals: Tensor
    place: int
    tree: Tensor | None = None

    @property
    def bound(self) -> int:
        """Largest number of nodes the level can have."""
        return self.node.numel()


@dataclass(slots=True, kw_only=True)
class Draw:
    """How edges are drawn.

    Parameters
    ----------
    fanout : int
        Edges a node; all of them if negative.
    method : int
        ``DISTINCT``, ``REPLACED`` or ``LAST``.
    stream : int
        Of the random numbers, as in ``pyg_direct.kernels.random``.
    key : int64 tensor, shape (1,)
        Of the random numbers, on the sampler's device.
    edge_form : int
        ``EDGE_NONE``, ``EDGE_POSITION`` or ``EDGE_PERMUTED``; see ``for_relation``.
    edges_place : int
        Where in ``totals`` the number of edges goes.
    seed_times : int64 tensor or None
        Time of each tree's seed, on the sampler's device; None for no bound on time.
    """

    fanout: int
    method: int
    edge_form: int
    stream: int = 0
    edges_place: int = 0
    key: Tensor = NO_IDS
    seed_times: Tensor | None = None

    @property
    def is_replaced(self) -> int:
        """1 if a neighbour may be drawn twice, else 0."""
        return int(self.method == sample.REPLACED and self.fanout >= 0)

    def for_relation(
        self, relation: Relation, *, fanout: int, stream: int, edges_place: int
    ) -> "Draw":
        """Return the draw of one hop, with the form of ids that the relation's edges have."""
        form = self.edge_form
        if form != sample.EDGE_NONE:
            form = sample.EDGE_POSITION if relation.perm is None else sample.EDGE_PERMUTED
        return replace(self, edge_form=form, fanout=fanout, stream=stream, edges_place=edges_place)


@dataclass(slots=True, kw_only=True)
class HopEdges:
    """Edges of one relation and one hop, filled stage by stage."""

    relation: Relation
    frontier: Level
    draw: Draw
    start: Tensor = field(default=NO_IDS)
    degree: Tensor = field(default=NO_IDS)
    ends: Tensor = field(default=NO_IDS)
    column: Tensor = field(default=NO_IDS)
    offset: Tensor = field(default=NO_IDS)
    source: Tensor = field(default=NO_IDS)
    edge: Tensor = field(default=NO_IDS)

    @property
    def bound(self) -> int:
        """Largest number of edges."""
        return self.source.numel()

    @property
    def has_weights(self) -> bool:
        """Whether weights decide which edges are drawn."""
        return self.relation.weight is not None and self.draw.fanout >= 0

    @property
    def pick_method(self) -> int:
        """What ``pick_neighbors`` is to make of the offsets."""
        return sample.GIVEN if self.has_weights else self.draw.method

    def allocate_nodes(self) -> Tensor:
        """Make room for a count a node, on the frontier's device, and return it."""
        num_nodes = self.frontier.bound
        rows = torch.empty((3, num_nodes), dtype=torch.int64, device=self.frontier.node.device)
        self.start, self.degree, num = rows.unbind()
        return num

    def allocate_edges(self, bound: int) -> None:
        """Make room for ``bound`` edges."""
        rows = torch.empty((4, bound), dtype=torch.int64, device=self.frontier.node.device)
        self.column, self.offset, self.source, self.edge = rows.unbind()
