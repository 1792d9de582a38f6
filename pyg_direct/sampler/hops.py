"""Sample hop by hop: the same steps on the CPU and on the GPU.

A hop draws the edges of every relation, gives the nodes it reached their local ids, and makes them
the next frontier. On the GPU the host launches all hops with bounds for sizes and waits once, at
the end; it waits in between only where a bound would take too much memory (fan-out -1 has none).

Shape legend: ``H`` hops, ``T`` node types, ``R`` relations. ``totals`` holds, for each node type,
the first local id of each of its levels (``H + 2`` entries), then the number of edges of each
relation and hop (``R * H`` entries).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pyg_direct.kernels.copies import Copies
from pyg_direct.sampler.edges import Draw, HopEdges, Level
from pyg_direct.sampler.layout import BatchLayout
from pyg_direct.sampler.nodes import BatchNodes
from pyg_direct.sampler.relation import EdgeType, NodeType, Relation
from pyg_direct.sampler.stages import Stages

# 2**22 edges take 250 MiB while a batch is made.
MAX_BOUND_EDGES = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Nodes and edges of one batch, by type, on the sampler's device, in PyG's meaning.

    ``row`` and ``col`` point from neighbour to frontier, whichever way the sampler walks; they and
    ``edge`` are rows of one tensor, and on a GPU all tensors are parts of one. ``carried`` is what
    came along with the seeds.
    """

    node: dict[NodeType, Tensor]
    row: dict[EdgeType, Tensor]
    col: dict[EdgeType, Tensor]
    edge: dict[EdgeType, Tensor] | None
    batch: dict[NodeType, Tensor] | None
    num_nodes: dict[NodeType, list[int]]
    num_edges: dict[EdgeType, list[int]]
    carried: Tensor | None


