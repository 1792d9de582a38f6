"""Copy scattered rows: gather them out of a table, scatter them into one.

Rows are bytes, so any dtype of fixed size and any trailing shape will do. Lanes walk the aligned
words that a row touches, from the 128-byte line that holds its first byte, so that every request
over the bus is one whole line of the real address, however the row lies; lanes before the row idle.
(Min et al. 2021, "Large Graph Convolutional Network Training with GPU-Oriented Data Communication
Architecture", section 4.3, shifts the lanes round the row instead.)

Warps take the next rows by ticket, in order: requests in flight then fall into a narrow window of
addresses, which is what translation over the bus rewards. Each warp has four words a lane in
flight.

Shape legend: ``R`` rows of a table, ``N`` requested rows, ``B`` bytes a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any

import numpy as np
from numba import cuda, prange

from pyg_direct.kernels.cpu import cpu_kernel
from pyg_direct.kernels.launch import CudaKernel, Span, span_of
from pyg_direct.kernels.ticket import (
    LANES_PER_WARP,
    MAX_WARPS_PER_BLOCK,
    draw_ticket,
    from_first_lane,
    return_tickets,
)

LINE_BYTES = 128
WORD_BYTES = 4
STEPS_IN_FLIGHT = 4


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


@dataclass(frozen=True, slots=True)
class GatherLaunch:
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
    """

    tickets: Any
    wrong: Any
    rows_per_ticket: int = 8
    num_warps: int = MAX_WARPS_PER_BLOCK
    max_blocks: int = 1
    stream: int = 0


def gather_rows(
    table: Any, index: Any, out: Any, *, row_bytes: int, launch: GatherLaunch, places: Any = None
) -> None:
    """Write ``table[index]`` to ``out`` on the GPU; the call does not wait.

    Parameters
    ----------
    table : array, R rows of B bytes
        Row-major, at any address. May live in mapped host memory.
    index : int32 or int64 device array, shape (N,)
        In the order in which rows are to be read. A row whose id is not in ``[0, R)`` is not
        written, and its id goes to ``launch.wrong``.
    out : device array, N rows of B bytes
        Overwritten.
    row_bytes : int
        ``B``, more than 0.
    launch : GatherLaunch
        How to launch.
    places : int64 device array, shape (N,), optional
        Where in ``out`` the row of each id belongs, every place once. By default its own.
    """
    _launch_walk(_gather_rows_kernel, table, index, out, places, row_bytes, launch)


def scatter_rows(
    table: Any, index: Any, rows: Any, *, row_bytes: int, launch: GatherLaunch, places: Any = None
) -> None:
    """Write ``rows`` to ``table[index]`` on the GPU; the call does not wait.

    Parameters
    ----------
    table : array, R rows of B bytes
        Row-major, at any address. May live in mapped host memory that the GPU may write.
    index : int32 or int64 device array, shape (N,)
        Unique. A row whose id is not in ``[0, R)`` is not written, and its id goes to
        ``launch.wrong``.
    rows : device array, N rows of B bytes
        Read only.
    row_bytes : int
        ``B``, more than 0.
    launch : GatherLaunch
        How to launch.
    places : int64 device array, shape (N,), optional
        Where in ``rows`` the row of each id stands, every place once. By default at its own.
    """
    _launch_walk(_scatter_rows_kernel, table, index, rows, places, row_bytes, launch)


@cpu_kernel
def gather_rows_cpu(table, index, out):
    """Write ``table[index]`` to ``out``: uint8 arrays of shapes (R, B) and (N, B), on the CPU."""
    for i in prange(index.shape[0]):
        source = index[i]
        for byte in range(out.shape[1]):
            out[i, byte] = table[source, byte]


@cpu_kernel
def scatter_rows_cpu(table, index, rows):
    """Write ``rows`` to ``table[index]``: uint8 arrays of shapes (N, B) and (R, B), on the CPU."""
    for i in prange(index.shape[0]):
        target = index[i]
        for byte in range(rows.shape[1]):
            table[target, byte] = rows[i, byte]


