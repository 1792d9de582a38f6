"""The block row of one rank: P column tiles of the adjacency matrix, each a CSR with own columns.

Shape legend: ``m`` rows of this rank, ``n`` vertices, ``P`` ranks, ``E`` nonzeros of the block row.
Assumption: fewer than 2**31 rows a rank; a tile with more nonzeros than an int32 row pointer can
count is cut into pieces by rows.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from pyg_direct.kernels.multiply import LONG_ROW_NONZEROS

MAX_PIECE_NONZEROS = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TilePiece:
    """Rows ``start`` to ``stop`` of a tile.

    Attributes
    ----------
    matrix : sparse CSR tensor, shape (stop - start, columns)
        int32 indices; values of the type the rank computes in.
    long_row : int32 tensor
        Rows, from ``start`` on, with more than ``LONG_ROW_NONZEROS`` nonzeros.
    """

    start: int
    stop: int
    matrix: Tensor
    long_row: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One tile: the edges from the vertices of one rank to those of this rank.

    Attributes
    ----------
    num_rows, num_columns : int
        Vertices of this rank and of the other.
    pieces : tuple of TilePiece
        In the order of the rows. Empty where the tile holds no edge.
    """

    num_rows: int
    num_columns: int
    pieces: tuple[TilePiece, ...]

    @property
    def num_nonzeros(self) -> int:
        """Number of edges."""
        return sum(piece.matrix.values().numel() for piece in self.pieces)

    @property
    def covers_rows(self) -> bool:
        """Tell whether the pieces reach every row."""
        return sum(piece.stop - piece.start for piece in self.pieces) == self.num_rows


def csr_matrix(crow: Tensor, col: Tensor, values: Tensor, num_columns: int) -> Tensor:
    """Return a sparse CSR tensor over the given arrays, which it does not copy.

    Parameters
    ----------
    crow : int32 tensor, shape (rows + 1,)
    col : int32 tensor, shape (E,)
    values : tensor, shape (E,)
    num_columns : int
    """
    with warnings.catch_warnings():
        # torch says once a process that CSR is in beta; its product is all that is used here.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        with torch.sparse.check_sparse_tensor_invariants(False):
            return torch.sparse_csr_tensor(crow, col, values, size=(crow.numel() - 1, num_columns))


def cut_tiles(
    rowptr: Tensor,
    position: Tensor,
    values: Tensor,
    offsets: tuple[int, ...],
    *,
    max_piece_nonzeros: int = MAX_PIECE_NONZEROS,
) -> tuple[Tile, ...]:
    """Cut a block row into P column tiles.

    Parameters
    ----------
    rowptr : int64 tensor, shape (m + 1,)
    position : int64 tensor, shape (E,)
        Position of each edge's source, in ``[0, n)``.
    values : tensor, shape (E,)
    offsets : tuple of int, length P + 1
        First position of each rank.
    max_piece_nonzeros : int
        Largest number of nonzeros in one CSR.

    Returns
    -------
    tuple of Tile, length P
        New tensors on the device of ``position``.

    Raises
    ------
    ValueError
        If one row alone holds more than ``max_piece_nonzeros``.
    """
    if len(offsets) == 2:
        whole = _tile(rowptr, position, values, offsets[1], max_piece_nonzeros)
        return (whole,)
    tiles = []
    for start, stop in pairwise(offsets):
        inside = (position >= start) & (position < stop)
        passed = torch.zeros(inside.numel() + 1, dtype=torch.int64, device=inside.device)
        torch.cumsum(inside, 0, out=passed[1:])
        tile = _tile(
            passed[rowptr],
            position[inside] - start,
            values[inside],
            stop - start,
            max_piece_nonzeros,
        )
        tiles.append(tile)
    return tuple(tiles)


def _tile(
    rowptr: Tensor, col: Tensor, values: Tensor, num_columns: int, max_piece_nonzeros: int
) -> Tile:
    pieces = []
    for start, stop in row_ranges(rowptr, max_piece_nonzeros):
        first, last = int(rowptr[start]), int(rowptr[stop])
        if first == last:
            continue
        if last - first > max_piece_nonzeros:
            raise ValueError(
                f"row {start} holds {last - first} nonzeros, expected at most "
                f"{max_piece_nonzeros}: cut the graph over more ranks"
            )
        crow = (rowptr[start : stop + 1] - first).int()
        matrix = csr_matrix(crow, col[first:last].int(), values[first:last], num_columns)
        pieces.append(_piece(start, stop, matrix))
    return Tile(num_rows=rowptr.numel() - 1, num_columns=num_columns, pieces=tuple(pieces))


def _piece(start: int, stop: int, matrix: Tensor) -> TilePiece:
    long_row = (matrix.crow_indices().diff() > LONG_ROW_NONZEROS).nonzero().view(-1).int()
    return TilePiece(start=start, stop=stop, matrix=matrix, long_row=long_row)


def row_ranges(rowptr: Tensor, max_nonzeros: int) -> list[tuple[int, int]]:
    """Cut rows into consecutive ranges of at most ``max_nonzeros``, or of one row with more.

    Parameters
    ----------
    rowptr : int64 tensor, shape (m + 1,)
    max_nonzeros : int
    """
    num_rows = rowptr.numel() - 1
    if int(rowptr[-1] - rowptr[0]) <= max_nonzeros:
        return [(0, num_rows)]
    ranges, start = [], 0
    while start < num_rows:
        limit = rowptr[start] + max_nonzeros
        stop = int(torch.searchsorted(rowptr, limit, right=True)) - 1
        stop = min(max(stop, start + 1), num_rows)
        ranges.append((start, stop))
        start = stop
    return ranges


def map_values(tile: Tile, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tile:
    """Return a tile over the same rows and columns with new values.

    Parameters
    ----------
    tile : Tile
    function : callable
        Takes local rows, local columns (int64, shape (E,)) and values of the nonzeros, returns
        their new values.
    """
    pieces = []
    for piece in tile.pieces:
        crow, col = piece.matrix.crow_indices(), piece.matrix.col_indices()
        rows = torch.arange(piece.start, piece.stop, device=crow.device)
        rows = rows.repeat_interleave(crow.diff().long())
        values = function(rows, col.long(), piece.matrix.values())
        matrix = csr_matrix(crow, col, values, tile.num_columns)
        pieces.append(replace(piece, matrix=matrix))
    return Tile(num_rows=tile.num_rows, num_columns=tile.num_columns, pieces=tuple(pieces))


def transpose_edges(tile: Tile, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the edges of the transposed tile, sorted by row.

    Parameters
    ----------
    tile : Tile
    like : Tensor
        Gives device and dtype where the tile is empty.

    Returns
    -------
    rowptr : int64 tensor, shape (columns of ``tile`` + 1,)
    col : int64 tensor, shape (E,)
    values : tensor, shape (E,)
    """
    rows = [torch.zeros(0, dtype=torch.int64, device=like.device)]
    cols, values = [rows[0]], [like.new_zeros(0)]
    for piece in tile.pieces:
        crow = piece.matrix.crow_indices()
        local = torch.arange(piece.start, piece.stop, device=crow.device)
        cols.append(local.repeat_interleave(crow.diff().long()))
        rows.append(piece.matrix.col_indices().long())
        values.append(piece.matrix.values())
    row = torch.cat(rows)
    order = torch.argsort(row, stable=True)
    counts = torch.bincount(row, minlength=tile.num_columns)
    rowptr = counts.new_zeros(tile.num_columns + 1)
    torch.cumsum(counts, 0, out=rowptr[1:])
    return rowptr, torch.cat(cols)[order], torch.cat(values)[order]
