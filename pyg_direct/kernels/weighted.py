"""Draw neighbours in proportion to edge weights, bit for bit the same on the CPU and the GPU.

Without replacement: each edge gets an exponential time divided by its weight, and the earliest
edges are drawn (Efraimidis, Spirakis, "Weighted random sampling with a reservoir", 2006). The
exponential comes from comparing random words (von Neumann, "Various techniques used in connection
with random digits", 1951), so that no logarithm is rounded one way here and another way there.
With replacement: a uniform fraction of the sum of weights is looked up in the running sums.

What is left in floating point are single products and quotients, which IEEE 754 rounds in one way,
and nothing a compiler could fuse.

Shape legend: ``N`` nodes of the frontier, ``K`` drawn edges, ``E`` edges, ``L = NUM_LANES`` lists
a node.
"""

import numpy as np
from numba import cuda, njit, prange

from pyg_direct.kernels.cpu import cpu_kernel
from pyg_direct.kernels.dispatch import shared_function
from pyg_direct.kernels.launch import CudaKernel
from pyg_direct.kernels.random import random_fraction, random_words
from pyg_direct.kernels.sample import slot_owner

NUM_LANES = 32
FRACTION_BITS = 48
HIGH_WORD_SHIFT = np.uint64(16)


@njit(cache=True)
def random_exponential(key, stream, node, item):
    """Return a standard exponential int64, in units of ``2**-FRACTION_BITS``."""
    whole = 0
    turn = 0
    while True:
        last, extra, third, fourth = random_words(key, stream, node, item, turn)
        fraction = (last << HIGH_WORD_SHIFT) | (extra >> HIGH_WORD_SHIFT)
        run = 1
        while True:
            turn += 1
            if third >= last:
                break
            run += 1
            last = third
            if fourth >= last:
                break
            run += 1
            last = fourth
            third, fourth, _, _ = random_words(key, stream, node, item, turn)
        if run & 1:
            return (whole << FRACTION_BITS) + np.int64(fraction)
        whole += 1


@shared_function
def insert_earliest(times, items, first, size, room, time, item):
    """Insert into a list in ascending order of (time, item) and return its new size.

    The list stands at ``[first, first + size)`` and keeps the ``room`` earliest.
    """
    if size == room:
        worst = first + size - 1
        if times[worst] < time or (times[worst] == time and items[worst] < item):
            return size
        size -= 1
    at = first + size
    while at > first and (times[at - 1] > time or (times[at - 1] == time and items[at - 1] > item)):
        times[at] = times[at - 1]
        items[at] = items[at - 1]
        at -= 1
    times[at] = time
    items[at] = item
    return size + 1


