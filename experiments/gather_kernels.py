"""Kernels of the papers, as baselines: rows in the order of the ids, a warp a row.

Shape legend: ``R`` rows of a table of ``W`` 4-byte words, ``N`` requested rows.
"""

from functools import cache

import numpy as np
from numba import cuda

from pyg_direct.kernels.launch import CudaKernel

WARPS_PER_BLOCK = 8
LINE_BYTES = 128


@cache
def naive_kernel() -> CudaKernel:
    """Return a warp a row, a word a lane, rows in the order of the ids."""

    def naive(table, shift, index, out, num_rows, num_words):
        row = cuda.grid(1) // 32
        if row < num_rows:
            source, target = index[row] * num_words, row * num_words
            for word in range(cuda.threadIdx.x % 32, num_words, 32):
                out[target + word] = table[source + word]

    return CudaKernel(naive, np.uint32, None, np.int64, np.uint32, None, None)


@cache
def circular_shift_kernel() -> CudaKernel:
    """Return the naive kernel with lanes shifted round the row, so that they meet 128-byte lines.

    Min et al. 2021, section 4.3, with the shift taken from the address.
    """

    def circular_shift(table, shift, index, out, num_rows, num_words):
        row = cuda.grid(1) // 32
        if row < num_rows:
            source, target = index[row] * num_words, row * num_words
            before = (source + shift // 4) % 32
            if num_words <= 32:
                before = 0
            for word in range(cuda.threadIdx.x % 32, num_words, 32):
                shifted = word - before
                if shifted < 0:
                    shifted += num_words
                out[target + shifted] = table[source + shifted]

    return CudaKernel(circular_shift, np.uint32, None, np.int64, np.uint32, None, None)
