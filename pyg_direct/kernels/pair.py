"""Gather the rows of the same ids from two tables at once.

Features and labels of the same nodes stand in tables of their own, and one launch takes the host
half as long as two.

Shape legend: ``R`` rows of a table, ``N`` requested rows, ``B`` bytes a row.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from pyg_direct.kernels.gather import gather_ticket
from pyg_direct.kernels.launch import CudaKernel, Span
from pyg_direct.kernels.ticket import LANES_PER_WARP, draw_ticket, from_first_lane, return_tickets
from pyg_direct.kernels.walk import (
    MAX_REGISTERS,
    GatherLaunch,
    limit_ids,
    walk_of,
    walk_shape,
)


class TableOfPair(NamedTuple):
    """One of two tables.

    Attributes
    ----------
    table : Span
        R rows of B bytes, row-major, at any address. May live in mapped host memory.
    out : device array, N rows of B bytes
        Overwritten.
    row_bytes : int
        ``B``, more than 0.
    rows_per_ticket : int
        Rows that a warp takes at a time.
    """

    table: Span
    out: Any
    row_bytes: int
    rows_per_ticket: int


def gather_pair(
    first: TableOfPair, second: TableOfPair, index: Any, *, launch: GatherLaunch, places: Any = None
) -> None:
    """Write the rows of both tables to their places on the GPU; the call does not wait.

    Parameters
    ----------
    first, second : TableOfPair
        Rows and addresses of both must allow the same widest store; see ``RowWalk.piece_bytes``.
    index : int32 or int64 device array, shape (N,)
        In the order in which rows are to be read. A row whose id is not in ``[0, R)`` is not
        written, and its id goes to ``launch.wrong``.
    launch : GatherLaunch
        How to launch; rows a ticket are those of the tables.
    places : int64 device array, shape (N,), optional
        Where in ``out`` the row of each id belongs, every place once. By default its own.

    Raises
    ------
    ValueError
        If the tables do not allow the same store.
    """
    pieces, sides = set(), []
    for table, out, row_bytes, rows_per_ticket in (first, second):
        walk, words, shift = walk_of(table, out, row_bytes)
        pieces.add(walk.piece_bytes)
        sides += [
            words, shift, out, table.num_bytes // row_bytes, row_bytes, walk.num_steps,
            walk.log_lanes, rows_per_ticket, table,
        ]  # fmt: skip
    if len(pieces) > 1:
        raise ValueError(f"rows allow stores of {sorted(pieces)} bytes, expected the same for both")
    _gather_pair_kernel(*pieces, index.itemsize)(
        *walk_shape(launch), index, index if places is None else places, int(places is not None),
        *launch.num_ids(index), launch.tickets, launch.wrong, *sides, stream=launch.stream,
    )  # fmt: skip


@cache
def _gather_pair_kernel(piece_bytes: int, id_bytes: int) -> CudaKernel:
    def gather_pair_kernel(
        index, places, has_places, num_ids, has_num_used, num_used, tickets, wrong,
        base_a, shift_a, out_a, num_rows_a, row_bytes_a, num_steps_a, log_lanes_a, rows_a, table_a,
        base_b, shift_b, out_b, num_rows_b, row_bytes_b, num_steps_b, log_lanes_b, rows_b, table_b,
    ):  # fmt: skip
        num_ids = limit_ids(num_ids, has_num_used, num_used)
        num_warps = cuda.gridDim.x * (cuda.blockDim.x // LANES_PER_WARP)
        num_b = -(-num_ids // rows_b)
        num_tickets = -(-num_ids // rows_a) + num_b
        ticket = from_first_lane(draw_ticket(tickets, 1))
        while ticket < num_tickets:
            drawn = draw_ticket(tickets, 1)
            # The tickets of the second table are spread evenly among those of the first.
            before = ticket * num_b // num_tickets
            is_b = (ticket + 1) * num_b >= (before + 1) * num_tickets
            first = before * rows_b if is_b else (ticket - before) * rows_a
            gather_ticket(
                first,
                min(first + (rows_b if is_b else rows_a), num_ids),
                base_b if is_b else base_a,
                shift_b if is_b else shift_a,
                index,
                places,
                has_places,
                out_b if is_b else out_a,
                num_rows_b if is_b else num_rows_a,
                row_bytes_b if is_b else row_bytes_a,
                num_steps_b if is_b else num_steps_a,
                log_lanes_b if is_b else log_lanes_a,
                wrong,
                table_b if is_b else table_a,
                piece_bytes,
            )
            ticket = from_first_lane(drawn)
        return_tickets(tickets, num_warps)

    piece = f"uint{8 * piece_bytes}"
    return CudaKernel(
        gather_pair_kernel, f"int{8 * id_bytes}", np.int64, None, None, None, np.int64, np.int64,
        np.int64,
        *[np.uint32, None, piece, *[None] * 5, piece] * 2,
        max_registers=MAX_REGISTERS,
    )  # fmt: skip
