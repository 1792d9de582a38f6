"""Copy words on the GPU, of several arrays by one launch: to ask torch for each takes longer."""

from typing import Any

import numpy as np
from numba import cuda
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

from pyg_direct.kernels.dispatch import launch_shape
from pyg_direct.kernels.launch import CudaKernel, Span

WORD_BYTES = 8
# Of one launch.
MAX_PARTS = 8
NO_PART = [0, 0, 0]


class Copies:
    """Copies that are to be made together, as few launches as it takes."""

    def __init__(self) -> None:
        # Source, target and length of each, one after another.
        self._parts: list[int] = []

    def add(self, source: int, target: int, num_words: int) -> None:
        """Add an array.

        Parameters
        ----------
        source, target : int
            Addresses that the GPU can read and write, multiples of 8. Both are to live until the
            stream of the launch has passed it, and no two targets overlap.
        num_words : int
            Length, in words of 8 bytes.
        """
        if num_words > 0:
            self._parts += (source, target, num_words)

    def launch(self, stream: int) -> None:
        """Make the copies that were added, on a stream of the current device, by CUDA's handle."""
        while self._parts:
            parts, self._parts = self._parts[: 3 * MAX_PARTS], self._parts[3 * MAX_PARTS :]
            shape = launch_shape(sum(parts[2::3]))
            parts += NO_PART * (MAX_PARTS - len(parts) // 3)
            copy_parts(*shape, *(_spans(parts) if IS_SIMULATOR else parts), stream=stream)


def _spans(parts: list[int]) -> list[Any]:
    """Return parts as the simulator takes them."""
    spans: list[Any] = []
    for place in range(0, len(parts), 3):
        source, target, num_words = parts[place : place + 3]
        num_bytes = num_words * WORD_BYTES
        spans += (Span(source, num_bytes), Span(target, num_bytes), num_words)
    return spans


def _copy_parts_kernel(
    a, to_a, num_a, b, to_b, num_b, c, to_c, num_c, d, to_d, num_d, e, to_e, num_e, f, to_f, num_f,
    g, to_g, num_g, h, to_h, num_h,
):  # fmt: skip
    """Copy the first ``num_a`` words of ``a`` to ``to_a``, and so on."""
    b_start = num_a
    c_start = b_start + num_b
    d_start = c_start + num_c
    e_start = d_start + num_d
    f_start = e_start + num_e
    g_start = f_start + num_f
    h_start = g_start + num_g
    for item in range(cuda.grid(1), h_start + num_h, cuda.gridsize(1)):
        if item < b_start:
            to_a[item] = a[item]
        elif item < c_start:
            to_b[item - b_start] = b[item - b_start]
        elif item < d_start:
            to_c[item - c_start] = c[item - c_start]
        elif item < e_start:
            to_d[item - d_start] = d[item - d_start]
        elif item < f_start:
            to_e[item - e_start] = e[item - e_start]
        elif item < g_start:
            to_f[item - f_start] = f[item - f_start]
        elif item < h_start:
            to_g[item - g_start] = g[item - g_start]
        else:
            to_h[item - h_start] = h[item - h_start]


def _copy_words_kernel(source, num_words, target):
    """Copy words, shape (num_words,); either side may be mapped host memory."""
    for item in range(cuda.grid(1), num_words, cuda.gridsize(1)):
        target[item] = source[item]


copy_parts = CudaKernel(_copy_parts_kernel, *[np.int64, np.int64, None] * MAX_PARTS)
copy_words = CudaKernel(_copy_words_kernel, np.int64, None, np.int64)
