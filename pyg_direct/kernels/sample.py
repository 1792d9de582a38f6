"""Draw neighbours of a frontier: count them, draw offsets, pick the edges.

Shape legend: ``N`` nodes of the frontier, ``K`` drawn edges, ``D`` destinations, ``E`` edges.
``ends`` is the running sum of the number of edges of each node, so that node ``i`` owns the slots
``[ends[i - 1], ends[i])``. A frontier is level ``place`` of its node type: its nodes have the
local ids ``[totals[place], totals[place + 1])``. CUDA kernels take bounds instead of ``N`` and
``K``, because the host need not know them.

Distinct neighbours are drawn by Floyd's algorithm (Bentley, Floyd, "Programming pearls: a sample
of brilliance", 1987): draw ``j`` of ``k`` is uniform in ``[0, degree - k + j]``, and if its value
is taken already, ``degree - k + j`` is. A value is taken if an earlier draw had it, or if it is
``degree - k + c`` and draw ``c`` found its own value taken; so each draw can be settled without
waiting for another.
"""

import numpy as np
from numba import cuda, njit, prange

from pyg_direct.kernels.cpu import cpu_kernel
from pyg_direct.kernels.dispatch import shared_function
from pyg_direct.kernels.launch import CudaKernel
from pyg_direct.kernels.random import random_index

DISTINCT = 0
REPLACED = 1
LAST = 2
GIVEN = 3

EDGE_NONE = 0
EDGE_POSITION = 1
EDGE_PERMUTED = 2


@njit(cache=True)
def num_drawn(degree, fanout, is_replaced):
    """Return how many edges a node of ``degree`` gives; all of them for a negative fan-out."""
    if fanout < 0 or degree == 0 or (degree <= fanout and not is_replaced):
        return degree
    return fanout


@shared_function
def first_later(times, start, stop, time):
    """Return the first position in ``[start, stop)`` whose time is after ``time``, or ``stop``."""
    while start < stop:
        middle = (start + stop) >> 1
        if times[middle] > time:
            stop = middle
        else:
            start = middle + 1
    return start


@shared_function
def slot_owner(ends, num_nodes, slot):
    """Return the node that owns a slot."""
    low, high = 0, num_nodes - 1
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] > slot:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True)
def draw_offset(method, key, stream, node, draw, num, degree):
    """Return a draw among ``degree`` neighbours, for ``DISTINCT`` one yet to be settled."""
    if method == REPLACED:
        return random_index(key, stream, node, draw, degree)
    last = degree - num + draw
    if method == LAST or num == degree:
        return last
    return random_index(key, stream, node, draw, last + 1)


@shared_function
def settle_offset(offset, first, draw, rest):
    """Return the neighbour that a draw takes; the node's draws start at ``offset[first]``."""
    current = draw
    while True:
        value = offset[first + current]
        for slot in range(first, first + current):
            if offset[slot] == value:
                return rest + draw
        if value < rest or value - rest >= current:
            return offset[first + draw]
        current = value - rest


def _count_neighbors(
    colptr, num_dst, frontier, totals, place, fanout, is_replaced, start, degree, num
):
    """Write where each node's edges start, how many there are, and how many to draw, shape (N,)."""
    for i in prange(totals[place + 1] - totals[place]):
        node = frontier[i]
        start[i] = colptr[node] if node < num_dst else 0
        degree[i] = colptr[node + 1] - start[i] if node < num_dst else 0
        num[i] = num_drawn(degree[i], fanout, is_replaced)


def _count_past_neighbors(
    colptr, num_dst, frontier, totals, place, fanout, is_replaced, start, degree, num,
    times, tree, seed_times,
):  # fmt: skip
    """As ``count_neighbors``, but only edges of ``times`` not after the time of the node's seed.

    ``times``, shape (E,), rises along the edges of each destination; node ``i`` belongs to the
    tree of seed ``tree[i]``, whose time is ``seed_times[tree[i]]``.
    """
    for i in prange(totals[place + 1] - totals[place]):
        node = frontier[i]
        start[i] = colptr[node] if node < num_dst else 0
        stop = colptr[node + 1] if node < num_dst else 0
        degree[i] = first_later(times, start[i], stop, seed_times[tree[i]]) - start[i]
        num[i] = num_drawn(degree[i], fanout, is_replaced)


def _draw_neighbors(ends, num_nodes, degree, method, key, stream, column, offset):
    """Write the owner of each slot to ``column``, and what it draws to ``offset``, shape (K,)."""
    for i in prange(num_nodes):
        first = ends[i - 1] if i > 0 else 0
        num = ends[i] - first
        for draw in range(num):
            column[first + draw] = i
            offset[first + draw] = draw_offset(method, key, stream, i, draw, num, degree[i])


