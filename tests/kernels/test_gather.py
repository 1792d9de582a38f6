import numpy as np
import pytest

from pyg_direct.kernels import gather, reference, walk
from pyg_direct.kernels.launch import IS_SIMULATOR
from tests.kernels.rows import random_bytes

ROW_BYTES = [1, 2, 3, 4, 8, 12, 30, 31, 128, 129, 132, 400, 1172]
NUM_IDS = [0, 1, 31, 33]


def _notes():
    """Tickets, and a place for a wrong id."""
    return np.zeros(2, np.int64), np.full(1, -7, np.int64)


def _ids(num_ids, num_rows, unique=False):
    rng = np.random.default_rng(7)
    return rng.choice(num_rows, num_ids, replace=not unique).astype(np.int64)


@pytest.mark.parametrize("num_ids", NUM_IDS)
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_gather_rows_cpu_equals_reference(row_bytes, num_ids):
    table, index = random_bytes(37, row_bytes), _ids(num_ids, 37)
    out, expected = np.full((num_ids, row_bytes), 0xAA, np.uint8), np.empty_like(table[index])

    gather.gather_rows_cpu(table, index, out)

    reference.gather_rows(table, index, expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 64, 68])
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_gather_rows_equals_reference(row_bytes, offset, kernel_memory):
    table, index = random_bytes(37, row_bytes, offset), _ids(5, 37)
    out, expected = np.full((5, row_bytes), 0xAA, np.uint8), np.empty_like(table[index])

    with kernel_memory(table, index, out, *_notes()) as (*arrays, tickets, wrong):
        gather.gather_rows(*arrays, row_bytes=row_bytes, launch=gather.GatherLaunch(tickets, wrong))

    reference.gather_rows(table, index, expected)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("num_warps", "max_blocks"), [(1, 1), (3, 2), (64, 3)])
@pytest.mark.parametrize("rows_per_ticket", [1, 3, 8])
@pytest.mark.parametrize("row_bytes", [4, 31, 128, 400])
@pytest.mark.parametrize("name", ["gather_rows", "scatter_rows"])
def test_rows_in_another_order(
    name, row_bytes, rows_per_ticket, num_warps, max_blocks, dtype, kernel_memory
):
    if IS_SIMULATOR and num_warps > 3:
        pytest.skip("the simulator takes minutes for so many threads")
    table, index = random_bytes(37, row_bytes, 4), _ids(33, 37, unique=True)
    rows, notes = random_bytes(33, row_bytes), _notes()
    places = np.argsort(index)
    expected = {"gather_rows": rows.copy(), "scatter_rows": table.copy()}
    reference.gather_rows(table, index, expected["gather_rows"])
    reference.scatter_rows(expected["scatter_rows"], index, rows)

    memory = (table, index[places].astype(dtype), rows, places, *notes)
    with kernel_memory(*memory) as (*arrays, where, tickets, wrong):
        launch = gather.GatherLaunch(tickets, wrong, rows_per_ticket, num_warps, max_blocks)
        for _ in range(2):  # the kernel leaves the tickets as it found them
            getattr(gather, name)(*arrays, row_bytes=row_bytes, launch=launch, places=where)

    np.testing.assert_array_equal(rows if name == "gather_rows" else table, expected[name])
    assert [note.tolist() for note in notes] == [[0, 0], [-7]]


@pytest.mark.parametrize("wrong_id", [-1, 37, 2**62, -(2**62)])
@pytest.mark.parametrize("name", ["gather_rows", "scatter_rows"])
def test_wrong_ids_are_noted_and_neither_read_nor_written(name, wrong_id, kernel_memory):
    table, index, notes = random_bytes(37, 12), np.array([3, wrong_id, 5]), _notes()
    rows = np.full((3, 12), 0xAA, np.uint8)
    expected = {"gather_rows": (table.copy(), np.stack([table[3], rows[1], table[5]]))}
    expected["scatter_rows"] = (table.copy(), rows.copy())
    expected["scatter_rows"][0][[3, 5]] = 0xAA

    with kernel_memory(table, index, rows, *notes) as (*arrays, tickets, wrong):
        getattr(gather, name)(*arrays, row_bytes=12, launch=gather.GatherLaunch(tickets, wrong))

    np.testing.assert_array_equal(table, expected[name][0])
    np.testing.assert_array_equal(rows, expected[name][1])
    assert notes[1].tolist() == [wrong_id]


@pytest.mark.parametrize("num_used", [0, 1, 4, 99])
@pytest.mark.parametrize("name", ["gather_rows", "scatter_rows"])
def test_ids_behind_those_in_use_are_left_alone(name, num_used, kernel_memory):
    table, index, notes = random_bytes(37, 12), _ids(7, 37, unique=True), _notes()
    rows, used = random_bytes(7, 12, 4), np.array([num_used])
    index[num_used:] = -1
    expected = {"gather_rows": rows.copy(), "scatter_rows": table.copy()}
    expected["gather_rows"][:num_used] = table[index[:num_used]]
    expected["scatter_rows"][index[:num_used]] = rows[:num_used]

    with kernel_memory(table, index, rows, used, *notes) as (*arrays, on_used, tickets, wrong):
        launch = gather.GatherLaunch(tickets, wrong, 2, num_used=on_used)
        for _ in range(2):
            getattr(gather, name)(*arrays, row_bytes=12, launch=launch)

    np.testing.assert_array_equal(rows if name == "gather_rows" else table, expected[name])
    assert [note.tolist() for note in notes] == [[0, 0], [-7]]


@pytest.mark.parametrize(
    ("row_bytes", "table_address", "rows_address", "piece_bytes", "words"),
    [
        (512, 4096, 0, 4, 128),
        (512, 4096 + 64, 0, 4, 144),
        (400, 4096, 0, 4, 128),
        (1172, 4096, 0, 4, 324),
        (128, 4096, 0, 4, 32),
        (8, 4096, 0, 4, 2),
        (6, 4096, 0, 2, 2),
        (1, 4096, 0, 1, 1),
        (4, 4096, 2, 2, 1),
    ],
)
def test_row_walk_covers_every_row(row_bytes, table_address, rows_address, piece_bytes, words):
    lanes = walk.row_walk(row_bytes, table_address % 128, rows_address % 4)

    assert lanes.piece_bytes == piece_bytes
    assert lanes.num_steps << lanes.log_lanes >= words


@pytest.mark.parametrize("num_ids", NUM_IDS)
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_scatter_rows_cpu_equals_reference(row_bytes, num_ids):
    table, index = random_bytes(37, row_bytes), _ids(num_ids, 37, unique=True)
    rows, expected = random_bytes(num_ids, row_bytes, 4), table.copy()

    gather.scatter_rows_cpu(table, index, rows)

    reference.scatter_rows(expected, index, rows)
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("offset", [0, 1, 2, 4])
@pytest.mark.parametrize("row_bytes", ROW_BYTES)
def test_scatter_rows_equals_reference(row_bytes, offset, kernel_memory):
    table, index = random_bytes(37, row_bytes, offset), _ids(5, 37, unique=True)
    rows, expected = random_bytes(5, row_bytes), table.copy()

    with kernel_memory(table, index, rows, *_notes()) as (*arrays, tickets, wrong):
        gather.scatter_rows(
            *arrays, row_bytes=row_bytes, launch=gather.GatherLaunch(tickets, wrong)
        )

    reference.scatter_rows(expected, index, rows)
    np.testing.assert_array_equal(table, expected)
