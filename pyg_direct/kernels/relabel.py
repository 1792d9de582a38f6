"""Give sampled nodes consecutive local ids, in ascending order of node id within a level.

Level 0 of a batch are the seeds, level ``h + 1`` the nodes first reached in hop ``h``. Local ids of
level ``l`` start at ``totals[place + l]``.

The CUDA version keeps a table for each level, one int64 for 32 nodes: 32 bits that mark the
level's nodes, and above them how many nodes of the level come before. The local id of a node is
then one read and a count of bits, nothing is sorted, and a table takes two bits a node (rank over
a bit vector: Jacobson, "Space-efficient static trees and graphs", 1989). Level 0 keeps the user's
order: ``first_seed[rank]`` is the first position of a seed.

The CPU version keeps an int32 a node: its local id, ``UNSEEN`` or ``MARKED``; and a byte for 64
nodes that says where to look for marks.

Shape legend: ``K`` sampled edges, ``N`` nodes, ``W = ceil(N / 32)`` words, ``C = ceil(W / 32)``
chunks.
"""

import numpy as np
from numba import cuda, njit, prange

from pyg_direct.kernels.atomic import or_word
from pyg_direct.kernels.cpu import cpu_kernel
from pyg_direct.kernels.launch import CudaKernel

NODES_PER_WORD = 32
WORDS_PER_CHUNK = 32
WORD_SHIFT = 5
LOW_BITS = 31
BASE_SHIFT = 32
MARK_MASK = 0xFFFFFFFF

UNSEEN = -1
MARKED = -2
NODES_PER_FLAG = 64
FLAG_SHIFT = 6


@njit(cache=True)
def place_seeds_cpu(seeds, local):
    """Write the position of each seed to ``local``, shape (N,): the first one where it repeats."""
    for i in range(len(seeds) - 1, -1, -1):
        local[seeds[i]] = i


def _mark_nodes(nodes, local, flags):
    """Mark the nodes not seen before; ``nodes`` has shape (K,), ``flags`` (ceil(N / 64),)."""
    for i in prange(len(nodes)):
        node = nodes[i]
        if local[node] == UNSEEN:
            # Threads may both come here; they write the same.
            local[node] = MARKED
            flags[node >> FLAG_SHIFT] = 1


