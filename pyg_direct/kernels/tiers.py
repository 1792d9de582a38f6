"""Gather rows of which some have a copy nearer by: hot rows on the device over a host table.

A slot table says where: row ``r`` has its copy in ``hot[slots[r]]``, or none where that is
negative. One launch reads both, each row where it stands, so that nobody makes a list of misses and
the host never waits. The walk is that of ``pyg_direct.kernels.walk``.

Shape legend: ``R`` rows of a table, ``H`` hot rows, ``N`` requested rows, ``B`` bytes a row.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda, prange

from pyg_direct.kernels.cpu import cpu_kernel
from pyg_direct.kernels.launch import CudaKernel, Span, span_of
from pyg_direct.kernels.ticket import LANES_PER_WARP, draw_ticket, from_first_lane, return_tickets
from pyg_direct.kernels.walk import (
    LINE_BYTES,
    MAX_REGISTERS,
    NO_ROW,
    WORD_BYTES,
    GatherLaunch,
    launch_walk,
    limit_ids,
    next_step,
    num_turns,
    pick_row,
    read_word,
    store_pieces,
    word_of_row,
)

STEPS_IN_FLIGHT = 4


def gather_tiers(
    table: Any,
    index: Any,
    out: Any,
    *,
    hot: Any,
    slots: Any,
    row_bytes: int,
    launch: GatherLaunch,
    places: Any = None,
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
    hot : device array, H rows of B bytes
        Copies of rows; starts on a line of 128 bytes.
    slots : int32 device array, shape (R,)
        Below H; negative for a row without a copy.
    row_bytes : int
        ``B``, more than 0.
    launch : GatherLaunch
        How to launch.
    places : int64 device array, shape (N,), optional
        Where in ``out`` the row of each id belongs, every place once. By default its own.

    Raises
    ------
    ValueError
        If ``hot`` does not start on a line.
    """
    near = span_of(hot)
    if near.address % LINE_BYTES:
        raise ValueError(
            f"hot starts {near.address % LINE_BYTES} bytes behind a line, expected a multiple of "
            f"{LINE_BYTES}; allocate it on its own"
        )
    # Its rows begin at no more places of a line than those of a table at any address.
    near = Span(near.address, -(-near.num_bytes // WORD_BYTES) * WORD_BYTES)
    table = span_of(table)
    launch_walk(
        _gather_tiers_kernel, table, index, out, places, row_bytes, launch, table, near, slots
    )


@cpu_kernel
def gather_tiers_cpu(table, hot, slots, index, out):
    """Write ``table[index]`` to ``out`` on the CPU, hot rows from ``hot``; rows are uint8."""
    for i in prange(index.shape[0]):
        source = index[i]
        slot = slots[source]
        if slot >= 0:
            for byte in range(out.shape[1]):
                out[i, byte] = hot[slot, byte]
        else:
            for byte in range(out.shape[1]):
                out[i, byte] = table[source, byte]


@cuda.jit(device=True)
def locate_tiered_word(step, picked, slot, shift, row_bytes, log_lanes):
    """Return the word that this lane reads, where its row starts, and if the row is hot.

    The word is -1 if there is none. Of a hot row, word and start count from the first hot row.
    """
    row = picked[0]
    is_hot = slot >= 0
    start = np.int64(slot) * row_bytes if is_hot else shift + row * row_bytes
    word = word_of_row(step, start, row_bytes, log_lanes)
    return word if row >= 0 else np.int64(-1), start, is_hot


@cuda.jit(device=True)
def read_tiered_word(base, table, piece_bytes, shift, num_bytes, hot, located):
    """Return the word from where its row stands, 0 if there is none."""
    word, is_hot = located[0], located[2]
    if piece_bytes == WORD_BYTES:
        source = hot if is_hot else base
        return source[word] if word >= 0 else np.uint32(0)
    if is_hot and word >= 0:
        return hot[word]
    return read_word(base, table, piece_bytes, shift, num_bytes, word)


@cache
def _gather_tiers_kernel(piece_bytes: int, id_bytes: int) -> CudaKernel:
    def gather_tiers_kernel(
        base, shift, index, places, has_places, out, num_ids, has_num_used, num_used, num_rows,
        row_bytes, num_steps, log_lanes, rows_per_ticket, tickets, wrong, table, hot, slots,
    ):  # fmt: skip
        num_ids = limit_ids(num_ids, has_num_used, num_used)
        num_warps = cuda.gridDim.x * (cuda.blockDim.x // LANES_PER_WARP)
        num_bytes = num_rows * row_bytes
        first = from_first_lane(draw_ticket(tickets, rows_per_ticket))
        while first < num_ids:
            drawn = draw_ticket(tickets, rows_per_ticket)
            stop = min(first + rows_per_ticket, num_ids)
            turn, step = 0, 0
            pick_d, slot_d = NO_ROW, np.int32(-1)
            for _ in range(0, num_turns(first, stop, log_lanes) * num_steps, STEPS_IN_FLIGHT):
                turn_b, step_b = next_step(turn, step, num_steps)
                turn_c, step_c = next_step(turn_b, step_b, num_steps)
                turn_d, step_d = next_step(turn_c, step_c, num_steps)
                pick_a = pick_row(
                    turn, step, pick_d, first, stop, index, places, has_places, num_rows,
                    log_lanes, wrong,
                )  # fmt: skip
                pick_b = pick_row(
                    turn_b, step_b, pick_a, first, stop, index, places, has_places, num_rows,
                    log_lanes, wrong,
                )  # fmt: skip
                pick_c = pick_row(
                    turn_c, step_c, pick_b, first, stop, index, places, has_places, num_rows,
                    log_lanes, wrong,
                )  # fmt: skip
                pick_d = pick_row(
                    turn_d, step_d, pick_c, first, stop, index, places, has_places, num_rows,
                    log_lanes, wrong,
                )  # fmt: skip
                # Four slots, and then four words, are on their way before one of them is needed.
                slot_a = slots[max(pick_a[0], 0)] if step == 0 else slot_d
                slot_b = slots[max(pick_b[0], 0)] if step_b == 0 else slot_a
                slot_c = slots[max(pick_c[0], 0)] if step_c == 0 else slot_b
                slot_d = slots[max(pick_d[0], 0)] if step_d == 0 else slot_c
                a = locate_tiered_word(step, pick_a, slot_a, shift, row_bytes, log_lanes)
                b = locate_tiered_word(step_b, pick_b, slot_b, shift, row_bytes, log_lanes)
                c = locate_tiered_word(step_c, pick_c, slot_c, shift, row_bytes, log_lanes)
                d = locate_tiered_word(step_d, pick_d, slot_d, shift, row_bytes, log_lanes)
                word_a = read_tiered_word(base, table, piece_bytes, shift, num_bytes, hot, a)
                word_b = read_tiered_word(base, table, piece_bytes, shift, num_bytes, hot, b)
                word_c = read_tiered_word(base, table, piece_bytes, shift, num_bytes, hot, c)
                word_d = read_tiered_word(base, table, piece_bytes, shift, num_bytes, hot, d)
                located = a[0], a[1], pick_a
                store_pieces(out, row_bytes, piece_bytes, located, word_a)
                located = b[0], b[1], pick_b
                store_pieces(out, row_bytes, piece_bytes, located, word_b)
                located = c[0], c[1], pick_c
                store_pieces(out, row_bytes, piece_bytes, located, word_c)
                located = d[0], d[1], pick_d
                store_pieces(out, row_bytes, piece_bytes, located, word_d)
                turn, step = next_step(turn_d, step_d, num_steps)
            first = from_first_lane(drawn)
        return_tickets(tickets, num_warps)

    return CudaKernel(
        gather_tiers_kernel, np.uint32, None, f"int{8 * id_bytes}", np.int64, None,
        f"uint{8 * piece_bytes}", None, None, np.int64, *[None] * 5, np.int64, np.int64,
        f"uint{8 * piece_bytes}", np.uint32, np.int32,
        max_registers=MAX_REGISTERS,
    )  # fmt: skip
