"""Copy scattered rows: gather them out of a table, scatter them into one.

Each warp has four words a lane in flight; ``pyg_direct.kernels.walk`` says how it walks.

Shape legend: ``R`` rows of a table, ``N`` requested rows, ``B`` bytes a row.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda, prange

from pyg_direct.kernels.cpu import cpu_kernel
from pyg_direct.kernels.launch import CudaKernel, span_of
from pyg_direct.kernels.ticket import LANES_PER_WARP, draw_ticket, from_first_lane, return_tickets
from pyg_direct.kernels.walk import (
    MAX_REGISTERS,
    NO_ROW,
    WORD_BYTES,
    GatherLaunch,
    launch_walk,
    limit_ids,
    locate_word,
    next_step,
    num_turns,
    read_word,
    store_pieces,
)

STEPS_IN_FLIGHT = 4


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
    table = span_of(table)
    launch_walk(_gather_rows_kernel, table, index, out, places, row_bytes, launch, table)


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
    launch_walk(_scatter_rows_kernel, table, index, rows, places, row_bytes, launch)


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


@cuda.jit(device=True)
def gather_ticket(
    first, stop, base, shift, index, places, has_places, out, num_rows, row_bytes, num_steps,
    log_lanes, wrong, table, piece_bytes,
):  # fmt: skip
    """Copy the rows of one ticket: those that the ids from ``first`` to ``stop`` name."""
    num_bytes = num_rows * row_bytes
    turn, step, d = 0, 0, (-1, 0, NO_ROW)
    for _ in range(0, num_turns(first, stop, log_lanes) * num_steps, STEPS_IN_FLIGHT):
        a = locate_word(
            turn, step, d, first, stop, shift, index, places, has_places, num_rows, row_bytes,
            log_lanes, wrong,
        )  # fmt: skip
        turn, step = next_step(turn, step, num_steps)
        b = locate_word(
            turn, step, a, first, stop, shift, index, places, has_places, num_rows, row_bytes,
            log_lanes, wrong,
        )  # fmt: skip
        turn, step = next_step(turn, step, num_steps)
        c = locate_word(
            turn, step, b, first, stop, shift, index, places, has_places, num_rows, row_bytes,
            log_lanes, wrong,
        )  # fmt: skip
        turn, step = next_step(turn, step, num_steps)
        d = locate_word(
            turn, step, c, first, stop, shift, index, places, has_places, num_rows, row_bytes,
            log_lanes, wrong,
        )  # fmt: skip
        turn, step = next_step(turn, step, num_steps)
        # All four reads cross the bus before the first of them is needed.
        word_a = read_word(base, table, piece_bytes, shift, num_bytes, a[0])
        word_b = read_word(base, table, piece_bytes, shift, num_bytes, b[0])
        word_c = read_word(base, table, piece_bytes, shift, num_bytes, c[0])
        word_d = read_word(base, table, piece_bytes, shift, num_bytes, d[0])
        store_pieces(out, row_bytes, piece_bytes, a, word_a)
        store_pieces(out, row_bytes, piece_bytes, b, word_b)
        store_pieces(out, row_bytes, piece_bytes, c, word_c)
        store_pieces(out, row_bytes, piece_bytes, d, word_d)


@cache
def _gather_rows_kernel(piece_bytes: int, id_bytes: int) -> CudaKernel:
    def gather_rows_kernel(
        base, shift, index, places, has_places, out, num_ids, has_num_used, num_used, num_rows,
        row_bytes, num_steps, log_lanes, rows_per_ticket, tickets, wrong, table,
    ):  # fmt: skip
        num_ids = limit_ids(num_ids, has_num_used, num_used)
        num_warps = cuda.gridDim.x * (cuda.blockDim.x // LANES_PER_WARP)
        first = from_first_lane(draw_ticket(tickets, rows_per_ticket))
        while first < num_ids:
            drawn = draw_ticket(tickets, rows_per_ticket)
            stop = min(first + rows_per_ticket, num_ids)
            gather_ticket(
                first, stop, base, shift, index, places, has_places, out, num_rows, row_bytes,
                num_steps, log_lanes, wrong, table, piece_bytes,
            )  # fmt: skip
            first = from_first_lane(drawn)
        return_tickets(tickets, num_warps)

    return CudaKernel(
        gather_rows_kernel, np.uint32, None, f"int{8 * id_bytes}", np.int64, None,
        f"uint{8 * piece_bytes}", None, None, np.int64, *[None] * 5, np.int64, np.int64,
        f"uint{8 * piece_bytes}", max_registers=MAX_REGISTERS,
    )  # fmt: skip


@cache
def _scatter_rows_kernel(piece_bytes: int, id_bytes: int) -> CudaKernel:
    def scatter_rows_kernel(
        table, shift, index, places, has_places, rows, num_ids, has_num_used, num_used, num_rows,
        row_bytes, num_steps, log_lanes, rows_per_ticket, tickets, wrong,
    ):  # fmt: skip
        num_ids = limit_ids(num_ids, has_num_used, num_used)
        num_warps = cuda.gridDim.x * (cuda.blockDim.x // LANES_PER_WARP)
        first = from_first_lane(draw_ticket(tickets, rows_per_ticket))
        while first < num_ids:
            drawn = draw_ticket(tickets, rows_per_ticket)
            stop = min(first + rows_per_ticket, num_ids)
            turn, step, located = 0, 0, (-1, 0, NO_ROW)
            for _ in range(num_turns(first, stop, log_lanes) * num_steps):
                located = locate_word(
                    turn, step, located, first, stop, shift, index, places, has_places,
                    num_rows, row_bytes, log_lanes, wrong,
                )  # fmt: skip
                word, start, (_, place) = located
                turn, step = next_step(turn, step, num_steps)
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
        None, None, np.int64, *[None] * 5, np.int64, np.int64, max_registers=MAX_REGISTERS,
    )  # fmt: skip
