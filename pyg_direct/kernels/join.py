"""Put the parts of a batch one after another on the GPU, before the host knows their sizes.

And copy what the host knows the size of, where that would take it longer to ask torch for.

Shape legend: ``K`` bound of a part's size, ``J`` bound of all parts together, ``A`` arrays, 1 to 3.
"""

import numpy as np
from numba import cuda

from pyg_direct.kernels.launch import CudaKernel

# The most arrays that have parts in common: source, column and id of an edge.
MAX_ARRAYS = 3
# The most arrays that one launch cuts: nodes, edges, and what was carried.
MAX_CUT = 3


def _join_part_kernel(totals, first, place, bound, a, b, c, num_arrays, out, row_length):
    """Copy the part of one hop to its place in the rows of ``out``, shape (A, J).

    The first A of ``a``, ``b`` and ``c``, shape (K,) each, are copied, as far as the part goes.
    Where ``first`` is negative, ``totals`` holds at ``place`` where the part begins, and behind it
    where it ends; otherwise it holds the sizes of the parts from ``first`` on.
    """
    start = totals[place]
    size = start
    if first >= 0:
        start = 0
        for earlier in range(first, place):
            start += totals[earlier]
    else:
        size = totals[place + 1] - start
    for item in range(cuda.grid(1), min(bound, size), cuda.gridsize(1)):
        out[start + item] = a[item]
        if num_arrays > 1:
            out[row_length + start + item] = b[item]
        if num_arrays > 2:
            out[2 * row_length + start + item] = c[item]


@cuda.jit(device=True)
def _cell(rows, row_length, size, item):
    """Return an item of the first ``size`` columns of ``rows``, counted row by row."""
    row = item // size
    return rows[row * row_length + item - row * size]


def _cut_columns_kernel(
    a, a_length, a_rows, a_size, b, b_length, b_rows, b_size, c, c_length, c_rows, c_size, out
):
    """Copy the first columns of up to three arrays, one after another, to ``out``.

    Of ``a``, shape (a_rows, a_length), the first ``a_size``; so of ``b`` and ``c``, which may have
    no rows.
    """
    b_start = a_rows * a_size
    c_start = b_start + b_rows * b_size
    for item in range(cuda.grid(1), c_start + c_rows * c_size, cuda.gridsize(1)):
        if item < b_start:
            out[item] = _cell(a, a_length, a_size, item)
        elif item < c_start:
            out[item] = _cell(b, b_length, b_size, item - b_start)
        else:
            out[item] = _cell(c, c_length, c_size, item - c_start)


def _copy_words_kernel(source, num_words, target):
    """Copy words, shape (num_words,); either side may be mapped host memory."""
    for item in range(cuda.grid(1), num_words, cuda.gridsize(1)):
        target[item] = source[item]


join_part = CudaKernel(
    _join_part_kernel, np.int64, None, None, None, np.int64, np.int64, np.int64, None, np.int64,
    None,
)  # fmt: skip
cut_columns = CudaKernel(
    _cut_columns_kernel, *[np.int64, None, None, None] * MAX_CUT, np.int64
)  # fmt: skip
copy_words = CudaKernel(_copy_words_kernel, np.int64, None, np.int64)
