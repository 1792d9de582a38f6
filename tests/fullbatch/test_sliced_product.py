import pytest
import torch

from pyg_direct.fullbatch import Ranks
from pyg_direct.fullbatch.engine import padded_width, value_dtype
from pyg_direct.fullbatch.sliced_product import multiply_slices, staged_operand
from pyg_direct.fullbatch.staged_product import StagedProduct
from pyg_direct.fullbatch.tiles import cut_tiles

NUM_ROWS, WIDTH = 9, 7


@pytest.fixture
def case():
    dense = torch.rand(NUM_ROWS, NUM_ROWS)
    dense[dense < 0.6] = 0.0
    # A row without an edge must be cleared, not left.
    dense[4] = 0.0
    row, column = dense.nonzero().unbind(1)
    rowptr = torch.zeros(NUM_ROWS + 1, dtype=torch.int64)
    rowptr[1:] = torch.bincount(row, minlength=NUM_ROWS).cumsum(0)
    tiles = cut_tiles(rowptr, column, dense[row, column], (0, NUM_ROWS))
    return dense, tiles, StagedProduct(Ranks(), (NUM_ROWS,)), torch.randn(NUM_ROWS, WIDTH)


def _staging(slice_width):
    return {
        "staging": torch.full((NUM_ROWS * padded_width(slice_width, 4),), float("nan")),
        "slice_width": slice_width,
    }


@pytest.mark.parametrize("slice_width", [1, 3, 7, 8])
def test_multiply_slices_overwrites_its_operand(slice_width, case):
    dense, tiles, product, operand = case
    expected = dense @ operand

    multiply_slices(product, tiles, operand, operand, **_staging(slice_width))

    torch.testing.assert_close(operand, expected)


@pytest.mark.parametrize("slice_width", [1, 3, 7, 8])
def test_multiply_slices_accumulates(slice_width, case):
    dense, tiles, product, operand = case
    out, before = torch.ones(NUM_ROWS, WIDTH), operand.clone()

    multiply_slices(product, tiles, operand, out, **_staging(slice_width), accumulate=True)

    torch.testing.assert_close(out, dense @ operand + 1.0)
    assert torch.equal(operand, before)


def test_multiply_slices_takes_an_operand_in_the_staging(case):
    dense, tiles, product, operand = case
    args, out = _staging(8), torch.full((NUM_ROWS, WIDTH), float("nan"))
    inside = staged_operand(args["staging"], *operand.shape).copy_(operand)
    assert inside.stride(0) == 8

    multiply_slices(product, tiles, inside, out, **args)

    torch.testing.assert_close(out, dense @ operand)


@pytest.mark.parametrize("slice_width", [1, 3, 7, 8])
def test_multiply_slices_adds_the_bias_of_each_column(slice_width, case):
    dense, tiles, product, operand = case
    bias, expected = torch.randn(WIDTH), dense @ operand

    multiply_slices(product, tiles, operand, operand, **_staging(slice_width), bias=bias)

    torch.testing.assert_close(operand, expected + bias)


@pytest.mark.parametrize("width", [40, 39], ids=["whole sectors", "padded"])
def test_multiply_slices_by_the_kernel(width, device):
    dense = torch.rand(NUM_ROWS, NUM_ROWS)
    rowptr = torch.arange(NUM_ROWS + 1) * NUM_ROWS
    column = torch.arange(NUM_ROWS).repeat(NUM_ROWS)
    edges = [part.to(device) for part in (rowptr, column, dense.view(-1))]
    ranks = Ranks(device=device)
    product = StagedProduct(ranks, (NUM_ROWS,), engine="kernel", column_block=32)
    operand, bias = torch.randn(NUM_ROWS, width), torch.randn(width)
    out, staging = (
        operand.to(device, copy=True),
        torch.full((NUM_ROWS * 32,), float("nan"), device=device),
    )

    tiles = cut_tiles(*edges, (0, NUM_ROWS))
    multiply_slices(product, tiles, out, out, staging=staging, slice_width=32, bias=bias.to(device))

    torch.testing.assert_close(out.cpu(), dense @ operand + bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("width", "slice_width"), [(32, 8), (32, 16), (30, 8), (32, 5)])
def test_multiply_slices_copies_rows_of_any_alignment(width, slice_width, dtype, device):
    product = StagedProduct(Ranks(device=device), (NUM_ROWS,))
    operand = torch.randn(NUM_ROWS, width).to(device, dtype)
    operand[1, 2] = float("nan")
    out = torch.empty_like(operand)
    staging_width = padded_width(slice_width, dtype.itemsize)
    staging = torch.empty(NUM_ROWS * staging_width, device=device, dtype=dtype)
    place = torch.arange(NUM_ROWS + 1, device=device)
    value = torch.ones(NUM_ROWS, device=device, dtype=value_dtype("library", dtype, device))
    tiles = cut_tiles(place, place[:-1], value, (0, NUM_ROWS))

    multiply_slices(product, tiles, operand, out, staging=staging, slice_width=slice_width)

    assert torch.equal(out.nan_to_num(7.0), operand.nan_to_num(7.0))
