"""How warps walk scattered rows: which lane touches which word of which row.

Rows are bytes, so any dtype of fixed size and any trailing shape will do. Lanes walk the aligned
words that a row touches, from the 128-byte line that holds its first byte, so that every request
over the bus is one whole line of the real address, however the row lies; lanes before the row idle.
(Min et al. 2021, "Large Graph Convolutional Network Training with GPU-Oriented Data Communication
Architecture", section 4.3, shifts the lanes round the row instead.)

Warps take the next rows by ticket, in order: requests in flight then fall into a narrow window of
addresses, which is what translation over the bus rewards.

Shape legend: ``R`` rows of a table, ``N`` requested rows, ``B`` bytes a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from pyg_direct.kernels.launch import CudaKernel, Span, address_of, span_of
from pyg_direct.kernels.ticket import LANES_PER_WARP, MAX_WARPS_PER_BLOCK

LINE_BYTES = 128
WORD_BYTES = 4
LOG_LANES_PER_WARP, LOG_LINE_BYTES, LOG_WORD_BYTES = (
    size.bit_length() - 1 for size in (LANES_PER_WARP, LINE_BYTES, WORD_BYTES)
)
# Of a thread: a block of 1,024 must fit into the 65,536 registers of a multiprocessor.
MAX_REGISTERS = 64
# What ``pick_row`` says where there is no row.
NO_ROW = (-1, 0)


@dataclass(frozen=True, slots=True)
class RowWalk:
    """How the lanes of a warp walk rows of ``B`` bytes.

    Attributes
    ----------
    piece_bytes : int
        4, 2 or 1: the widest store that every row allows.
    log_lanes : int
        Lanes that share a row, as a power of two; a warp reads several short rows at once.
    num_steps : int
        Words of each lane, at most, in a row.
    """

    piece_bytes: int
    log_lanes: int
    num_steps: int


@cache
def row_walk(row_bytes: int, table_shift: int, rows_shift: int) -> RowWalk:
    """Return how rows are walked.

    Parameters
    ----------
    row_bytes : int
        ``B``.
    table_shift, rows_shift : int
        Addresses of the first row on both sides, modulo ``LINE_BYTES`` and ``WORD_BYTES``.
    """
    unit = LINE_BYTES if row_bytes > LINE_BYTES else WORD_BYTES
    # The first byte of a row stands this far at most behind the place where its walk begins.
    furthest = unit - gcd(unit, row_bytes, table_shift)
    words = -(-(row_bytes + furthest) // WORD_BYTES)
    lanes = min(LANES_PER_WARP, 1 << (words - 1).bit_length())
    piece_bytes = gcd(WORD_BYTES, row_bytes, table_shift, rows_shift)
    return RowWalk(piece_bytes, lanes.bit_length() - 1, -(-words // lanes))


class GatherLaunch(NamedTuple):
    """What a launch needs beside its rows.

    Attributes
    ----------
    tickets : int64 device array, shape (2,)
        Zeros, which the kernel leaves behind again; for the use of one stream.
    wrong : int64 array, shape (1,)
        Where a GPU can write an id that is not in ``[0, R)``; untouched if there is none.
    rows_per_ticket : int
        Rows that a warp takes at a time.
    num_warps, max_blocks : int
        Warps to launch, about, and into how many blocks at most: so many multiprocessors are kept
        busy.
    stream : int
        CUDA stream handle.
    num_used : int64 device array, shape (1,), optional
        How many of the ids to read, from the first on; more than there are means all. By default
        all.
    """

    tickets: Any
    wrong: Any
    rows_per_ticket: int = 8
    num_warps: int = MAX_WARPS_PER_BLOCK
    max_blocks: int = 1
    stream: int = 0
    num_used: Any = None

    def num_ids(self, index: Any) -> tuple[int, int, Any]:
        """Return what kernels pass to ``limit_ids``."""
        has_num_used = self.num_used is not None
        return index.shape[0], int(has_num_used), self.num_used if has_num_used else self.tickets


def launch_walk(
    kernel_for: Callable[[int, int], CudaKernel],
    table: Any,
    index: Any,
    rows: Any,
    places: Any,
    row_bytes: int,
    launch: GatherLaunch,
    *more: Any,
) -> None:
    """Launch a kernel that walks rows; the call does not wait.

    Parameters
    ----------
    kernel_for : callable
        Returns the kernel for a number of bytes a piece, and a number of bytes an id.
    table : array, R rows of B bytes
        At any address.
    index : int32 or int64 device array, shape (N,)
        Ids of rows.
    rows : device array, N rows of B bytes
        The other side.
    places : int64 device array, shape (N,), or None
        Where in ``rows`` the row of each id stands; None for its own place.
    row_bytes : int
        ``B``.
    launch : GatherLaunch
        How to launch.
    *more
        Arguments of the kernel behind those that every walk has.
    """
    table = span_of(table)
    walk, words, shift = walk_of(table, rows, row_bytes)
    kernel_for(walk.piece_bytes, index.itemsize)(
        *walk_shape(launch), words, shift, index, index if places is None else places,
        int(places is not None), rows, *launch.num_ids(index), table.num_bytes // row_bytes,
        row_bytes, walk.num_steps, walk.log_lanes, launch.rows_per_ticket, launch.tickets,
        launch.wrong, *more, stream=launch.stream,
    )  # fmt: skip


def walk_of(table: Span, rows: Any, row_bytes: int) -> tuple[RowWalk, Span, int]:
    """Return how a table is walked, its words from a line on, and where in them it starts.

    Parameters
    ----------
    table : Span
        R rows of B bytes.
    rows : array
        The other side.
    row_bytes : int
        ``B``.
    """
    shift = table.address % LINE_BYTES
    # The walk counts words from a line, and its last word may end behind the last row.
    num_bytes = -(-(table.num_bytes + shift) // WORD_BYTES) * WORD_BYTES
    walk = row_walk(row_bytes, shift, address_of(rows) % WORD_BYTES)
    return walk, Span(table.address - shift, num_bytes), shift


def walk_shape(launch: GatherLaunch) -> tuple[int, int]:
    """Return blocks, and threads a block."""
    warps_per_block = -(-launch.num_warps // launch.max_blocks)
    return -(-launch.num_warps // warps_per_block), LANES_PER_WARP * warps_per_block


@cuda.jit(device=True)
def limit_ids(num_ids, has_num_used, num_used):
    """Return how many ids a launch reads."""
    return min(num_ids, num_used[0]) if has_num_used else num_ids


@cuda.jit(device=True)
def num_turns(first, stop, log_lanes):
    """Return how many turns a warp takes for the ids from ``first`` to ``stop``.

    In a turn it reads as many rows at once as share its lanes, in the steps of ``RowWalk``.
    """
    rows_per_turn = LANES_PER_WARP >> log_lanes
    return (stop - first + rows_per_turn - 1) >> (LOG_LANES_PER_WARP - log_lanes)


@cuda.jit(device=True)
def next_step(turn, step, num_steps):
    """Return the turn and the step behind a step, without a division."""
    step += 1
    return (turn + 1, 0) if step == num_steps else (turn, step)


@cuda.jit(device=True)
def pick_row(turn, step, last, first, stop, index, places, has_places, num_rows, log_lanes, wrong):
    """Return the row that this lane reads in a turn, -1 if there is none, and its place.

    The place is the row's position in the request. ``last`` is what was returned for the step
    before, and serves for all steps of a turn but the first.
    """
    if step > 0:
        return last
    lane = cuda.threadIdx.x % LANES_PER_WARP
    item = first + turn * (LANES_PER_WARP >> log_lanes) + (lane >> log_lanes)
    if item >= stop:
        return np.int64(-1), 0
    row = np.int64(index[item])
    place = places[item] if has_places else item
    if row < 0 or row >= num_rows:
        wrong[0] = row
        return np.int64(-1), 0
    return row, place


@cuda.jit(device=True)
def word_of_row(step, start, row_bytes, log_lanes):
    """Return the word of the table that this lane reads in a step, -1 if it is none of the row's.

    Words count from a line; ``start`` is where the row begins, in bytes from there.
    """
    # Shifts: a division of what might be negative takes more instructions.
    word = start >> LOG_WORD_BYTES
    if row_bytes > LINE_BYTES:
        word = start >> LOG_LINE_BYTES << LOG_LINE_BYTES - LOG_WORD_BYTES
    lane = cuda.threadIdx.x % LANES_PER_WARP
    word += (step << log_lanes) + (lane & ((1 << log_lanes) - 1))
    if (word + 1) * WORD_BYTES <= start or word * WORD_BYTES >= start + row_bytes:
        word = -1
    return word


@cuda.jit(device=True)
def locate_word(
    turn, step, last, first, stop, shift, index, places, has_places, num_rows, row_bytes, log_lanes,
    wrong,
):  # fmt: skip
    """Return the word that this lane reads in a step, where its row starts, and what was picked.

    The word counts from the line of the table, -1 if there is none; the start is in bytes from
    there. ``last`` is what was returned for the step before.
    """
    picked = pick_row(
        turn, step, last[2], first, stop, index, places, has_places, num_rows, log_lanes, wrong
    )
    start = shift + picked[0] * row_bytes
    word = word_of_row(step, start, row_bytes, log_lanes) if picked[0] >= 0 else np.int64(-1)
    return word, start, picked


@cuda.jit(device=True)
def read_word(base, table, piece_bytes, shift, num_bytes, word):
    """Return a word of the table, 0 if there is none.

    Of a word that an end of the table cuts, only what the table holds is read, in pieces of its
    own: what lies beside it belongs to others. Words that consist of one piece are never cut.
    """
    if word < 0:
        return np.uint32(0)
    offset = word * WORD_BYTES - shift
    if piece_bytes == WORD_BYTES or 0 <= offset <= num_bytes - WORD_BYTES:
        return base[word]
    value = np.uint32(0)
    for piece in range(WORD_BYTES // piece_bytes):
        begin = offset + piece * piece_bytes
        if 0 <= begin < num_bytes:
            part = np.uint32(table[begin // piece_bytes])
            value |= np.uint32(part << np.uint32(8 * piece_bytes * piece))
    return value


@cuda.jit(device=True)
def store_pieces(rows, row_bytes, piece_bytes, located, value):
    """Write the pieces of a word that belong to its row to the row's place in the request."""
    word, start, (_, place) = located
    if word >= 0:
        mask = (1 << 8 * piece_bytes) - 1
        # Of 1, 2 and 4: 0, 1 and 2.
        log_piece_bytes = piece_bytes >> 1
        for piece in range(WORD_BYTES // piece_bytes):
            offset = word * WORD_BYTES + piece * piece_bytes - start
            if 0 <= offset < row_bytes:
                part = value >> (8 * piece_bytes * piece) & mask
                rows[(place * row_bytes + offset) >> log_piece_bytes] = part
