"""Copy scattered rows: gather them out of a table, scatter them into one.

Rows are bytes, so any dtype of fixed size and any trailing shape will do. A group of lanes walks
the aligned words that a row touches, starting on the 128-byte line that holds its first byte, so
that every request over the bus is one whole line of the real address, however the row lies (Min et
al. 2021, "Large Graph Convolutional Network Training with GPU-Oriented Data Communication
Architecture", section 4.3, aligns by shifting lanes round the row; here lanes before the row idle
instead).

Shape legend: ``R`` rows of a table, ``N`` requested rows, ``B`` bytes a row.
Assumption: ids are valid and, for a scatter, unique; who calls has checked.
"""

from functools import cache
from math import gcd
from typing import Any

import numpy as np
from numba import cuda, prange

from pyg_direct.kernels.cpu import cpu_kernel
from pyg_direct.kernels.launch import THREADS_PER_WARP, CudaKernel, Span, span_of

LINE_BYTES = 128
WORD_BYTES = 4
THREADS_PER_BLOCK = 256


def gather_rows(table: Any, index: Any, out: Any, *, row_bytes: int, stream: int = 0) -> None:
    """Write ``table[index]`` to ``out`` on the GPU.

    Parameters
    ----------
    table : array, R rows of B bytes
        Row-major, at any address. May live in mapped host memory.
    index : int64 device array, shape (N,)
        Every value must lie in ``[0, R)``; the kernel does not check.
    out : device array, N rows of B bytes
        Overwritten in full.
    row_bytes : int
        ``B``.
    stream : int
        CUDA stream handle. The call does not wait.
    """
    num_rows = span_of(index).num_bytes // 8
    if num_rows * row_bytes:
        base, shift = _aligned(span_of(table))
        piece_bytes = gcd(WORD_BYTES, row_bytes, shift, span_of(out).address)
        lanes = _lanes_per_row(row_bytes)
        _gather_rows_kernel(piece_bytes)(
            -(-num_rows * lanes // THREADS_PER_BLOCK), THREADS_PER_BLOCK,
            base, shift, index, out, num_rows, row_bytes, lanes, stream=stream,
        )  # fmt: skip


def scatter_rows(table: Any, index: Any, rows: Any, *, row_bytes: int, stream: int = 0) -> None:
    """Write ``rows`` to ``table[index]`` on the GPU.

    Parameters
    ----------
    table : array, R rows of B bytes
        Row-major, at any address. May live in mapped host memory that the GPU may write.
    index : int64 device array, shape (N,)
        Unique values in ``[0, R)``; the kernel does not check.
    rows : device array, N rows of B bytes
        Read only.
    row_bytes : int
        ``B``.
    stream : int
        CUDA stream handle. The call does not wait.
    """
    num_rows = span_of(index).num_bytes // 8
    if num_rows * row_bytes:
        table, rows = span_of(table), span_of(rows)
        piece_bytes = gcd(WORD_BYTES, row_bytes, table.address, rows.address)
        lanes = _lanes_per_row(row_bytes)
        _scatter_rows_kernel(piece_bytes)(
            -(-num_rows * lanes // THREADS_PER_BLOCK), THREADS_PER_BLOCK,
            table, index, rows, num_rows, row_bytes // piece_bytes, lanes, stream=stream,
        )  # fmt: skip


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


def _aligned(table: Span) -> tuple[Span, int]:
    """Return the table from the line on which it starts, and its own distance from there."""
    shift = table.address % LINE_BYTES
    num_bytes = -(-(table.num_bytes + shift) // WORD_BYTES) * WORD_BYTES
    return Span(table.address - shift, num_bytes), shift


def _lanes_per_row(row_bytes: int) -> int:
    """Return the power of two that covers a row with one word a lane, or a whole warp."""
    words = -(-row_bytes // WORD_BYTES)
    return min(THREADS_PER_WARP, 1 << (words - 1).bit_length())


@cache
def _gather_rows_kernel(piece_bytes: int) -> CudaKernel:
    """Read words of 4 bytes, write the pieces of them that belong to the row."""
    pieces_per_word = WORD_BYTES // piece_bytes
    piece_type = np.dtype(f"uint{8 * piece_bytes}").type
    bits = np.uint32(8 * piece_bytes)

    def gather_rows_kernel(base, shift, index, out, num_rows, row_bytes, lanes):
        thread = cuda.grid(1)
        row = thread // lanes
        if row >= num_rows:
            return
        start = shift + index[row] * row_bytes
        stop = start + row_bytes
        target = row * row_bytes
        word = start // WORD_BYTES
        if row_bytes > LINE_BYTES:
            word = start // LINE_BYTES * (LINE_BYTES // WORD_BYTES)
        word += thread % lanes
        while word * WORD_BYTES < stop:
            offset = word * WORD_BYTES
            if offset + WORD_BYTES > start:
                value = base[word]
                for piece in range(pieces_per_word):
                    if start <= offset < stop:
                        place = (target + offset - start) // piece_bytes
                        out[place] = piece_type(value >> (np.uint32(piece) * bits) & mask)
                    offset += piece_bytes
            word += lanes

    mask = np.uint32(2 ** (8 * piece_bytes) - 1)
    return CudaKernel(gather_rows_kernel, np.uint32, None, np.int64, piece_type, None, None, None)


@cache
def _scatter_rows_kernel(piece_bytes: int) -> CudaKernel:
    piece_type = np.dtype(f"uint{8 * piece_bytes}").type

    def scatter_rows_kernel(table, index, rows, num_rows, row_pieces, lanes):
        thread = cuda.grid(1)
        row = thread // lanes
        if row >= num_rows:
            return
        source = row * row_pieces
        target = index[row] * row_pieces
        piece = thread % lanes
        while piece < row_pieces:
            table[target + piece] = rows[source + piece]
            piece += lanes

    return CudaKernel(scatter_rows_kernel, piece_type, np.int64, piece_type, None, None, None)
