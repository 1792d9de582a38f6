"""1-D partition of the vertices of a graph over ranks, and how evenly it cuts the edges.

Shape legend: ``n`` vertices, ``P`` parts, ``E`` edges. A *position* is where a vertex stands
after the permutation; part ``p`` owns the positions ``offsets[p]`` to ``offsets[p + 1]``.
Assumption: every rank calls with the same arguments, and so holds the same partition.

MG-GCN (Balin, Sancak, Catalyurek 2021, arXiv 2110.08688, section 4) permutes the vertices at
random. Plexus permutes rows and columns apart; ``count_tiles`` takes two partitions, so that both
can be compared before training.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Order = Literal["natural", "random", "dealt"]


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
    degree: Tensor | None = None,
) -> Partition:
    """Cut ``num_nodes`` vertices into ``num_parts`` parts whose sizes differ by one at most.

    Parameters
    ----------
    num_nodes, num_parts : int
        ``num_parts`` need not divide ``num_nodes``.
    order : {"natural", "random", "dealt"}
        As they come; permuted at random; or sorted by falling degree and dealt out like cards,
        there and back, so that every part gets the same share of heavy vertices.
    seed : int
        Seed of the random permutation.
    degree : integer tensor, shape (n,), optional
        Needed by ``"dealt"``. Any device; it is copied to the CPU.

    Raises
    ------
    ValueError
        If there are fewer vertices than parts, the order is unknown, or a degree is missing.
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
    if order == "dealt":
        if degree is None or degree.shape != (num_nodes,):
            came = None if degree is None else tuple(degree.shape)
            raise ValueError(f"degree has shape {came}, expected ({num_nodes},) for order='dealt'")
        return _dealt(degree.cpu(), num_parts)
    raise ValueError(f"order = {order!r}, expected 'natural', 'random' or 'dealt'")


def _even(order: Tensor, num_parts: int) -> Partition:
    num_nodes = order.numel()
    offsets = tuple(part * num_nodes // num_parts for part in range(num_parts + 1))
    return Partition(order=order, offsets=offsets)


def _dealt(degree: Tensor, num_parts: int) -> Partition:
    by_degree = torch.argsort(degree, descending=True, stable=True)
    card = torch.arange(degree.numel())
    seat = card % num_parts
    backwards = (card // num_parts) % 2 == 1
    part = torch.where(backwards, num_parts - 1 - seat, seat)
    order = by_degree[torch.argsort(part, stable=True)]
    sizes = torch.bincount(part, minlength=num_parts)
    offsets = (0, *(int(stop) for stop in sizes.cumsum(0)))
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
