"""The edges of one relation and one hop, and the stages that make them, on the CPU or the GPU.

Shape legend: ``N`` bound of the frontier's size, ``K`` bound of the number of edges. On the CPU
the bounds are exact. On the GPU only the first ``ends[-1]`` slots are in use, which the host
learns at the end of the batch.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pyg_direct.kernels import sample, weighted
from pyg_direct.kernels.dispatch import launch_shape
from pyg_direct.kernels.launch import NO_SPAN
from pyg_direct.sampler.relation import Relation

# Bounds the memory of the lists that a weighted draw keeps, 16 bytes an entry.
MAX_LIST_ENTRIES = 1 << 22
NO_IDS = torch.empty(0, dtype=torch.int64)
NO_WEIGHTS = torch.empty(0, dtype=torch.float64)


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


class CpuStages:
    """Stages on the CPU, on all threads."""

    is_exact = True

    def count(self, edges: HopEdges) -> None:
        """Find each node's neighbourhood, and how many of its edges to draw."""
        num = edges.allocate_nodes()
        relation, frontier, draw = edges.relation, edges.frontier, edges.draw
        arguments = (
            relation.colptr.numpy(), relation.num_frontier_nodes, frontier.node.numpy(),
            frontier.totals.numpy(), frontier.place, draw.fanout, draw.is_replaced,
            edges.start.numpy(), edges.degree.numpy(), num.numpy(),
        )  # fmt: skip
        if relation.time is None or draw.seed_times is None or frontier.tree is None:
            sample.count_neighbors_cpu(*arguments)
        else:
            sample.count_past_neighbors_cpu(
                *arguments, relation.time.numpy(), frontier.tree.numpy(), draw.seed_times.numpy()
            )
        edges.ends = num.cumsum(0)

    def draw(self, edges: HopEdges) -> None:
        """Draw the edges."""
        ends, start, degree = edges.ends.numpy(), edges.start.numpy(), edges.degree.numpy()
        key, stream = int(edges.draw.key), edges.draw.stream
        slots = edges.column.numpy(), edges.offset.numpy()
        if not edges.has_weights:
            sample.draw_neighbors_cpu(
                ends, len(ends), degree, edges.draw.method, key, stream, *slots
            )
            return
        is_replaced = edges.draw.is_replaced
        weight = edges.relation.weight_sum if is_replaced else edges.relation.weight
        function = weighted.draw_by_sums_cpu if is_replaced else weighted.draw_earliest_cpu
        values = (NO_WEIGHTS if weight is None else weight).numpy()
        function(ends, len(ends), start, degree, values, key, stream, *slots)

    def pick(self, edges: HopEdges) -> None:
        """Read the drawn edges."""
        relation, frontier = edges.relation, edges.frontier
        perm = NO_IDS if relation.perm is None else relation.perm
        sample.pick_neighbors_cpu(
            relation.row.numpy(), perm.numpy(), edges.draw.edge_form, edges.start.numpy(),
            edges.degree.numpy(), edges.ends.numpy(), frontier.bound, edges.pick_method,
            edges.offset.numpy(), frontier.totals.numpy(), frontier.place,
            edges.draw.edges_place, edges.column.numpy(), edges.source.numpy(),
            edges.edge.numpy(),
        )  # fmt: skip


class CudaStages:
    """Stages on the GPU, none of which waits for it.

    Parameters
    ----------
    stream : int
        CUDA stream handle.
    """

    is_exact = False

    def __init__(self, stream: int) -> None:
        self.stream = stream

    def count(self, edges: HopEdges) -> None:
        """Find each node's neighbourhood, and how many of its edges to draw."""
        num = edges.allocate_nodes()
        relation, frontier, draw = edges.relation, edges.frontier, edges.draw
        arguments = (
            relation.colptr, relation.num_frontier_nodes, frontier.node, frontier.totals,
            frontier.place, frontier.bound, draw.fanout, draw.is_replaced, edges.start,
            edges.degree, num,
        )  # fmt: skip
        shape = launch_shape(frontier.bound)
        if relation.time is None or draw.seed_times is None or frontier.tree is None:
            sample.count_neighbors(*shape, *arguments, stream=self.stream)
        else:
            sample.count_past_neighbors(
                *shape, *arguments, relation.time, frontier.tree, draw.seed_times,
                stream=self.stream,
            )  # fmt: skip
        edges.ends = num.cumsum(0)

    def draw(self, edges: HopEdges) -> None:
        """Draw the edges."""
        shape, bound = launch_shape(edges.bound), edges.frontier.bound
        key, stream = edges.draw.key, edges.draw.stream
        if not edges.has_weights:
            sample.draw_neighbors(
                *shape, edges.ends, bound, edges.bound, edges.degree, edges.draw.method, key,
                stream, edges.column, edges.offset, stream=self.stream,
            )  # fmt: skip
        elif edges.draw.is_replaced:
            weighted.draw_by_sums(
                *shape, edges.ends, bound, edges.bound, edges.start, edges.degree,
                edges.relation.weight_sum, key, stream, edges.column, edges.offset,
                stream=self.stream,
            )  # fmt: skip
        else:
            self._draw_earliest(edges)

    def _draw_earliest(self, edges: HopEdges) -> None:
        fanout, bound = max(edges.draw.fanout, 1), edges.frontier.bound
        step = min(bound, max(1, MAX_LIST_ENTRIES // (fanout * weighted.NUM_LANES)))
        lists = step * weighted.NUM_LANES
        times = torch.empty(lists * fanout, dtype=torch.float64, device=edges.ends.device)
        items = torch.empty(lists * (fanout + 1), dtype=torch.int64, device=edges.ends.device)
        sizes = items[lists * fanout :]
        for first in range(0, bound, step):
            last = min(first + step, bound)
            weighted.list_earliest(
                *launch_shape((last - first) * weighted.NUM_LANES), edges.ends, first, last,
                edges.start, edges.degree, edges.relation.weight, edges.draw.key,
                edges.draw.stream, fanout, times, items, sizes, stream=self.stream,
            )  # fmt: skip
            weighted.merge_earliest(
                *launch_shape(last - first), edges.ends, first, last, edges.degree, fanout,
                times, items, sizes, edges.column, edges.offset, stream=self.stream,
            )  # fmt: skip

    def pick(self, edges: HopEdges) -> None:
        """Read the drawn edges."""
        relation, frontier = edges.relation, edges.frontier
        launch = sample.pick_neighbors[relation.row.element_size()]
        perm = NO_SPAN if relation.perm is None else relation.perm
        launch(
            *launch_shape(edges.bound), relation.row, perm, edges.draw.edge_form, edges.start,
            edges.degree, edges.ends, frontier.bound, edges.bound, edges.pick_method,
            edges.offset, frontier.totals, frontier.place, edges.draw.edges_place,
            edges.column, edges.source, edges.edge, stream=self.stream,
        )  # fmt: skip


Stages = CpuStages | CudaStages
