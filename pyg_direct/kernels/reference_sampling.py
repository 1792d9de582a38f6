"""Plain versions of the sampling operations, to compare with; names and arguments as the fast ones.

Nothing here is parallel or clever: Floyd's draw is the sequence that was published, weighted draws
sort all times, and local ids come from ``numpy.unique``. Arrays are NumPy arrays on the CPU.
"""

from itertools import pairwise

import numpy as np

from pyg_direct.kernels import random
from pyg_direct.kernels.relabel import MARKED, NODES_PER_FLAG, UNSEEN
from pyg_direct.kernels.sample import DISTINCT, EDGE_PERMUTED, EDGE_POSITION, LAST, REPLACED
from pyg_direct.kernels.weighted import FRACTION_BITS


def random_words(key, stream, position, draw, turn):
    """Return four arrays of random words, for an array of draws."""
    counter = np.broadcast_arrays(position, draw, stream, turn)
    words = [np.asarray(word, np.uint64) for word in counter]
    keys = (np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32))
    return random.philox.py_func(*words, *keys)


def random_index(key, stream, position, draw, size):
    """Return uniform integers below ``size``, for an array of draws."""
    high, low, _, _ = random_words(key, stream, position, draw, 0)
    return random.scale_words.py_func(high, low, np.asarray(size, np.uint64)).astype(np.int64)


def random_exponential(key, stream, node, item):
    """Return one exponential, in units of ``2**-48``: von Neumann's runs of falling numbers."""
    whole, turn = 0, 0
    while True:
        words = [int(word) for word in random_words(key, stream, node, item, turn)]
        turn += 1
        falling, queue = [words[0]], words[2:]
        while True:
            if not queue:
                queue = [int(word) for word in random_words(key, stream, node, item, turn)][:2]
                turn += 1
            following = queue.pop(0)
            if following >= falling[-1]:
                break
            falling.append(following)
        if len(falling) % 2 == 1:
            return (whole << FRACTION_BITS) + (words[0] << 16) + (words[1] >> 16)
        whole += 1


def count_neighbors(
    colptr, num_dst, frontier, totals, place, fanout, is_replaced, start, degree, num
):
    """See ``pyg_direct.kernels.sample.count_neighbors_cpu``."""
    size = totals[place + 1] - totals[place]
    known = frontier[:size] < num_dst
    node = np.where(known, frontier[:size], 0)
    start[:size] = np.where(known, colptr[node], 0)
    degree[:size] = np.where(known, colptr[np.minimum(node + 1, num_dst)] - colptr[node], 0)
    if fanout < 0:
        num[:size] = degree[:size]
    elif is_replaced:
        num[:size] = np.where(degree[:size] > 0, fanout, 0)
    else:
        num[:size] = np.minimum(degree[:size], fanout)


def count_past_neighbors(
    colptr, num_dst, frontier, totals, place, fanout, is_replaced, start, degree, num,
    times, tree, seed_times,
):  # fmt: skip
    """See ``pyg_direct.kernels.sample.count_past_neighbors_cpu``."""
    for i, node in enumerate(frontier[: totals[place + 1] - totals[place]]):
        stop = 0
        start[i] = 0
        if node < num_dst:
            start[i], stop = colptr[node], colptr[node + 1]
        degree[i] = np.sum(times[start[i] : stop] <= seed_times[tree[i]])
        num[i] = degree[i] if fanout < 0 else min(degree[i], fanout)
        if is_replaced and fanout >= 0:
            num[i] = fanout if degree[i] > 0 else 0


def draw_neighbors(ends, num_nodes, degree, method, key, stream, column, offset):
    """See ``pyg_direct.kernels.sample.draw_neighbors_cpu``."""
    first = 0
    for i in range(num_nodes):
        num = ends[i] - first
        draws = np.arange(num)
        last = degree[i] - num + draws
        if method == REPLACED:
            drawn = random_index(key, stream, i, draws, degree[i])
        elif method == LAST or num == degree[i]:
            drawn = last
        else:
            drawn = random_index(key, stream, i, draws, last + 1)
        column[first : ends[i]] = i
        offset[first : ends[i]] = drawn
        first = ends[i]


