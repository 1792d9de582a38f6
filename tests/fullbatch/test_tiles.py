import pytest
import torch

from pyg_direct.fullbatch.tiles import cut_tiles, map_values, row_ranges, transpose_edges


def _random_block_row(num_rows, num_columns):
    dense = torch.rand(num_rows, num_columns)
    dense[dense < 0.7] = 0.0
    row, column = dense.nonzero().unbind(1)
    counts = torch.bincount(row, minlength=num_rows)
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    return dense, rowptr, column, dense[row, column]


def _dense(tile):
    dense = torch.zeros(tile.num_rows, tile.num_columns)
    for piece in tile.pieces:
        dense[piece.start : piece.stop] = piece.matrix.to_dense()
    return dense


@pytest.mark.parametrize("offsets", [(0, 33), (0, 11, 22, 33), (0, 1, 33)], ids=str)
@pytest.mark.parametrize("max_piece_nonzeros", [2**31 - 1, 40], ids=["whole", "pieces"])
def test_cut_tiles_keeps_every_edge(offsets, max_piece_nonzeros):
    dense, *edges = _random_block_row(31, 33)

    tiles = cut_tiles(*edges, offsets, max_piece_nonzeros=max_piece_nonzeros)

    assert torch.equal(torch.cat([_dense(tile) for tile in tiles], dim=1), dense)
    assert sum(tile.num_nonzeros for tile in tiles) == edges[1].numel()
    for tile in tiles:
        for piece in tile.pieces:
            assert piece.matrix.values().numel() <= max_piece_nonzeros
            assert piece.matrix.col_indices().dtype == torch.int32


def test_cut_tiles_rejects_a_row_that_is_too_long():
    _, *edges = _random_block_row(3, 33)

    with pytest.raises(ValueError, match="nonzeros, expected at most 2"):
        cut_tiles(*edges, (0, 33), max_piece_nonzeros=2)


def test_cut_tiles_of_no_edges_has_no_pieces():
    nothing = torch.zeros(0, dtype=torch.int64)

    (tile,) = cut_tiles(torch.zeros(4, dtype=torch.int64), nothing, nothing.float(), (0, 5))

    assert tile.pieces == ()
    assert not tile.covers_rows


def test_transpose_edges_transposes():
    dense, *edges = _random_block_row(9, 7)
    (tile,) = cut_tiles(*edges, (0, 7), max_piece_nonzeros=20)

    (back,) = cut_tiles(*transpose_edges(tile, edges[2]), (0, 9))

    assert torch.equal(_dense(back), dense.t())


def test_map_values_sees_rows_and_columns():
    dense, *edges = _random_block_row(9, 7)
    (tile,) = cut_tiles(*edges, (0, 7), max_piece_nonzeros=20)

    mapped = map_values(tile, lambda row, column, old: (row * 100 + column).float() + old)

    row, column = dense.nonzero().unbind(1)
    expected = torch.zeros(9, 7)
    expected[row, column] = (row * 100 + column).float() + dense[row, column]
    assert torch.equal(_dense(mapped), expected)


def test_row_ranges_gives_a_long_row_a_range_of_its_own():
    rowptr = torch.tensor([0, 2, 4, 14, 15])

    assert row_ranges(rowptr, 4) == [(0, 2), (2, 3), (3, 4)]
    assert row_ranges(rowptr, 100) == [(0, 4)]