@shared_function
def draw_by_sum(key, stream, node, draw, weight_sum, start, degree):
    """Return the neighbour under a uniform fraction of ``weight_sum[start + degree - 1]``."""
    target = random_fraction(key, stream, node, draw) * weight_sum[start + degree - 1]
    low, high = 0, degree - 1
    while low < high:
        middle = (low + high) >> 1
        if weight_sum[start + middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


def _draw_earliest(ends, num_nodes, start, degree, weight, key, stream, column, offset):
    """Write owner and distinct neighbour of each slot, earliest first.

    Where a node draws all its neighbours, they come in order of position.
    """
    for i in prange(num_nodes):
        first = ends[i - 1] if i > 0 else 0
        num = ends[i] - first
        times = np.empty(num, np.float64)
        size = 0
        for item in range(degree[i]):
            if num == degree[i]:
                offset[first + item] = item
            else:
                time = random_exponential(key, stream, i, item) / weight[start[i] + item]
                size = insert_earliest(times, offset[first : first + num], 0, size, num, time, item)
        for slot in range(first, first + num):
            column[slot] = i


def _draw_by_sums(ends, num_nodes, start, degree, weight_sum, key, stream, column, offset):
    """Write owner and neighbour of each slot, with replacement; ``weight_sum`` has shape (E,)."""
    for i in prange(num_nodes):
        first = ends[i - 1] if i > 0 else 0
        for slot in range(first, ends[i]):
            column[slot] = i
            offset[slot] = draw_by_sum(
                key, stream, i, slot - first, weight_sum, start[i], degree[i]
            )


def _sum_weights(colptr, weight, weight_sum):
    """Write the running sum of the weights of each destination's edges, shape (E,)."""
    for node in prange(len(colptr) - 1):
        total = 0.0
        for position in range(colptr[node], colptr[node + 1]):
            total += weight[position]
            weight_sum[position] = total


draw_earliest_cpu = cpu_kernel(_draw_earliest)
draw_by_sums_cpu = cpu_kernel(_draw_by_sums)
sum_weights_cpu = cpu_kernel(_sum_weights)


def list_earliest_kernel(
    ends, first_node, last_node, start, degree, weight, key, stream, fanout, times, items, sizes
):
    """First half of ``draw_earliest``: each lane lists the earliest of its share.

    ``times`` and ``items`` have shape (last_node - first_node, L, fanout), ``sizes`` (.., L).
    ``key`` is in memory.
    """
    num_lists = (last_node - first_node) * NUM_LANES
    for place in range(cuda.grid(1), num_lists, cuda.gridsize(1)):
        i = first_node + place // NUM_LANES
        num = ends[i] - (ends[i - 1] if i > 0 else 0)
        size = 0
        if num > 0 and num < degree[i]:
            for item in range(place % NUM_LANES, degree[i], NUM_LANES):
                time = random_exponential(key[0], stream, i, item) / weight[start[i] + item]
                size = insert_earliest(times, items, place * fanout, size, num, time, item)
        sizes[place] = size


@shared_function
def take_earliest(times, items, sizes, lane_0, fanout):
    """Return the list, of the ``NUM_LANES`` from ``lane_0`` on, that begins with the earliest."""
    best = -1
    for each in range(lane_0, lane_0 + NUM_LANES):
        if sizes[each] > 0:
            head, record = each * fanout, best * fanout
            if best < 0 or (
                times[head] < times[record]
                or (times[head] == times[record] and items[head] < items[record])
            ):
                best = each
    return best


def merge_earliest_kernel(
    ends, first_node, last_node, degree, fanout, times, items, sizes, column, offset
):
    """Second half of ``draw_earliest``, one thread a node: take the heads of its lists in order.

    ``sizes`` is overwritten: what is left of each list.
    """
    for i in range(first_node + cuda.grid(1), last_node, cuda.gridsize(1)):
        first = ends[i - 1] if i > 0 else 0
        num = ends[i] - first
        lane_0 = (i - first_node) * NUM_LANES
        for slot in range(first, first + num):
            column[slot] = i
            offset[slot] = slot - first
            if num < degree[i]:
                best = take_earliest(times, items, sizes, lane_0, fanout)
                offset[slot] = items[best * fanout]
                sizes[best] -= 1
                for each in range(best * fanout, best * fanout + sizes[best]):
                    times[each] = times[each + 1]
                    items[each] = items[each + 1]


def draw_by_sums_kernel(
    ends, bound, num_slots, start, degree, weight_sum, key, stream, column, offset
):
    """CUDA version of ``draw_by_sums``, one thread a slot; ``key`` is in memory."""
    total = ends[bound - 1]
    for slot in range(cuda.grid(1), num_slots, cuda.gridsize(1)):
        if slot >= total:
            return
        i = slot_owner(ends, bound, slot)
        first = ends[i - 1] if i > 0 else 0
        column[slot] = i
        offset[slot] = draw_by_sum(key[0], stream, i, slot - first, weight_sum, start[i], degree[i])


INT64, FLOAT64, NUMBER = np.int64, np.float64, None

list_earliest = CudaKernel(
    list_earliest_kernel,
    INT64, NUMBER, NUMBER, INT64, INT64, FLOAT64, INT64, NUMBER, NUMBER, FLOAT64, INT64, INT64,
)  # fmt: skip
merge_earliest = CudaKernel(
    merge_earliest_kernel,
    INT64, NUMBER, NUMBER, INT64, NUMBER, FLOAT64, INT64, INT64, INT64, INT64,
)  # fmt: skip
draw_by_sums = CudaKernel(
    draw_by_sums_kernel,
    INT64, NUMBER, NUMBER, INT64, INT64, FLOAT64, INT64, NUMBER, INT64, INT64,
)  # fmt: skip