class HopSampler:
    """Makes one batch.

    Parameters
    ----------
    relations : list of Relation
        On the sampler's device.
    nodes : dict
        A ``BatchNodes`` for each node type.
    stages : CpuStages or CudaStages
        Where the work is done.
    fanouts : dict
        For each edge type, one fan-out a hop.
    draw : Draw
        What is the same for all hops.
    """

    def __init__(
        self,
        relations: list[Relation],
        nodes: dict[NodeType, BatchNodes],
        *,
        stages: Stages,
        fanouts: dict[EdgeType, list[int]],
        draw: Draw,
    ) -> None:
        self._relations, self._nodes, self._stages = relations, nodes, stages
        self._fanouts, self.draw = fanouts, draw
        self._num_hops = max((len(fanout) for fanout in fanouts.values()), default=0)
        # The level that each hop starts from, by node type; None where the last one reached
        # nothing.
        self._frontiers: list[dict[NodeType, Level | None]] = []
        self._edges: dict[EdgeType, list[HopEdges | None]] = {
            relation.edge_type: [] for relation in relations
        }
        self.has_waited = False

    def launch(self, layout: BatchLayout, words: Tensor) -> None:
        """Start all hops; on a GPU, ``has_waited`` tells afterwards whether the host had to wait.

        Parameters
        ----------
        layout : BatchLayout
            Of ``words``.
        words : int64 tensor
            The packed batch, on the sampler's device. Its totals are overwritten.
        """
        self._start(layout, words)
        for hop in range(self._num_hops):
            hop_edges = self._count(hop)
            self._fix_bounds(hop_edges)
            self._pick(hop_edges)
            self._close(hop_edges)
        self._nodes_joined = {
            kind: self._stages.join_levels(nodes.levels) for kind, nodes in self._nodes.items()
        }
        # Of an edge: source, column, and its id if it is wanted.
        self._num_arrays = 3 if self.draw.edge_form else 2
        self._edges_joined = {
            kind: self._stages.join_edges(
                hops, self._num_arrays, self._totals, first=self._edges_start + i * self._num_hops
            )
            for i, (kind, hops) in enumerate(self._edges.items())
        }
        # Where in ``totals`` each hop's numbers are; -1 where it had nothing to do.
        levels = {kind: [each.get(kind) for each in self._frontiers] for kind in self._nodes}
        self._node_places = {
            kind: [-1 if each is None else each.place for each in reached]
            for kind, reached in levels.items()
        }
        self._edge_places = {
            kind: [-1 if each is None else each.draw.edges_place for each in hops]
            for kind, hops in self._edges.items()
        }

    def _start(self, layout: BatchLayout, words: Tensor) -> None:
        key, self._totals, seeds, carried = layout.unpack(words)
        self._carried = None if layout.num_carried is None else carried.view(1, -1)
        self.draw, self._edges_start = replace(self.draw, key=key), layout.edges_start
        places = layout.places()
        for kind, nodes in self._nodes.items():
            nodes.start(seeds[kind], self._totals, places[kind])
        self._frontiers.append(
            {kind: _if_any(nodes.levels[0]) for kind, nodes in self._nodes.items()}
        )

    def _count(self, hop: int) -> list[HopEdges]:
        hop_edges = []
        for index, relation in enumerate(self._relations):
            frontier = self._frontiers[hop].get(relation.frontier_type)
            fanout = self._fanouts[relation.edge_type][hop]
            edges: HopEdges | None = None
            if frontier is not None and fanout != 0 and relation.num_edges > 0:
                place = index * self._num_hops + hop
                draw = self.draw.for_relation(
                    relation, fanout=fanout, stream=place, edges_place=self._edges_start + place
                )
                edges = HopEdges(relation=relation, frontier=frontier, draw=draw)
                self._stages.count(edges)
                hop_edges.append(edges)
            self._edges[relation.edge_type].append(edges)
        return hop_edges

    def _fix_bounds(self, hop_edges: list[HopEdges]) -> None:
        """Allocate for the largest number of edges, or ask the GPU for the actual one."""
        bounds = [edges.frontier.bound * edges.draw.fanout for edges in hop_edges]
        is_bounded = all(bound >= 0 for bound in bounds) and sum(bounds) <= MAX_BOUND_EDGES
        if hop_edges and (self._stages.is_exact or not is_bounded):
            self.has_waited = True
            last = [edges.ends[-1:] for edges in hop_edges]
            bounds = torch.cat(last).tolist()
        for each, bound in zip(hop_edges, bounds, strict=True):
            each.allocate_edges(bound)

    def _pick(self, hop_edges: list[HopEdges]) -> None:
        for edges in hop_edges:
            if edges.bound > 0:
                self._stages.draw(edges)
                self._stages.pick(edges)
                self._nodes[edges.relation.neighbor_type].mark(edges)

    def _close(self, hop_edges: list[HopEdges]) -> None:
        reached = {edges.relation.neighbor_type for edges in hop_edges if edges.bound > 0}
        frontier: dict[NodeType, Level | None] = {}
        for kind, nodes in self._nodes.items():
            if kind in reached:
                nodes.close_level()
                frontier[kind] = _if_any(nodes.levels[-1])
        self._frontiers.append(frontier)
        for edges in hop_edges:
            if edges.bound > 0:
                self._nodes[edges.relation.neighbor_type].relabel(edges)

    def reached(self) -> dict[NodeType, tuple[Tensor, Tensor]]:
        """Return the nodes of each type and how many there are, which the host need not know.

        Returns
        -------
        dict of (int64 tensor, int64 tensor)
            Ids in the order of the batch, as long as there may be nodes; and one number, how many
            there are. Both on the sampler's device, filled by what ``launch`` started.
        """
        places = {kind: nodes.levels[-1].place + 1 for kind, nodes in self._nodes.items()}
        return {
            kind: (joined[0], self._totals[places[kind] : places[kind] + 1])
            for kind, joined in self._nodes_joined.items()
        }

    def collect(self, totals: list[int] | None = None, copies: Copies | None = None) -> Sampled:
        """Return the batch, cut to size, in memory of its own.

        Parameters
        ----------
        totals : list of int, optional
            If the host knows them; otherwise it waits for them.
        copies : Copies, optional
            Get the copies on a GPU, which the caller launches then.
        """
        totals = self._totals.tolist() if totals is None else totals
        num_nodes = {
            kind: [0 if each < 0 else totals[each + 1] - totals[each] for each in places]
            for kind, places in self._node_places.items()
        }
        num_edges = {
            kind: [0 if each < 0 else totals[each] for each in places]
            for kind, places in self._edge_places.items()
        }
        arrays = [*self._nodes_joined.values(), *self._edges_joined.values()]
        sizes = [sum(each) for each in (*num_nodes.values(), *num_edges.values())]
        if self._carried is not None:
            arrays.append(self._carried)
            sizes.append(self._carried.shape[1])
        rows = self._stages.cut(arrays, sizes, copies)
        node, batch, row, col = {}, {}, {}, {}
        edge: dict[EdgeType, Tensor] = {}
        for kind, joined in self._nodes_joined.items():
            node[kind] = next(rows)
            if joined.shape[0] > 1:
                batch[kind] = next(rows)
        for edge_type in num_edges:
            row[edge_type], col[edge_type] = next(rows), next(rows)
            if self._num_arrays > 2:
                edge[edge_type] = next(rows)
        return Sampled(
            node=node, batch=batch or None, row=row, col=col,
            edge=edge if self._num_arrays > 2 else None, num_nodes=num_nodes, num_edges=num_edges,
            carried=None if self._carried is None else next(rows),
        )  # fmt: skip


def _if_any(level: Level) -> Level | None:
    return level if level.bound > 0 else None
