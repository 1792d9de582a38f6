"""The nodes of one type in a batch, level by level, and their local ids.

Each class has the same four steps: ``start`` with the seeds, ``mark`` the neighbours that a hop has
reached, ``close_level`` to make of them the next frontier, ``relabel`` the edges' ends.

Shape legend: ``N`` nodes of the type, ``W = ceil(N / 32)`` words of a table.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pyg_direct.kernels import relabel
from pyg_direct.kernels.dispatch import launch_shape
from pyg_direct.sampler.edges import HopEdges, Level
from pyg_direct.sampler.layout import Seeds

MARK_RANGES = 256


class BatchNodes(Protocol):
    """What the hops ask of the nodes of one type."""

    levels: list[Level]

    def start(self, seeds: Seeds, totals: Tensor, place: int) -> None:
        """Make the seeds the first level.

        Parameters
        ----------
        seeds : Seeds
            On the sampler's device, ids within the type, repeats allowed.
        totals : int64 tensor
            On the sampler's device; the type's entries from ``place`` on, already with the seeds.
        """
        ...

    def mark(self, edges: HopEdges) -> None:
        """Remember the sources of a hop's edges."""
        ...

    def close_level(self) -> None:
        """Make the marked nodes that no level has yet the next level."""
        ...

    def relabel(self, edges: HopEdges) -> None:
        """Replace ``edges.source`` by local ids, or ``UNSEEN``, in place."""
        ...


class CpuMap:
    """Local ids of all nodes of one type, kept from batch to batch because clearing it takes long.

    Parameters
    ----------
    num_nodes : int
        ``N``. Takes four bytes a node.
    """

    def __init__(self, num_nodes: int) -> None:
        self.local = np.full(num_nodes, relabel.UNSEEN, np.int32)
        self.flags = np.zeros(-(-num_nodes // relabel.NODES_PER_FLAG), np.uint8)


class CpuNodes:
    """Nodes of one type, on the CPU.

    Parameters
    ----------
    ids : CpuMap
        Without any node; ``close`` leaves it so.
    """

    def __init__(self, ids: CpuMap) -> None:
        self.levels: list[Level] = []
        self._ids = ids

    def start(self, seeds: Seeds, totals: Tensor, place: int) -> None:
        # docstring inherited
        self._totals, self._place = totals, place
        self.levels = [Level(node=seeds.node, totals=totals, place=place)]
        relabel.place_seeds_cpu(seeds.node.numpy(), self._ids.local)

    def mark(self, edges: HopEdges) -> None:
        # docstring inherited
        relabel.mark_nodes_cpu(edges.source.numpy(), self._ids.local, self._ids.flags)

    def close_level(self) -> None:
        # docstring inherited
        place = self._place + len(self.levels)
        base = int(self._totals[place])
        num_marks = np.zeros(MARK_RANGES, np.int64)
        relabel.count_marks_cpu(self._ids.local, self._ids.flags, num_marks)
        mark_ends = num_marks.cumsum()
        node = torch.empty(int(mark_ends[-1]), dtype=torch.int64)
        relabel.rank_marks_cpu(self._ids.local, self._ids.flags, mark_ends, base, node.numpy())
        self._totals[place + 1] = base + node.numel()
        self.levels.append(Level(node=node, totals=self._totals, place=place))

    def relabel(self, edges: HopEdges) -> None:
        # docstring inherited
        relabel.relabel_nodes_cpu(edges.source.numpy(), self._ids.local)

    def close(self) -> CpuMap:
        """Return the map, without any node."""
        for level in self.levels:
            relabel.forget_nodes_cpu(level.node.numpy(), self._ids.local)
        return self._ids


class CudaNodes:
    """Nodes of one type, on the GPU; no step waits for it.

    Parameters
    ----------
    num_nodes : int
        ``N``. Each level takes two bits a node while the batch is made.
    max_levels : int
        Number of hops, plus one.
    device : torch.device
        A CUDA device.
    stream : int
        CUDA stream handle.
    """

    def __init__(
        self, num_nodes: int, max_levels: int, *, device: torch.device, stream: int
    ) -> None:
        self.levels: list[Level] = []
        self._num_nodes, self._stream, self._device = num_nodes, stream, device
        self._num_words = -(-num_nodes // relabel.NODES_PER_WORD)
        self._num_chunks = -(-self._num_words // relabel.WORDS_PER_CHUNK)
        self._num_marked = 0
        self._tables = torch.zeros(max_levels * self._num_words, dtype=torch.int64, device=device)

    def start(self, seeds: Seeds, totals: Tensor, place: int) -> None:
        # docstring inherited
        self._totals, self._place, self._first_seed = totals, place, seeds.first
        self.levels = [Level(node=seeds.node, totals=totals, place=place)]
        num_seeds = seeds.node.numel()
        if num_seeds > 0:
            relabel.place_seeds(
                *launch_shape(num_seeds), seeds.unique, num_seeds, self._tables,
                stream=self._stream,
            )  # fmt: skip

    def mark(self, edges: HopEdges) -> None:
        # docstring inherited
        self._num_marked += edges.bound
        relabel.mark_nodes(
            *launch_shape(edges.bound), edges.source, edges.ends, edges.frontier.bound,
            edges.bound, self._tables, self._num_words, len(self.levels), stream=self._stream,
        )  # fmt: skip

    def close_level(self) -> None:
        # docstring inherited
        level = len(self.levels)
        num_marks = torch.empty(self._num_chunks, dtype=torch.int64, device=self._device)
        relabel.count_marks(
            *launch_shape(self._num_chunks), self._tables, self._num_words, level,
            self._num_chunks, num_marks, stream=self._stream,
        )  # fmt: skip
        torch.cumsum(num_marks, 0, out=num_marks)
        relabel.rank_marks(
            *launch_shape(self._num_words), self._tables, self._num_words, level, num_marks,
            self._num_chunks, self._totals, self._place, stream=self._stream,
        )  # fmt: skip
        bound = min(self._num_marked, self._num_nodes)
        node = torch.empty(bound, dtype=torch.int64, device=self._device)
        self._num_marked = 0
        self.levels.append(Level(node=node, totals=self._totals, place=self._place + level))

    def relabel(self, edges: HopEdges) -> None:
        # docstring inherited
        relabel.relabel_nodes(
            *launch_shape(edges.bound), edges.source, edges.ends, edges.frontier.bound,
            edges.bound, self._tables, self._num_words, len(self.levels) - 1, self._totals,
            self._place, self._first_seed, self.levels[-1].node, stream=self._stream,
        )  # fmt: skip
