import itertools
import mmap

import numpy as np
import pytest
from scipy import stats

from pyg_direct.kernels import reference_sampling as reference
from pyg_direct.kernels import sample
from pyg_direct.kernels.dispatch import launch_shape
from pyg_direct.kernels.random import batch_key

KEY = batch_key(42, 7)
METHODS = [sample.DISTINCT, sample.REPLACED, sample.LAST]
METHOD_IDS = ["distinct", "replaced", "last"]
FANOUTS = [0, 1, 3, 33, -1]


def _graph(num_nodes, num_edges, dtype=np.int64):
    rng = np.random.default_rng(42)
    degree = np.bincount(rng.zipf(1.6, num_edges) % max(num_nodes, 1), minlength=num_nodes)
    colptr = np.concatenate([[0], degree.cumsum()]).astype(np.int64)
    return colptr, rng.integers(0, max(num_nodes, 1), colptr[-1]).astype(dtype)


def _frontier(num_nodes, size):
    rng = np.random.default_rng(7)
    # Ids beyond ``colptr`` are nodes that only other edge types know.
    return rng.integers(0, num_nodes + 2, size).astype(np.int64)


def _count(colptr, frontier, fanout, is_replaced):
    arrays = [np.full(len(frontier), -9, np.int64) for _ in range(3)]
    totals = np.array([5, 5 + len(frontier)])
    arguments = colptr, len(colptr) - 1, frontier, totals, 0, fanout, is_replaced
    reference.count_neighbors(*arguments, *arrays)
    return arguments, arrays


@pytest.mark.parametrize("fanout", FANOUTS)
@pytest.mark.parametrize("size", [0, 1, 31, 33, 257])
def test_count_neighbors_cpu_equals_reference(size, fanout):
    colptr, _ = _graph(50, 600)
    for is_replaced in (0, 1):
        arguments, expected = _count(colptr, _frontier(50, size), fanout, is_replaced)
        result = [np.full(size, -9, np.int64) for _ in range(3)]

        sample.count_neighbors_cpu(*arguments, *result)

        for array, wanted in zip(result, expected, strict=True):
            np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("fanout", FANOUTS)
@pytest.mark.parametrize("size", [1, 33])
def test_count_neighbors_equals_reference(size, fanout, kernel_memory):
    colptr, _ = _graph(50, 600)
    frontier, bound = _frontier(50, size), size + 3
    arguments, expected = _count(colptr, frontier, fanout, 0)
    result = [np.full(bound, -9, np.int64) for _ in range(3)]
    totals = arguments[3]

    with kernel_memory(colptr, frontier, totals, *result) as (c, f, t, *out):
        sample.count_neighbors(*launch_shape(bound), c, 50, f, t, 0, bound, fanout, 0, *out)

    for array, wanted in zip(result, expected, strict=True):
        np.testing.assert_array_equal(array[:size], wanted)
    np.testing.assert_array_equal(result[2][size:], 0)


@pytest.mark.parametrize("size", [0, 1, 33])
def test_count_past_neighbors_equals_reference(size, kernel_memory):
    colptr, _ = _graph(50, 600)
    rng = np.random.default_rng(3)
    owner = np.repeat(np.arange(50), np.diff(colptr))
    times = rng.integers(0, 20, len(owner))
    times = times[np.lexsort([times, owner])]
    frontier, tree = _frontier(50, size), rng.integers(0, 4, size)
    totals, seed_times = np.array([0, size]), np.array([-1, 0, 10, 30])
    expected, on_cpu, on_gpu = (
        [np.full(max(size, 1), 0, np.int64) for _ in range(3)] for _ in range(3)
    )
    arguments = colptr, 50, frontier, totals, 0, 4, 0

    reference.count_past_neighbors(*arguments, *expected, times, tree, seed_times)
    sample.count_past_neighbors_cpu(*arguments, *on_cpu, times, tree, seed_times)
    with kernel_memory(colptr, frontier, totals, times, tree, seed_times, *on_gpu) as memory:
        c, f, t, ti, tr, st, *out = memory
        sample.count_past_neighbors(
            *launch_shape(size), c, 50, f, t, 0, size, 4, 0, *out, ti, tr, st
        )

    for wanted, *results in zip(expected, on_cpu, on_gpu, strict=True):
        for result in results:
            np.testing.assert_array_equal(result, wanted)


def _drawn(fanout, method, dtype=np.int64, with_perm=True):
    """What ``draw_neighbors`` and ``pick_neighbors`` need, and what the reference makes of it."""
    colptr, row = _graph(40, 300, dtype)
    frontier = _frontier(40, 33)
    perm = np.random.default_rng(5).permutation(len(row)) if with_perm else np.empty(0, np.int64)
    is_replaced = int(method == sample.REPLACED and fanout >= 0)
    _, (start, degree, num) = _count(colptr, frontier, fanout, is_replaced)
    ends = num.cumsum()
    totals = np.array([5, 5 + len(frontier), -1])
    form = sample.EDGE_PERMUTED if with_perm else sample.EDGE_POSITION
    inputs = {
        "row": row, "perm": perm, "start": start, "degree": degree, "ends": ends, "totals": totals,
    }  # fmt: skip
    column, offset, source, edge = (np.full(int(ends[-1]), -9, np.int64) for _ in range(4))
    reference.draw_neighbors(ends, 33, degree, method, KEY, 6, column, offset)
    raw = column.copy(), offset.copy()
    reference.pick_neighbors(
        row, perm, form, start, degree, ends, 33, method, offset, totals.copy(), 0, 2,
        column, source, edge,
    )  # fmt: skip
    return inputs, raw, (column, source, edge), form


