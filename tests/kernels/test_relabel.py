import numpy as np
import pytest

from pyg_direct.kernels import reference_sampling as reference
from pyg_direct.kernels import relabel
from pyg_direct.kernels.dispatch import launch_shape
from pyg_direct.kernels.relabel import UNSEEN

NUM_NODES = 1500


def _hops(num_sampled):
    """Seeds with repeats, and what two hops reach."""
    rng = np.random.default_rng(42)
    seeds = rng.integers(0, NUM_NODES, 33)
    seeds[[3, 7]] = seeds[1]
    return seeds, [rng.integers(0, NUM_NODES, num_sampled) for _ in range(2)]


def _expected(seeds, hops):
    """Local ids from first principles: known nodes first, then new ones in order of id."""
    nodes = list(seeds)
    rows = []
    for sampled in hops:
        nodes += sorted(set(sampled.tolist()) - set(nodes))
        first = {node: i for i, node in reversed(list(enumerate(nodes)))}
        rows.append(np.array([first[node] for node in sampled], np.int64))
    return np.array(nodes), rows


def _run_cpu(version, suffix, seeds, hops):
    def call(name, *arguments):
        getattr(version, name + suffix)(*arguments)

    local, flags = np.full(NUM_NODES, UNSEEN, np.int32), np.zeros(24, np.uint8)
    call("place_seeds", seeds, local)
    nodes, rows = [seeds], []
    for sampled in hops:
        marks = np.zeros(5, np.int64)
        call("mark_nodes", sampled, local, flags)
        call("count_marks", local, flags, marks)
        new = np.empty(int(marks.sum()), np.int64)
        call("rank_marks", local, flags, marks.cumsum(), sum(map(len, nodes)), new)
        row = sampled.copy()
        call("relabel_nodes", row, local)
        nodes.append(new)
        rows.append(row)
    result = np.concatenate(nodes)
    call("forget_nodes", result, local)
    assert (local == UNSEEN).all()
    assert not flags.any()
    return result, rows


@pytest.mark.parametrize("num_sampled", [0, 1, 31, 33, 257, 4000])
@pytest.mark.parametrize(
    ("version", "suffix"), [(relabel, "_cpu"), (reference, "")], ids=["cpu", "reference"]
)
def test_relabel_on_the_cpu(version, suffix, num_sampled):
    seeds, hops = _hops(num_sampled)

    nodes, rows = _run_cpu(version, suffix, seeds, hops)

    expected_nodes, expected_rows = _expected(seeds, hops)
    np.testing.assert_array_equal(nodes, expected_nodes)
    for row, expected in zip(rows, expected_rows, strict=True):
        np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize("num_sampled", [1, 31, 33, 257])
def test_relabel_kernels(num_sampled, kernel_memory):
    seeds, hops = _hops(num_sampled)
    words, chunks = -(-NUM_NODES // 32), -(-NUM_NODES // 1024)
    unique, first = np.unique(seeds, return_index=True)
    tables, marks = np.zeros(3 * words, np.int64), np.zeros(chunks, np.int64)
    totals = np.array([0, len(seeds), 0, 0])
    bound, num_slots = 3, num_sampled + 4
    ends = np.array([0, num_sampled, num_sampled])
    rows = [np.concatenate([sampled, [-9] * 4]) for sampled in hops]
    new = [np.full(num_slots, -9) for _ in hops]

    with kernel_memory(unique, tables) as (u, t):
        relabel.place_seeds(*launch_shape(len(unique)), u, len(unique), t)
    for level, (row, new_nodes) in enumerate(zip(rows, new, strict=True), start=1):
        with kernel_memory(row, ends, tables, marks) as (r, e, t, m):
            relabel.mark_nodes(*launch_shape(num_slots), r, e, bound, num_slots, t, words, level)
            relabel.count_marks(*launch_shape(chunks), t, words, level, chunks, m)
        mark_ends = marks.cumsum()
        arrays = row, ends, tables, mark_ends, totals, first, new_nodes
        with kernel_memory(*arrays) as (r, e, t, m, s, f, n):
            relabel.rank_marks(*launch_shape(words), t, words, level, m, chunks, s, 0)
            relabel.relabel_nodes(
                *launch_shape(num_slots), r, e, bound, num_slots, t, words, level, s, 0, f, n
            )

    expected_nodes, expected_rows = _expected(seeds, hops)
    sizes = np.diff(totals[1:])
    found = [seeds, *(each[:size] for each, size in zip(new, sizes, strict=True))]
    np.testing.assert_array_equal(np.concatenate(found), expected_nodes)
    for row, expected in zip(rows, expected_rows, strict=True):
        np.testing.assert_array_equal(row[:num_sampled], expected)
        np.testing.assert_array_equal(row[num_sampled:], -9)
