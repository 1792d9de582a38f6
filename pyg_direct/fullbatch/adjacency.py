"""The normalized adjacency matrix of one rank, and its transpose where that is another matrix.

Shape legend: ``m`` rows of this rank, ``n`` vertices, ``P`` ranks, ``E`` edges into this rank.
Row ``r`` of A holds the edges *into* vertex ``r``, as PyG's default flow has it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pyg_direct.fullbatch.counter_random import mix64_in_place
from pyg_direct.fullbatch.partition import Partition
from pyg_direct.fullbatch.processes import Ranks
from pyg_direct.fullbatch.tiles import Tile, cut_tiles, map_values, transpose_edges

Normalization = Literal["symmetric", "mean"]
FINGERPRINT_EDGES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEdges:
    """The edges into the vertices of one rank.

    Attributes
    ----------
    rowptr : int64 tensor, shape (m + 1,)
    source : int64 tensor, shape (E,)
        Vertex (not position) that each edge comes from.
    weight : float tensor, shape (E,), or None
        ``None`` weighs every edge 1.
    """

    rowptr: Tensor
    source: Tensor
    weight: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjacency:
    """Block row of A and of A transposed.

    Attributes
    ----------
    tiles, transposed : tuple of Tile, length P
        The same object where A is symmetric; the same indices with other values where only the
        graph is.
    """

    tiles: tuple[Tile, ...]
    transposed: tuple[Tile, ...]

    @property
    def num_nonzeros(self) -> tuple[int, ...]:
        """Nonzeros of each tile."""
        return tuple(tile.num_nonzeros for tile in self.tiles)

    @property
    def num_bytes(self) -> int:
        """Bytes of all tiles, counting shared arrays once."""
        storages = {}
        for tile in (*self.tiles, *self.transposed):
            for piece in tile.pieces:
                for part in _arrays(piece.matrix):
                    storages[part.data_ptr()] = part.numel() * part.element_size()
        return sum(storages.values())


def _arrays(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return matrix.crow_indices(), matrix.col_indices(), matrix.values()


def build_adjacency(
    edges: LocalEdges,
    partition: Partition,
    ranks: Ranks,
    *,
    normalization: Normalization,
    self_loops: bool,
    dtype: torch.dtype = torch.float32,
) -> Adjacency:
    """Normalize the edges of this rank and cut them into tiles. Every rank must call.

    Parameters
    ----------
    edges : LocalEdges
        On the device of ``ranks``.
    partition : Partition
        The rows of ``edges`` are ``partition.nodes(ranks.rank)``.
    ranks : Ranks
    normalization : {"symmetric", "mean"}
        D^-1/2 A D^-1/2 as PyG's ``gcn_norm``, or D^-1 A; D sums the rows of A.
    self_loops : bool
        Give every vertex one loop: of weight 1, or of its own loop's weight.
    dtype : torch.dtype
        Of the values. They are computed in float32 or wider first.

    Returns
    -------
    Adjacency
        New tensors on the device of ``edges``.

    Raises
    ------
    ValueError
        If the normalization is unknown.
    """
    if normalization not in ("symmetric", "mean"):
        raise ValueError(f"normalization = {normalization!r}, expected 'symmetric' or 'mean'")
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    rowptr, position, weight = _positioned(edges, partition, wide)
    if self_loops:
        rowptr, position, weight = _with_self_loops(
            rowptr, position, weight, partition.offsets[ranks.rank]
        )
    symmetric = _is_symmetric(rowptr, position, weight, partition.offsets[ranks.rank], ranks)
    degree = _all_degrees(rowptr, weight, partition, ranks)
    values = _normalized(rowptr, position, weight, degree, normalization, partition, ranks)
    del weight
    tiles = cut_tiles(rowptr, position, values.to(dtype), partition.offsets)
    del rowptr, position, values
    if not symmetric:
        return Adjacency(tiles=tiles, transposed=_exchanged(tiles, ranks, dtype))
    if normalization == "symmetric":
        return Adjacency(tiles=tiles, transposed=tiles)
    transposed = _mean_transposed(tiles, degree, partition, ranks.rank, dtype)
    return Adjacency(tiles=tiles, transposed=transposed)


def _positioned(
    edges: LocalEdges, partition: Partition, wide: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    position = partition.positions().to(edges.source.device)[edges.source]
    if edges.weight is None:
        weight = torch.ones(position.numel(), dtype=wide, device=position.device)
    else:
        weight = edges.weight.to(wide)
    return edges.rowptr, position, weight


def _rows_of(rowptr: Tensor) -> Tensor:
    rows = torch.arange(rowptr.numel() - 1, device=rowptr.device)
    return rows.repeat_interleave(rowptr.diff())


def _with_self_loops(
    rowptr: Tensor, position: Tensor, weight: Tensor, first: int
) -> tuple[Tensor, Tensor, Tensor]:
    num_rows = rowptr.numel() - 1
    row = _rows_of(rowptr)
    is_loop = position == row + first
    loop_weight = weight.new_ones(num_rows)
    # PyG's add_remaining_self_loops keeps the weight of a loop that is there already.
    loop_weight[row[is_loop]] = weight[is_loop]
    kept = ~is_loop
    row, position, weight = row[kept], position[kept], weight[kept]
    new_rowptr = torch.zeros_like(rowptr)
    torch.cumsum(torch.bincount(row, minlength=num_rows) + 1, 0, out=new_rowptr[1:])
    # Each row starts with its loop, which moves the kept edges on by one a row: no sort needed.
    target = torch.arange(row.numel(), device=row.device).add_(row).add_(1)
    new_position = position.new_empty(row.numel() + num_rows)
    new_weight = weight.new_empty(row.numel() + num_rows)
    new_position[target], new_weight[target] = position, weight
    starts = new_rowptr[:-1]
    new_position[starts] = torch.arange(first, first + num_rows, device=row.device)
    new_weight[starts] = loop_weight
    return new_rowptr, new_position, new_weight


def _is_symmetric(
    rowptr: Tensor, position: Tensor, weight: Tensor, first: int, ranks: Ranks
) -> bool:
    """Compare the 64-bit fingerprints of A and A transposed, sums that no order changes."""
    difference = torch.zeros(1, dtype=torch.int64, device=position.device)
    row = _rows_of(rowptr)
    for start in range(0, row.numel(), FINGERPRINT_EDGES):
        part = slice(start, start + FINGERPRINT_EDGES)
        target, source = row[part] + first, position[part]
        bits = weight[part].float().view(torch.int32).long()
        difference += _edge_hash(target, source, bits).sum()
        difference -= _edge_hash(source, target, bits).sum()
    ranks.sum_in_place(difference)
    return int(difference) == 0


def _edge_hash(target: Tensor, source: Tensor, bits: Tensor) -> Tensor:
    mixed = mix64_in_place(target + 1)
    mixed += source
    mixed = mix64_in_place(mixed)
    mixed += bits
    return mix64_in_place(mixed)


def _all_degrees(rowptr: Tensor, weight: Tensor, partition: Partition, ranks: Ranks) -> Tensor:
    degree = weight.new_empty(partition.num_nodes)
    own = weight.new_zeros(rowptr.numel() - 1)
    own.index_add_(0, _rows_of(rowptr), weight)
    start = partition.offsets[ranks.rank]
    degree[start : start + own.numel()] = own
    if ranks.num_ranks > 1:
        for root, (begin, end) in enumerate(
            zip(partition.offsets, partition.offsets[1:], strict=False)
        ):
            ranks.wait(ranks.broadcast(degree[begin:end], root), "the degrees")
    return degree


def _normalized(
    rowptr: Tensor,
    position: Tensor,
    weight: Tensor,
    degree: Tensor,
    normalization: Normalization,
    partition: Partition,
    ranks: Ranks,
) -> Tensor:
    row = _rows_of(rowptr)
    row += partition.offsets[ranks.rank]
    if normalization == "symmetric":
        scale = degree.pow(-0.5)
        scale.masked_fill_(scale == float("inf"), 0.0)
        return (scale[row] * weight).mul_(scale[position])
    scale = degree.reciprocal()
    scale.masked_fill_(scale == float("inf"), 0.0)
    return scale[row].mul_(weight)


def _mean_transposed(
    tiles: tuple[Tile, ...], degree: Tensor, partition: Partition, rank: int, dtype: torch.dtype
) -> tuple[Tile, ...]:
    """Turn w / degree[row] into w / degree[column], over the same indices."""
    own = degree[partition.offsets[rank] : partition.offsets[rank + 1]]

    def turned(tile: Tile, other: Tensor) -> Tile:
        return map_values(
            tile, lambda row, col, old: (old.to(own.dtype) * own[row] / other[col]).to(dtype)
        )

    ranges = zip(tiles, partition.offsets, partition.offsets[1:], strict=False)
    return tuple(turned(tile, degree[start:stop]) for tile, start, stop in ranges)


def _exchanged(tiles: tuple[Tile, ...], ranks: Ranks, dtype: torch.dtype) -> tuple[Tile, ...]:
    """Send tile (j, i) transposed to rank i and return the block row of A transposed."""
    like = torch.zeros(0, dtype=dtype, device=ranks.device)
    received: dict[int, Tile] = {}
    for shift in range(ranks.num_ranks):
        to = (ranks.rank + shift) % ranks.num_ranks
        origin = (ranks.rank - shift) % ranks.num_ranks
        rowptr, col, values = transpose_edges(tiles[to], like)
        if shift:
            num_rows = tiles[ranks.rank].num_rows
            rowptr = ranks.swap(rowptr, rowptr.new_empty(num_rows + 1), to, origin)
            count = int(rowptr[-1])
            col = ranks.swap(col, col.new_empty(count), to, origin)
            values = ranks.swap(values, values.new_empty(count), to, origin)
        received[origin] = cut_tiles(rowptr, col, values, (0, tiles[origin].num_columns))[0]
    return tuple(received[origin] for origin in range(ranks.num_ranks))