def pick_neighbors(
    row, perm, edge_form, start, degree, ends, num_nodes, method, offset, totals, place,
    edges_place, column, source, edge,
):  # fmt: skip
    """See ``pyg_direct.kernels.sample.pick_neighbors_cpu``."""
    totals[edges_place] = ends[num_nodes - 1]
    first = 0
    for i in range(num_nodes):
        slots = slice(first, ends[i])
        rest = degree[i] - (ends[i] - first)
        position = start[i] + offset[slots]
        if method == DISTINCT and rest > 0:
            position = start[i] + _floyd(offset[slots], rest)
        source[slots] = row[position]
        column[slots] = totals[place] + i
        if edge_form in (EDGE_POSITION, EDGE_PERMUTED):
            edge[slots] = perm[position] if edge_form == EDGE_PERMUTED else position
        first = ends[i]


def _floyd(drawn, rest):
    chosen: list[int] = []
    for draw, value in enumerate(drawn):
        chosen.append(int(value) if value not in chosen else int(rest + draw))
    return np.array(chosen, np.int64)


def draw_earliest(ends, num_nodes, start, degree, weight, key, stream, column, offset):
    """See ``pyg_direct.kernels.weighted.draw_earliest_cpu``."""
    first = 0
    for i in range(num_nodes):
        num, items = ends[i] - first, np.arange(degree[i])
        if 0 < num < degree[i]:
            times = np.array([random_exponential(key, stream, i, item) for item in items])
            times = times.astype(np.float64) / weight[start[i] : start[i] + degree[i]]
            items = np.argsort(times, kind="stable")[:num]
        column[first : ends[i]] = i
        offset[first : ends[i]] = items[:num]
        first = ends[i]


def draw_by_sums(ends, num_nodes, start, degree, weight_sum, key, stream, column, offset):
    """See ``pyg_direct.kernels.weighted.draw_by_sums_cpu``."""
    first = 0
    for i in range(num_nodes):
        sums = weight_sum[start[i] : start[i] + degree[i]]
        for slot in range(first, ends[i]):
            high, low, _, _ = random_words(key, stream, i, slot - first, 0)
            fraction = float(((int(high) << 32) | int(low)) >> 11) * 2.0**-53
            below = np.searchsorted(sums, fraction * sums[-1], side="right")
            column[slot] = i
            offset[slot] = min(below, degree[i] - 1)
        first = ends[i]


def sum_weights(colptr, weight, weight_sum):
    """See ``pyg_direct.kernels.weighted.sum_weights_cpu``."""
    for start, stop in pairwise(colptr):
        weight_sum[start:stop] = np.cumsum(weight[start:stop])


def place_seeds(seeds, local):
    """See ``pyg_direct.kernels.relabel.place_seeds_cpu``."""
    unique, first = np.unique(seeds, return_index=True)
    local[unique] = first


def mark_nodes(nodes, local, flags):
    """See ``pyg_direct.kernels.relabel.mark_nodes_cpu``."""
    new = nodes[(local[nodes] == UNSEEN) | (local[nodes] == MARKED)]
    local[new] = MARKED
    flags[new // NODES_PER_FLAG] = 1


def count_marks(local, flags, num_marks):
    """See ``pyg_direct.kernels.relabel.count_marks_cpu``."""
    nodes_per_range = -(-len(flags) // len(num_marks)) * NODES_PER_FLAG
    part = np.flatnonzero(local == MARKED) // max(nodes_per_range, 1)
    num_marks[:] = np.bincount(part, minlength=len(num_marks))


def rank_marks(local, flags, mark_ends, base, nodes):
    """See ``pyg_direct.kernels.relabel.rank_marks_cpu``."""
    nodes[:] = np.flatnonzero(local == MARKED)
    local[nodes] = base + np.arange(len(nodes))
    flags[:] = 0


def relabel_nodes(nodes, local):
    """See ``pyg_direct.kernels.relabel.relabel_nodes_cpu``."""
    nodes[:] = local[nodes]


def forget_nodes(nodes, local):
    """See ``pyg_direct.kernels.relabel.forget_nodes_cpu``."""
    local[nodes] = UNSEEN