def _pick_neighbors(
    row, perm, edge_form, start, degree, ends, num_nodes, method, offset, totals, place,
    edges_place, column, source, edge,
):  # fmt: skip
    """Write source, local id of the destination, and edge id of each slot, shape (K,).

    ``edge`` takes the position in ``row``, its ``perm``, or nothing, as ``edge_form`` says. The
    number of edges goes to ``totals[edges_place]``.
    """
    totals[edges_place] = ends[num_nodes - 1]
    for i in prange(num_nodes):
        first = ends[i - 1] if i > 0 else 0
        rest = degree[i] - (ends[i] - first)
        for slot in range(first, ends[i]):
            chosen = offset[slot]
            if method == DISTINCT and rest > 0:
                chosen = settle_offset(offset, first, slot - first, rest)
            position = start[i] + chosen
            source[slot] = row[position]
            column[slot] = totals[place] + i
            if edge_form == EDGE_PERMUTED:
                edge[slot] = perm[position]
            elif edge_form == EDGE_POSITION:
                edge[slot] = position


count_neighbors_cpu = cpu_kernel(_count_neighbors)
count_past_neighbors_cpu = cpu_kernel(_count_past_neighbors)
draw_neighbors_cpu = cpu_kernel(_draw_neighbors)
pick_neighbors_cpu = cpu_kernel(_pick_neighbors)


def count_neighbors_kernel(
    colptr, num_dst, frontier, totals, place, bound, fanout, is_replaced, start, degree, num
):
    """CUDA version of ``count_neighbors``; ``num`` is 0 up to ``bound``."""
    size = totals[place + 1] - totals[place]
    for i in range(cuda.grid(1), bound, cuda.gridsize(1)):
        if i >= size:
            num[i] = 0
            continue
        node = frontier[i]
        begin, stop = 0, 0
        if node < num_dst:
            begin, stop = colptr[node], colptr[node + 1]
        start[i] = begin
        degree[i] = stop - begin
        num[i] = num_drawn(stop - begin, fanout, is_replaced)


def count_past_neighbors_kernel(
    colptr, num_dst, frontier, totals, place, bound, fanout, is_replaced, start, degree, num,
    times, tree, seed_times,
):  # fmt: skip
    """CUDA version of ``count_past_neighbors``; ``num`` is 0 up to ``bound``."""
    size = totals[place + 1] - totals[place]
    for i in range(cuda.grid(1), bound, cuda.gridsize(1)):
        if i >= size:
            num[i] = 0
            continue
        node = frontier[i]
        begin, stop = 0, 0
        if node < num_dst:
            begin, stop = colptr[node], colptr[node + 1]
        start[i] = begin
        degree[i] = first_later(times, begin, stop, seed_times[tree[i]]) - begin
        num[i] = num_drawn(degree[i], fanout, is_replaced)


def draw_neighbors_kernel(ends, bound, num_slots, degree, method, key, stream, column, offset):
    """CUDA version of ``draw_neighbors``, one thread a slot; ``key`` is in memory."""
    total = ends[bound - 1]
    for slot in range(cuda.grid(1), num_slots, cuda.gridsize(1)):
        if slot >= total:
            return
        i = slot_owner(ends, bound, slot)
        first = ends[i - 1] if i > 0 else 0
        column[slot] = i
        offset[slot] = draw_offset(
            method, key[0], stream, i, slot - first, ends[i] - first, degree[i]
        )


def pick_neighbors_kernel(
    row, perm, edge_form, start, degree, ends, bound, num_slots, method, offset, totals, place,
    edges_place, column, source, edge,
):  # fmt: skip
    """CUDA version of ``pick_neighbors``, one thread a slot."""
    total = ends[bound - 1]
    if cuda.grid(1) == 0:
        totals[edges_place] = total
    for slot in range(cuda.grid(1), num_slots, cuda.gridsize(1)):
        if slot >= total:
            return
        i = column[slot]
        chosen = offset[slot]
        if method == DISTINCT:
            first = ends[i - 1] if i > 0 else 0
            rest = degree[i] - (ends[i] - first)
            if rest > 0:
                chosen = settle_offset(offset, first, slot - first, rest)
        position = start[i] + chosen
        source[slot] = row[position]
        column[slot] = totals[place] + i
        if edge_form == EDGE_PERMUTED:
            edge[slot] = perm[position]
        elif edge_form == EDGE_POSITION:
            edge[slot] = position


INT64, INT32, NUMBER = np.int64, np.int32, None
_COUNT = (INT64, NUMBER, INT64, INT64, *[NUMBER] * 4, INT64, INT64, INT64)
_PICK = (
    INT64, NUMBER, INT64, INT64, INT64, *[NUMBER] * 3, INT64, INT64, NUMBER, NUMBER,
    INT64, INT64, INT64,
)  # fmt: skip

count_neighbors = CudaKernel(count_neighbors_kernel, *_COUNT)
count_past_neighbors = CudaKernel(count_past_neighbors_kernel, *_COUNT, INT64, INT64, INT64)
draw_neighbors = CudaKernel(
    draw_neighbors_kernel, INT64, NUMBER, NUMBER, INT64, NUMBER, INT64, NUMBER, INT64, INT64
)
pick_neighbors = {
    4: CudaKernel(pick_neighbors_kernel, INT32, *_PICK),
    8: CudaKernel(pick_neighbors_kernel, INT64, *_PICK),
}