def _count_marks(local, flags, num_marks):
    """Write the number of marked nodes in each of ``len(num_marks)`` equal ranges of flags."""
    flags_per_range = -(-len(flags) // len(num_marks))
    for part in prange(len(num_marks)):
        first = part * flags_per_range
        total = 0
        for flag in range(first, min(first + flags_per_range, len(flags))):
            if flags[flag]:
                node = flag << FLAG_SHIFT
                for each in range(node, min(node + NODES_PER_FLAG, len(local))):
                    total += local[each] == MARKED
        num_marks[part] = total


def _rank_marks(local, flags, mark_ends, base, nodes):
    """Give the marked nodes ids from ``base`` on, list them in ``nodes``, and clear the flags."""
    flags_per_range = -(-len(flags) // len(mark_ends))
    for part in prange(len(mark_ends)):
        rank = mark_ends[part - 1] if part > 0 else 0
        first = part * flags_per_range
        for flag in range(first, min(first + flags_per_range, len(flags))):
            if flags[flag]:
                flags[flag] = 0
                node = flag << FLAG_SHIFT
                for each in range(node, min(node + NODES_PER_FLAG, len(local))):
                    if local[each] == MARKED:
                        local[each] = base + rank
                        nodes[rank] = each
                        rank += 1


def _relabel_nodes(nodes, local):
    """Replace each node id by its local id, in place; ``UNSEEN`` where it has none."""
    for i in prange(len(nodes)):
        nodes[i] = local[nodes[i]]


def _forget_nodes(nodes, local):
    """Make ``nodes`` unseen again."""
    for i in prange(len(nodes)):
        local[nodes[i]] = UNSEEN


mark_nodes_cpu = cpu_kernel(_mark_nodes)
count_marks_cpu = cpu_kernel(_count_marks)
rank_marks_cpu = cpu_kernel(_rank_marks)
relabel_nodes_cpu = cpu_kernel(_relabel_nodes)
forget_nodes_cpu = cpu_kernel(_forget_nodes)


@cuda.jit(device=True)
def find_local(tables, num_words, level, totals, place, first_seed, node):
    """Return the local id of a node in levels 0 to ``level``, or ``UNSEEN``."""
    word = node >> WORD_SHIFT
    bit = node & LOW_BITS
    for each in range(level, -1, -1):
        entry = tables[each * num_words + word]
        if (entry >> bit) & 1:
            rank = (entry >> BASE_SHIFT) + cuda.popc(entry & ((1 << bit) - 1))
            return first_seed[rank] if each == 0 else totals[place + each] + rank
    return UNSEEN


def place_seeds_kernel(unique_seeds, num_seeds, table):
    """Write level 0's table from the distinct seeds in ascending order, shape (num_seeds,)."""
    for i in range(cuda.grid(1), num_seeds, cuda.gridsize(1)):
        word = unique_seeds[i] >> WORD_SHIFT
        if i == 0 or unique_seeds[i - 1] >> WORD_SHIFT != word:
            bits = 0
            following = i
            while following < num_seeds and unique_seeds[following] >> WORD_SHIFT == word:
                bits |= 1 << (unique_seeds[following] & LOW_BITS)
                following += 1
            table[word] = (i << BASE_SHIFT) | bits


def mark_nodes_kernel(nodes, ends, bound, num_slots, tables, num_words, level):
    """Mark in table ``level`` the nodes that no earlier level has; ``nodes`` has shape (K,)."""
    total = ends[bound - 1]
    for i in range(cuda.grid(1), num_slots, cuda.gridsize(1)):
        if i >= total:
            return
        node = nodes[i]
        word = node >> WORD_SHIFT
        bit = node & LOW_BITS
        is_seen = False
        for each in range(level + 1):
            is_seen = is_seen or (tables[each * num_words + word] >> bit) & 1 == 1
        if not is_seen:
            or_word(tables, level * num_words + word, 1 << bit)


def count_marks_kernel(tables, num_words, level, num_chunks, num_marks):
    """Write the number of marked nodes of each chunk of ``WORDS_PER_CHUNK`` words, shape (C,)."""
    for chunk in range(cuda.grid(1), num_chunks, cuda.gridsize(1)):
        first = chunk * WORDS_PER_CHUNK
        total = 0
        for word in range(first, min(first + WORDS_PER_CHUNK, num_words)):
            total += cuda.popc(tables[level * num_words + word])
        num_marks[chunk] = total


def rank_marks_kernel(tables, num_words, level, mark_ends, num_chunks, totals, place):
    """Put the number of earlier nodes beside the marks, from the running sum of marks."""
    if cuda.grid(1) == 0:
        totals[place + level + 1] = totals[place + level] + mark_ends[num_chunks - 1]
    for word in range(cuda.grid(1), num_words, cuda.gridsize(1)):
        entry = tables[level * num_words + word]
        if entry != 0:
            chunk = word // WORDS_PER_CHUNK
            rank = mark_ends[chunk - 1] if chunk > 0 else 0
            for earlier in range(chunk * WORDS_PER_CHUNK, word):
                rank += cuda.popc(tables[level * num_words + earlier] & MARK_MASK)
            tables[level * num_words + word] = (rank << BASE_SHIFT) | entry


def relabel_nodes_kernel(
    nodes, ends, bound, num_slots, tables, num_words, level, totals, place, first_seed, new_nodes
):
    """Replace each node id by its local id, in place, and list the nodes of level ``level``.

    A node with no local id becomes ``UNSEEN``.
    """
    total = ends[bound - 1]
    base = totals[place + level]
    for i in range(cuda.grid(1), num_slots, cuda.gridsize(1)):
        if i >= total:
            return
        node = nodes[i]
        local = find_local(tables, num_words, level, totals, place, first_seed, node)
        nodes[i] = local
        if level > 0 and local >= base:
            # Threads with the same node write the same.
            new_nodes[local - base] = node


INT64, NUMBER = np.int64, None

place_seeds = CudaKernel(place_seeds_kernel, INT64, NUMBER, INT64)
mark_nodes = CudaKernel(mark_nodes_kernel, INT64, INT64, NUMBER, NUMBER, INT64, NUMBER, NUMBER)
count_marks = CudaKernel(count_marks_kernel, INT64, NUMBER, NUMBER, NUMBER, INT64)
rank_marks = CudaKernel(rank_marks_kernel, INT64, NUMBER, NUMBER, INT64, NUMBER, INT64, NUMBER)
relabel_nodes = CudaKernel(
    relabel_nodes_kernel,
    INT64, INT64, NUMBER, NUMBER, INT64, NUMBER, NUMBER, INT64, NUMBER, INT64, INT64,
)  # fmt: skip
