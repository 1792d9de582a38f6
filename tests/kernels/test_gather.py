import numpy as np
import pytest

from pyg_direct.kernels import gather, reference

ROW_BYTES = [1, 2, 3, 4, 8, 12, 30, 31, 128, 129, 132, 400, 1172]
NUM_IDS = [0, 1, 31, 33]


def _random_bytes(num_rows, row_bytes, offset=0):
    """Rows of random bytes whose first lies ``offset`` bytes after a line of 128."""
    rng = np.random.default_rng(42)
    memory = rng.integers(0, 256, num_rows * row_bytes + 256, dtype=np.uint8)
    start = -memory.ctypes.data % 128 + offset
    return memory[start : start + num_rows * row_bytes].reshape(num_rows, row_bytes)


def _ids(num_ids, num_rows, unique=False):
    rng = np.random.default_rng(7)
    return rng.choice(num_rows, num_ids, replace=not unique).astype(np.int64)


@pytest.mark.parametrize("num_ids", NUM_IDS)
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_gather_rows_cpu_equals_reference(row_bytes, num_ids):
    table, index = _random_bytes(37, row_bytes), _ids(num_ids, 37)
    out, expected = np.full((num_ids, row_bytes), 0xAA, np.uint8), np.empty_like(table[index])

    gather.gather_rows_cpu(table, index, out)

    reference.gather_rows(table, index, expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 64, 68])
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_gather_rows_equals_reference(row_bytes, offset, kernel_memory):
    table, index = _random_bytes(37, row_bytes, offset), _ids(5, 37)
    out, expected = np.full((5, row_bytes), 0xAA, np.uint8), np.empty_like(table[index])

    with kernel_memory(table, index, out) as arrays:
        gather.gather_rows(*arrays, row_bytes=row_bytes)

    reference.gather_rows(table, index, expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("num_ids", NUM_IDS)
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_scatter_rows_cpu_equals_reference(row_bytes, num_ids):
    table, index = _random_bytes(37, row_bytes), _ids(num_ids, 37, unique=True)
    rows, expected = _random_bytes(num_ids, row_bytes, 4), table.copy()

    gather.scatter_rows_cpu(table, index, rows)

    reference.scatter_rows(expected, index, rows)
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("offset", [0, 1, 2, 4])
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_scatter_rows_equals_reference(row_bytes, offset, kernel_memory):
    table, index = _random_bytes(37, row_bytes, offset), _ids(5, 37, unique=True)
    rows, expected = _random_bytes(5, row_bytes), table.copy()

    with kernel_memory(table, index, rows) as arrays:
        gather.scatter_rows(*arrays, row_bytes=row_bytes)

    reference.scatter_rows(expected, index, rows)
    np.testing.assert_array_equal(table, expected)
