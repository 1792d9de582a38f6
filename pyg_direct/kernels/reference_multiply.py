"""Plain version of the sparse product, to compare with; name and arguments as the CUDA kernel.

Arrays are NumPy arrays on the CPU; bfloat16 numbers are float32 numbers whose low 16 bits are zero.
"""

import numpy as np

from pyg_direct.kernels.multiply import LONG_ROW_NONZEROS


def multiply_csr(rowptr, column, value, operand, out, *, accumulate, bias=0.0):
    """See ``pyg_direct.kernels.multiply.multiply_csr``; sums in float64."""
    for row in range(out.shape[0]):
        edges = slice(rowptr[row], rowptr[row + 1])
        total = value[edges].astype(np.float64) @ operand[column[edges]].astype(np.float64)
        out[row] = total + bias + (out[row] if accumulate else 0.0)


def long_rows(rowptr):
    """Return the rows that take a block: int32."""
    return np.flatnonzero(np.diff(rowptr) > LONG_ROW_NONZEROS).astype(np.int32)