@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
@pytest.mark.parametrize("fanout", FANOUTS)
def test_draw_and_pick_cpu_equal_reference(fanout, method):
    inputs, raw, expected, form = _drawn(fanout, method)
    column, offset, source, edge = (np.full_like(raw[0], -9) for _ in range(4))
    totals = inputs["totals"]

    sample.draw_neighbors_cpu(inputs["ends"], 33, inputs["degree"], method, KEY, 6, column, offset)
    np.testing.assert_array_equal(column, raw[0])
    np.testing.assert_array_equal(offset, raw[1])
    sample.pick_neighbors_cpu(
        inputs["row"], inputs["perm"], form, inputs["start"], inputs["degree"], inputs["ends"],
        33, method, offset, totals, 0, 2, column, source, edge,
    )  # fmt: skip

    for result, wanted in zip((column, source, edge), expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
    assert totals[2] == len(edge)


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=["int32", "int64"])
@pytest.mark.parametrize("method", METHODS, ids=METHOD_IDS)
@pytest.mark.parametrize("fanout", [1, 3, 33, -1])
def test_draw_and_pick_equal_reference(fanout, method, dtype, kernel_memory):
    inputs, raw, expected, form = _drawn(fanout, method, dtype, with_perm=dtype == np.int32)
    num_slots = len(raw[0]) + 5
    column, offset, source, edge = (np.full(num_slots, -9, np.int64) for _ in range(4))
    totals = inputs["totals"]
    arrays = *inputs.values(), np.array([KEY]), column, offset, source, edge

    with kernel_memory(*arrays) as (row, perm, start, degree, ends, t, k, c, o, s, e):
        shape = launch_shape(num_slots)
        sample.draw_neighbors(*shape, ends, 33, num_slots, degree, method, k, 6, c, o)
        sample.pick_neighbors[dtype().itemsize](
            *shape, row, perm, form, start, degree, ends, 33, num_slots, method, o, t, 0, 2,
            c, s, e,
        )  # fmt: skip

    for result, wanted in zip((column, source, edge), expected, strict=True):
        np.testing.assert_array_equal(result[:-5], wanted)
        np.testing.assert_array_equal(result[-5:], -9)
    assert totals[2] == num_slots - 5


def _draw_many(degree, fanout, method, num_nodes):
    ends = np.arange(1, num_nodes + 1) * fanout
    start, degrees = np.zeros(num_nodes, np.int64), np.full(num_nodes, degree)
    column, offset, source, edge = (np.empty(num_nodes * fanout, np.int64) for _ in range(4))
    sample.draw_neighbors_cpu(ends, num_nodes, degrees, method, KEY, 0, column, offset)
    sample.pick_neighbors_cpu(
        np.arange(degree), edge, sample.EDGE_NONE, start, degrees, ends, num_nodes, method, offset,
        np.zeros(3, np.int64), 0, 2, column, source, edge,
    )  # fmt: skip
    return source.reshape(num_nodes, fanout)


def test_distinct_draws_give_every_subset_equally_often():
    drawn = _draw_many(6, 3, sample.DISTINCT, 20_000)

    subsets = list(itertools.combinations(range(6), 3))
    codes = (1 << drawn).sum(1)
    counts = [np.sum(codes == sum(1 << each for each in subset)) for subset in subsets]
    assert sum(counts) == 20_000
    assert stats.chisquare(counts).pvalue > 1e-3


def test_replaced_draws_give_every_pair_equally_often():
    drawn = _draw_many(5, 2, sample.REPLACED, 25_000)

    counts = np.bincount(drawn[:, 0] * 5 + drawn[:, 1], minlength=25)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_distinct_draws_of_a_hub_read_no_more_than_they_draw():
    degree = 2**32 - 1
    ends, degrees = np.array([100]), np.array([degree])
    column, offset = np.empty(100, np.int64), np.empty(100, np.int64)

    sample.draw_neighbors_cpu(ends, 1, degrees, sample.DISTINCT, KEY, 0, column, offset)

    assert len(set(offset.tolist())) == 100
    assert offset.max() > 2**31


@pytest.mark.parametrize("dtype", [np.int32, np.int64], ids=["int32", "int64"])
def test_pick_neighbors_reads_beyond_two_to_the_31_edges(dtype):
    # Pages that nobody writes take no memory.
    num_edges = 2**31 + 1000
    row = np.frombuffer(mmap.mmap(-1, num_edges * dtype().itemsize), dtype)
    row[-5:] = [3, 1, 4, 1, 5]
    start, degree, ends = np.array([num_edges - 5]), np.array([5]), np.array([5])
    empty, totals = np.empty(0, np.int64), np.array([0, 1, 0])
    column, offset, source, edge = (np.zeros(5, np.int64) for _ in range(4))

    sample.draw_neighbors_cpu(ends, 1, degree, sample.DISTINCT, KEY, 0, column, offset)
    arguments = start, degree, ends, 1
    rest = sample.DISTINCT, offset, totals, 0, 2
    sample.pick_neighbors_cpu(
        row, empty, sample.EDGE_POSITION, *arguments, *rest, column, source, edge
    )

    assert source.tolist() == [3, 1, 4, 1, 5]
    assert edge.tolist() == list(range(num_edges - 5, num_edges))
