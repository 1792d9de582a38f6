import numpy as np
import pytest

from pyg_direct.kernels import reference, tiers
from pyg_direct.kernels.walk import GatherLaunch
from tests.kernels.rows import random_bytes

NUM_ROWS = 37
ROW_BYTES = [1, 3, 4, 30, 128, 132, 400]
HOT_IDS = {"none hot": [], "one hot": [36], "some hot": range(0, 37, 2), "all hot": range(37)}


def _tier(row_bytes, hot_ids):
    """Hot rows that differ from the table's, so that a test sees where a row was read."""
    hot = random_bytes(max(1, len(hot_ids)), row_bytes)
    hot ^= 0xFF
    slots = np.full(NUM_ROWS, -1, np.int32)
    slots[list(hot_ids)] = np.arange(len(hot_ids))
    return hot, slots


def _ids(num_ids):
    return np.random.default_rng(7).integers(0, NUM_ROWS, num_ids)


def _notes():
    return np.zeros(2, np.int64), np.full(1, -7, np.int64)


@pytest.mark.parametrize("hot_ids", HOT_IDS.values(), ids=HOT_IDS.keys())
@pytest.mark.parametrize("num_ids", [0, 1, 31, 257])
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_gather_tiers_cpu_equals_reference(row_bytes, num_ids, hot_ids):
    table, index = random_bytes(NUM_ROWS, row_bytes, 1), _ids(num_ids)
    hot, slots = _tier(row_bytes, hot_ids)
    out, expected = (np.full((num_ids, row_bytes), 0xAA, np.uint8) for _ in range(2))

    tiers.gather_tiers_cpu(table, hot, slots, index, out)

    reference.gather_tiers(table, index, expected, hot=hot, slots=slots)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("hot_ids", HOT_IDS.values(), ids=HOT_IDS.keys())
@pytest.mark.parametrize("offset", [0, 1, 68])
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_gather_tiers_equals_reference(row_bytes, offset, hot_ids, kernel_memory):
    table, index = random_bytes(NUM_ROWS, row_bytes, offset), _ids(5)
    hot, slots = _tier(row_bytes, hot_ids)
    out, expected = (np.full((5, row_bytes), 0xAA, np.uint8) for _ in range(2))

    with kernel_memory(table, index, out, hot, slots, *_notes()) as memory:
        *arrays, near, where, tickets, wrong = memory
        tiers.gather_tiers(
            *arrays, hot=near, slots=where, row_bytes=row_bytes, launch=GatherLaunch(tickets, wrong)
        )

    reference.gather_tiers(table, index, expected, hot=hot, slots=slots)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("num_warps", "max_blocks", "rows_per_ticket"), [(1, 1, 8), (5, 2, 3)])
def test_rows_in_another_order(num_warps, max_blocks, rows_per_ticket, dtype, kernel_memory):
    table, index, notes = random_bytes(NUM_ROWS, 132, 4), _ids(33), _notes()
    hot, slots = _tier(132, HOT_IDS["some hot"])
    out, expected = (np.full((33, 132), 0xAA, np.uint8) for _ in range(2))
    places = np.argsort(index, kind="stable")

    memory = (table, index[places].astype(dtype), out, hot, slots, places, *notes)
    with kernel_memory(*memory) as (*arrays, near, where, order, tickets, wrong):
        launch = GatherLaunch(tickets, wrong, rows_per_ticket, num_warps, max_blocks)
        tiers.gather_tiers(
            *arrays, hot=near, slots=where, row_bytes=132, launch=launch, places=order
        )

    reference.gather_tiers(table, index, expected, hot=hot, slots=slots)
    np.testing.assert_array_equal(out, expected)
    assert [note.tolist() for note in notes] == [[0, 0], [-7]]


@pytest.mark.parametrize("wrong_id", [-1, 37, 2**62, -(2**62)])
def test_wrong_ids_are_noted_and_not_read(wrong_id, kernel_memory):
    table, index, notes = random_bytes(NUM_ROWS, 12), np.array([3, wrong_id, 4]), _notes()
    hot, slots = _tier(12, HOT_IDS["some hot"])
    out = np.full((3, 12), 0xAA, np.uint8)

    with kernel_memory(table, index, out, hot, slots, *notes) as memory:
        *arrays, near, where, tickets, wrong = memory
        tiers.gather_tiers(
            *arrays, hot=near, slots=where, row_bytes=12, launch=GatherLaunch(tickets, wrong)
        )

    np.testing.assert_array_equal(out, [table[3], [0xAA] * 12, hot[slots[4]]])
    assert notes[1].tolist() == [wrong_id]


@pytest.mark.parametrize("num_used", [0, 3, 9])
def test_ids_behind_those_in_use_are_left_alone(num_used, kernel_memory):
    table, index = random_bytes(NUM_ROWS, 12), _ids(5)
    hot, slots = _tier(12, HOT_IDS["some hot"])
    out, expected = (np.full((5, 12), 0xAA, np.uint8) for _ in range(2))
    reference.gather_tiers(table, index[:num_used], expected[:num_used], hot=hot, slots=slots)

    memory = (table, index, out, hot, slots, np.array([num_used]), *_notes())
    with kernel_memory(*memory) as (*arrays, near, where, used, tickets, wrong):
        launch = GatherLaunch(tickets, wrong, num_used=used)
        tiers.gather_tiers(*arrays, hot=near, slots=where, row_bytes=12, launch=launch)

    np.testing.assert_array_equal(out, expected)


def test_hot_rows_must_start_on_a_line():
    hot, slots = random_bytes(3, 12, 4), np.zeros(NUM_ROWS, np.int32)

    with pytest.raises(ValueError, match="hot starts 4 bytes behind a line"):
        tiers.gather_tiers(
            hot, _ids(3), hot, hot=hot, slots=slots, row_bytes=12, launch=GatherLaunch(*_notes())
        )
