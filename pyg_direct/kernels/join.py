"""Put the parts of a batch one after another on the GPU, before the host knows their sizes.

Shape legend: ``K`` bound of a part's size, ``J`` bound of all parts together, ``A`` arrays, 1 to 3.
"""

import numpy as np
from numba import cuda

from pyg_direct.kernels.launch import CudaKernel

# The most arrays that have parts in common: source, column and id of an edge.
MAX_ARRAYS = 3


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


join_part = CudaKernel(
    _join_part_kernel, np.int64, None, None, None, np.int64, np.int64, np.int64, None, np.int64,
    None,
)  # fmt: skip