def _launch_walk(
    kernel_for: Callable[[int, int], CudaKernel],
    table: Any,
    index: Any,
    rows: Any,
    places: Any,
    row_bytes: int,
    launch: GatherLaunch,
) -> None:
    table, rows, num_ids = span_of(table), span_of(rows), len(index)
    shift = table.address % LINE_BYTES
    walk = row_walk(row_bytes, shift, rows.address % WORD_BYTES)
    # The walk begins on a line, and its last word may end behind the last row.
    num_bytes = -(-(table.num_bytes + shift) // WORD_BYTES) * WORD_BYTES
    warps_per_block = -(-launch.num_warps // launch.max_blocks)
    kernel_for(walk.piece_bytes, index.itemsize)(
        -(-launch.num_warps // warps_per_block), LANES_PER_WARP * warps_per_block,
        Span(table.address - shift, num_bytes), shift, index,
        index if places is None else places, int(places is not None), rows, num_ids,
        table.num_bytes // row_bytes, row_bytes, walk.num_steps, walk.log_lanes,
        launch.rows_per_ticket, launch.tickets, launch.wrong, stream=launch.stream,
    )  # fmt: skip


@cuda.jit(device=True)
def locate_word(
    step, first, stop, shift, index, places, has_places, num_rows, row_bytes, num_steps,
    log_lanes, wrong,
):  # fmt: skip
    """Return the word that this lane reads in a step, where its row starts, and the row's place.

    The word counts from the line of the table, -1 if there is none; the start is in bytes from
    there; the place is the row's position in the request.
    """
    lane = cuda.threadIdx.x % LANES_PER_WARP
    item = first + step // num_steps * (LANES_PER_WARP >> log_lanes) + (lane >> log_lanes)
    if item >= stop:
        return -1, 0, 0
    row = np.int64(index[item])
    place = places[item] if has_places else item
    if row < 0 or row >= num_rows:
        wrong[0] = row
        return -1, 0, 0
    start = shift + row * row_bytes
    word = start // WORD_BYTES
    if row_bytes > LINE_BYTES:
        word = start // LINE_BYTES * (LINE_BYTES // WORD_BYTES)
    word += (step % num_steps << log_lanes) + (lane & ((1 << log_lanes) - 1))
    if (word + 1) * WORD_BYTES <= start or word * WORD_BYTES >= start + row_bytes:
        word = -1
    return word, start, place


@cuda.jit(device=True)
def store_pieces(rows, row_bytes, piece_bytes, located, value):
    """Write the pieces of a word that belong to its row to the row's place in the request."""
    word, start, place = located
    if word >= 0:
        mask = (1 << 8 * piece_bytes) - 1
        for piece in range(WORD_BYTES // piece_bytes):
            offset = word * WORD_BYTES + piece * piece_bytes - start
            if 0 <= offset < row_bytes:
                part = value >> (8 * piece_bytes * piece) & mask
                rows[(place * row_bytes + offset) // piece_bytes] = part


@cache
def _gather_rows_kernel(piece_bytes: int, id_bytes: int) -> CudaKernel:
    def gather_rows_kernel(
        base, shift, index, places, has_places, out, num_ids, num_rows, row_bytes, num_steps,
        log_lanes, rows_per_ticket, tickets, wrong,
    ):  # fmt: skip
        num_warps = cuda.gridDim.x * (cuda.blockDim.x // LANES_PER_WARP)
        rows_per_step = LANES_PER_WARP >> log_lanes
        first = from_first_lane(draw_ticket(tickets, rows_per_ticket))
        while first < num_ids:
            drawn = draw_ticket(tickets, rows_per_ticket)
            stop = min(first + rows_per_ticket, num_ids)
            for step in range(0, -(-(stop - first) // rows_per_step) * num_steps, STEPS_IN_FLIGHT):
                a = locate_word(
                    step, first, stop, shift, index, places, has_places, num_rows,
                    row_bytes, num_steps, log_lanes, wrong,
                )  # fmt: skip
                b = locate_word(
                    step + 1, first, stop, shift, index, places, has_places, num_rows,
                    row_bytes, num_steps, log_lanes, wrong,
                )  # fmt: skip
                c = locate_word(
                    step + 2, first, stop, shift, index, places, has_places, num_rows,
                    row_bytes, num_steps, log_lanes, wrong,
                )  # fmt: skip
                d = locate_word(
                    step + 3, first, stop, shift, index, places, has_places, num_rows,
                    row_bytes, num_steps, log_lanes, wrong,
                )  # fmt: skip
                # All four reads cross the bus before the first of them is needed.
                word_a = base[a[0]] if a[0] >= 0 else np.uint32(0)
                word_b = base[b[0]] if b[0] >= 0 else np.uint32(0)
                word_c = base[c[0]] if c[0] >= 0 else np.uint32(0)
                word_d = base[d[0]] if d[0] >= 0 else np.uint32(0)
                store_pieces(out, row_bytes, piece_bytes, a, word_a)
                store_pieces(out, row_bytes, piece_bytes, b, word_b)
                store_pieces(out, row_bytes, piece_bytes, c, word_c)
                store_pieces(out, row_bytes, piece_bytes, d, word_d)
            first = from_first_lane(drawn)
        return_tickets(tickets, num_warps)

    return CudaKernel(
        gather_rows_kernel, np.uint32, None, f"int{8 * id_bytes}", np.int64, None,
        f"uint{8 * piece_bytes}", *[None] * 6, np.int64, np.int64,
    )  # fmt: skip


@cache
def _scatter_rows_kernel(piece_bytes: int, id_bytes: int) -> CudaKernel:
    def scatter_rows_kernel(
        table, shift, index, places, has_places, rows, num_ids, num_rows, row_bytes, num_steps,
        log_lanes, rows_per_ticket, tickets, wrong,
    ):  # fmt: skip
        num_warps = cuda.gridDim.x * (cuda.blockDim.x // LANES_PER_WARP)
        rows_per_step = LANES_PER_WARP >> log_lanes
        first = from_first_lane(draw_ticket(tickets, rows_per_ticket))
        while first < num_ids:
            drawn = draw_ticket(tickets, rows_per_ticket)
            stop = min(first + rows_per_ticket, num_ids)
            for step in range(-(-(stop - first) // rows_per_step) * num_steps):
                word, start, place = locate_word(
                    step, first, stop, shift, index, places, has_places, num_rows,
                    row_bytes, num_steps, log_lanes, wrong,
                )  # fmt: skip
                for piece in range(WORD_BYTES // piece_bytes):
                    offset = word * WORD_BYTES + piece * piece_bytes - start
                    if word >= 0 and 0 <= offset < row_bytes:
                        source = (place * row_bytes + offset) // piece_bytes
                        table[(start + offset) // piece_bytes] = rows[source]
            first = from_first_lane(drawn)
        return_tickets(tickets, num_warps)

    piece_type = f"uint{8 * piece_bytes}"
    return CudaKernel(
        scatter_rows_kernel, piece_type, None, f"int{8 * id_bytes}", np.int64, None, piece_type,
        *[None] * 6, np.int64, np.int64,
    )  # fmt: skip
