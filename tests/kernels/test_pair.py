import numpy as np
import pytest

from pyg_direct.kernels import pair, reference
from pyg_direct.kernels.launch import IS_SIMULATOR, span_of
from pyg_direct.kernels.walk import GatherLaunch
from tests.kernels.rows import random_bytes


def _gather(kernel_memory, tables, index, places=None, rows_per_ticket=(2, 3), **launch):
    """Return what the kernel wrote to both outputs, and the notes it left."""
    outs = [np.full((len(index), table.shape[1]), 0xAA, np.uint8) for table in tables]
    tickets, wrong = np.zeros(2, np.int64), np.full(1, -7, np.int64)
    order = np.zeros(1, np.int64) if places is None else places
    with kernel_memory(*tables, *outs, index, order, tickets, wrong) as arrays:
        first, second, out, other_out, ids, order, *notes = arrays
        sides = [
            pair.TableOfPair(span_of(memory), target, table.shape[1], rows)
            for memory, target, table, rows in zip(
                (first, second), (out, other_out), tables, rows_per_ticket, strict=True
            )
        ]
        for _ in range(2):  # the kernel leaves the tickets as it found them
            pair.gather_pair(
                *sides,
                ids,
                launch=GatherLaunch(*notes, **launch),
                places=None if places is None else order,
            )
    assert tickets.tolist() == [0, 0]
    return outs, wrong.item()


def _expected(tables, index, places=None):
    places = np.arange(len(index)) if places is None else places
    outs = [np.empty((len(index), table.shape[1]), np.uint8) for table in tables]
    for table, out in zip(tables, outs, strict=True):
        rows = np.empty_like(out)
        reference.gather_rows(table, index, rows)
        out[places] = rows
    return outs


@pytest.mark.parametrize("num_rows", [(37, 37), (37, 50), (50, 37)], ids=str)
@pytest.mark.parametrize("offsets", [(0, 0), (4, 64)], ids=str)
@pytest.mark.parametrize("row_bytes", [(400, 8), (8, 400), (132, 4), (1, 3), (7, 31), (2, 30)])
def test_pair_equals_reference(row_bytes, offsets, num_rows, kernel_memory):
    tables = [random_bytes(*size) for size in zip(num_rows, row_bytes, offsets, strict=True)]
    index = np.random.default_rng(7).integers(0, 37, 19)

    outs, wrong = _gather(kernel_memory, tables, index)

    for out, expected in zip(outs, _expected(tables, index), strict=True):
        np.testing.assert_array_equal(out, expected)
    assert wrong == -7


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("num_warps", "max_blocks"), [(1, 1), (3, 2), (64, 3)])
@pytest.mark.parametrize("rows_per_ticket", [(1, 1), (1, 64), (8, 3)], ids=str)
def test_pair_in_another_order(rows_per_ticket, num_warps, max_blocks, dtype, kernel_memory):
    if IS_SIMULATOR and num_warps > 3:
        pytest.skip("the simulator takes minutes for so many threads")
    tables = random_bytes(37, 132, 4), random_bytes(37, 8)
    index = np.random.default_rng(7).permutation(37)[:33]
    places = np.argsort(index)
    index = index[places]

    outs, _ = _gather(
        kernel_memory, tables, index.astype(dtype), places, rows_per_ticket,
        num_warps=num_warps, max_blocks=max_blocks,
    )  # fmt: skip

    for out, expected in zip(outs, _expected(tables, index, places), strict=True):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("num_ids", [1, 2, 5])
def test_pair_of_few_ids(num_ids, kernel_memory):
    tables, index = (random_bytes(9, 400), random_bytes(9, 8)), np.arange(num_ids)

    outs, _ = _gather(kernel_memory, tables, index, rows_per_ticket=(1, 256))

    for out, expected in zip(outs, _expected(tables, index), strict=True):
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("num_used", [0, 3, 9])
def test_pair_leaves_ids_behind_those_in_use_alone(num_used, kernel_memory):
    tables, index = (random_bytes(9, 400), random_bytes(9, 8)), np.arange(5)

    with kernel_memory(np.array([num_used])) as (used,):
        outs, _ = _gather(kernel_memory, tables, index, rows_per_ticket=(1, 2), num_used=used)

    for out, expected in zip(outs, _expected(tables, index), strict=True):
        np.testing.assert_array_equal(out[:num_used], expected[:num_used])
        assert (out[num_used:] == 0xAA).all()


@pytest.mark.parametrize("wrong_id", [-1, 40, 2**40])
def test_wrong_ids_of_one_table_are_noted_and_not_read(wrong_id, kernel_memory):
    tables = random_bytes(60, 12), random_bytes(37, 8)
    index = np.array([3, wrong_id, 5])

    (out, other_out), wrong = _gather(kernel_memory, tables, index)

    assert wrong == wrong_id
    np.testing.assert_array_equal(other_out[[0, 2]], tables[1][[3, 5]])
    assert (other_out[1] == 0xAA).all()
    np.testing.assert_array_equal(out[[0, 2]], tables[0][[3, 5]])
    if wrong_id == 40:
        np.testing.assert_array_equal(out[1], tables[0][40])


def test_pair_refuses_different_stores(kernel_memory):
    with pytest.raises(ValueError, match=r"stores of \[1, 4\] bytes, expected the same"):
        _gather(kernel_memory, (random_bytes(9, 400), random_bytes(9, 1)), np.arange(3))
