"""1-D partition of the vertices of a graph over ranks, and how evenly it cuts the edges.

Shape legend: ``n`` vertices, ``P`` parts, ``E`` edges. A *position* is where a vertex stands
after the permutation; part ``p`` owns the positions ``offsets[p]`` to ``offsets[p + 1]``.
Assumption: every rank calls with the same arguments, and so holds the same partition.

MG-GCN (Balin, Sancak, Catalyurek 2021, arXiv 2110.08688, section 4) permutes the vertices at
random. Plexus permutes rows and columns apart, for its 3-D tiles; in one dimension a rank's work is
a whole block row, which a permutation of the columns leaves as it is, so one permutation serves
both here. ``count_tiles`` takes two partitions, to compare.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Order = Literal["natural", "random"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Which part owns which vertex.

    Attributes
    ----------
    order : int64 CPU tensor, shape (n,)
        Vertex at each position.
    offsets : tuple of int, length P + 1
        First position of each part, then ``n``.
    """

    order: Tensor
    offsets: tuple[int, ...]

    @property
    def num_nodes(self) -> int:
        """Number of vertices."""
        return self.offsets[-1]

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of vertices of each part."""
        pairs = zip(self.offsets, self.offsets[1:], strict=False)
        return tuple(stop - start for start, stop in pairs)

    def nodes(self, part: int) -> Tensor:
        """Return the vertices of ``part`` in the order of their positions, int64, a view."""
        return self.order[self.offsets[part] : self.offsets[part + 1]]

    def positions(self) -> Tensor:
        """Return the position of every vertex: int64 CPU tensor, shape (n,), a new tensor."""
        positions = torch.empty_like(self.order)
        positions[self.order] = torch.arange(self.num_nodes)
        return positions


def partition_nodes(
    num_nodes: int,
    num_parts: int,
    *,
    order: Order = "random",
    seed: int = 42,
) -> Partition:
    """Cut ``num_nodes`` vertices into ``num_parts`` parts whose sizes differ by one at most.

    Parameters
    ----------
    num_nodes, num_parts : int
        ``num_parts`` need not divide ``num_nodes``.
    order : {"natural", "random"}
        As they come, or permuted at random.
    seed : int
        Seed of the random permutation.

    Raises
    ------
    ValueError
        If there are fewer vertices than parts, or the order is unknown.
    """
    if not 1 <= num_parts <= num_nodes:
        raise ValueError(
            f"num_parts = {num_parts}, expected 1 to num_nodes = {num_nodes}: start fewer ranks"
        )
    if order == "natural":
        return _even(torch.arange(num_nodes), num_parts)
    if order == "random":
        generator = torch.Generator().manual_seed(seed)
        return _even(torch.randperm(num_nodes, generator=generator), num_parts)
    raise ValueError(f"order = {order!r}, expected 'natural' or 'random'")


def _even(order: Tensor, num_parts: int) -> Partition:
    num_nodes = order.numel()
    offsets = tuple(part * num_nodes // num_parts for part in range(num_parts + 1))
    return Partition(order=order, offsets=offsets)


def count_tiles(edge_index: Tensor, rows: Partition, columns: Partition | None = None) -> Tensor:
    """Count the edges in each of the P x P tiles of the adjacency matrix.

    Parameters
    ----------
    edge_index : int64 tensor, shape (2, E)
        Sources, then targets. A target is a row, a source a column.
    rows : Partition
        Partition of the targets.
    columns : Partition, optional
        Partition of the sources; ``rows`` where it is not given.

    Returns
    -------
    Tensor
        int64, shape (P, P), on the CPU.
    """
    columns = rows if columns is None else columns
    source, target = edge_index.cpu()
    row_part = _owner(rows)[target]
    column_part = _owner(columns)[source]
    flat = row_part * columns.num_parts + column_part
    counts = torch.bincount(flat, minlength=rows.num_parts * columns.num_parts)
    return counts.view(rows.num_parts, columns.num_parts)


def _owner(partition: Partition) -> Tensor:
    owner = torch.empty(partition.num_nodes, dtype=torch.int64)
    parts = torch.arange(partition.num_parts)
    owner[partition.order] = parts.repeat_interleave(torch.tensor(partition.sizes))
    return owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Maximum over mean of the nonzeros: 1.0 is even.

    Attributes
    ----------
    rows : float
        Over the block rows, one a rank: the work of an epoch.
    tiles : float
        Over all tiles: the work of a stage, where the slowest rank holds up the rest.
    """

    rows: float
    tiles: float


def balance_of(counts: Tensor) -> Balance:
    """Return the balance of a (P, P) matrix of nonzeros."""
    return Balance(rows=_max_over_mean(counts.sum(dim=1)), tiles=_max_over_mean(counts))


def _max_over_mean(counts: Tensor) -> float:
    mean = counts.double().mean().item()
    return 1.0 if mean == 0 else counts.max().item() / mean
