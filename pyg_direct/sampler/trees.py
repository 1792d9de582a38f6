"""Nodes of one type where every seed has a tree of its own, on the CPU or the GPU.

A node of a tree is one number, ``tree * num_nodes + node``. Known and new ones are sorted together;
within a level, nodes come in ascending order of (tree, node).

Shape legend: ``P`` nodes known, ``K`` edges of a hop, both bounds; what is beyond the actual
number is ``NOWHERE``, which sorts last.
"""

import torch
from torch import Tensor

from pyg_direct.kernels.relabel import UNSEEN
from pyg_direct.sampler.edges import HopEdges, Level
from pyg_direct.sampler.layout import Seeds

NOWHERE = torch.iinfo(torch.int64).max


class TreeNodes:
    """Nodes of one type in disjoint trees.

    Parameters
    ----------
    num_nodes : int
        Nodes of the type.
    first_tree : int
        Number of the first seed's tree.
    device : torch.device
        Where the batch is made.
    is_exact : bool
        Whether levels are cut to their actual size, which waits for a GPU.
    """

    def __init__(
        self, num_nodes: int, first_tree: int, *, device: torch.device, is_exact: bool
    ) -> None:
        self.levels: list[Level] = []
        self._num_nodes, self._first_tree = max(num_nodes, 1), first_tree
        self._keys = torch.empty(0, dtype=torch.int64, device=device)
        self._locals = self._keys
        self._marked: list[tuple[HopEdges, Tensor]] = []
        self._relabeled: dict[int, Tensor] = {}
        self._is_exact = is_exact

    def start(self, seeds: Seeds, totals: Tensor, place: int) -> None:
        """Make the seeds the first level, each in a tree of its own."""
        self._totals, self._place = totals, place
        node = seeds.node
        local = torch.arange(node.numel(), device=node.device)
        tree = local + self._first_tree
        self.levels = [Level(node=node, totals=totals, place=place, tree=tree)]
        self._keys, self._locals = tree * self._num_nodes + node, local

    def mark(self, edges: HopEdges) -> None:
        """Remember the sources of a hop's edges, each in the tree of its destination."""
        self._marked.append((edges, self._keys_of(edges)))

    def _keys_of(self, edges: HopEdges) -> Tensor:
        slots = torch.arange(edges.bound, device=edges.source.device)
        is_used = slots < edges.ends[-1:]
        frontier = edges.frontier
        position = torch.where(is_used, edges.column - frontier.totals[frontier.place], 0)
        if frontier.tree is None:
            raise ValueError("the frontier has no trees, expected Level.tree to be set")
        keys = frontier.tree[position] * self._num_nodes + edges.source
        return torch.where(is_used, keys, NOWHERE)

    def close_level(self) -> None:
        """Make the marked nodes that no level has yet the next level."""
        place, num_known = self._place + len(self.levels), self._keys.numel()
        keys, order = torch.cat([self._keys, *(keys for _, keys in self._marked)]).sort(stable=True)
        is_head = torch.ones_like(keys, dtype=torch.bool)
        torch.ne(keys[1:], keys[:-1], out=is_head[1:])
        # A stable sort puts a node's known copy before its new ones.
        is_new = is_head & (order >= num_known) & (keys != NOWHERE)
        rank = is_new.cumsum(0)
        base = self._totals[place]
        self._totals[place + 1] = base + rank[-1]
        self._relabel_marked(keys, order, is_head, base + rank - 1)
        # All that is not new lands in the slot beyond the end, which is cut off.
        bound = keys.numel() - num_known
        slot = torch.where(is_new, rank - 1, bound)
        new_keys = keys.new_full((bound + 1,), NOWHERE).scatter_(0, slot, keys)[:bound]
        self._add_level(new_keys, place)

    def _relabel_marked(
        self, keys: Tensor, order: Tensor, is_head: Tensor, new_local: Tensor
    ) -> None:
        """Find the local ids of all that was marked, from the first of each run of equal keys."""
        num_known = self._keys.numel()
        local = new_local
        if num_known > 0:
            known = self._locals[order.clamp(max=num_known - 1)]
            local = torch.where(order < num_known, known, new_local)
        positions = torch.arange(keys.numel(), device=keys.device)
        head = torch.where(is_head, positions, 0).cummax(0).values
        found = torch.where(keys == NOWHERE, UNSEEN, local[head])
        by_slot = torch.empty_like(found).scatter_(0, order, found)[num_known:]
        sizes = [marked.numel() for _, marked in self._marked]
        for (edges, _), rows in zip(self._marked, by_slot.split(sizes), strict=True):
            self._relabeled[id(edges)] = rows
        self._marked = []

    def _add_level(self, new_keys: Tensor, place: int) -> None:
        if self._is_exact:
            new_keys = new_keys[: int(self._totals[place + 1] - self._totals[place])]
        is_used = new_keys != NOWHERE
        node = torch.where(is_used, new_keys % self._num_nodes, 0)
        tree = torch.where(is_used, new_keys // self._num_nodes, 0)
        slots = torch.arange(node.numel(), device=node.device)
        self._keys = torch.cat([self._keys, new_keys])
        self._locals = torch.cat([self._locals, slots + self._totals[place]])
        self.levels.append(Level(node=node, totals=self._totals, place=place, tree=tree))

    def relabel(self, edges: HopEdges) -> None:
        """Replace ``edges.source`` by local ids, or ``UNSEEN``."""
        rows = self._relabeled.pop(id(edges), None)
        edges.source = self._look_up(edges) if rows is None else rows

    def _look_up(self, edges: HopEdges) -> Tensor:
        """Find the local ids of nodes that were not marked."""
        if self._keys.numel() == 0:
            return torch.full_like(edges.source, UNSEEN)
        keys, order = self._keys.sort(stable=True)
        wanted = self._keys_of(edges)
        at = torch.searchsorted(keys, wanted).clamp_(max=keys.numel() - 1)
        is_found = (keys[at] == wanted) & (wanted != NOWHERE)
        return torch.where(is_found, self._locals[order[at]], UNSEEN)
