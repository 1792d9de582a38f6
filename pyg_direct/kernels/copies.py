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
# Which ``_copy_tile`` copies, and a block.
WORDS_PER_THREAD = 4
TILE_WORDS = WORDS_PER_THREAD * launch_shape(1)[1]
LOG_TILE_WORDS = TILE_WORDS.bit_length() - 1
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
            # A block for each tile, but for those that are not full.
            shape = launch_shape(-(-sum(parts[2::3]) // WORDS_PER_THREAD))
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


@cuda.jit(device=True)
def _num_tiles(num_words):
    """Return how many tiles hold so many words."""
    return (num_words + TILE_WORDS - 1) >> LOG_TILE_WORDS


@cuda.jit(device=True)
def _next_part(part, source, target, num_words):
    """Return the next part, and which of its tiles, if the tile is behind those of ``part``."""
    behind = part[0] - _num_tiles(part[3])
    return part if behind < 0 else (behind, source, target, num_words)


@cuda.jit(device=True)
def _copy_tile(part):
    """Copy the words of one tile; all of a thread's are on their way before one is written."""
    tile, source, target, num_words = part
    step = TILE_WORDS // WORDS_PER_THREAD
    first = (tile << LOG_TILE_WORDS) + cuda.threadIdx.x
    second, third, fourth = first + step, first + 2 * step, first + 3 * step
    last = num_words - 1
    word_a = source[min(first, last)]
    word_b = source[min(second, last)]
    word_c = source[min(third, last)]
    word_d = source[min(fourth, last)]
    if first < num_words:
        target[first] = word_a
    if second < num_words:
        target[second] = word_b
    if third < num_words:
        target[third] = word_c
    if fourth < num_words:
        target[fourth] = word_d


def _copy_parts_kernel(
    a, to_a, num_a, b, to_b, num_b, c, to_c, num_c, d, to_d, num_d, e, to_e, num_e, f, to_f, num_f,
    g, to_g, num_g, h, to_h, num_h,
):  # fmt: skip
    """Copy the first ``num_a`` words of ``a`` to ``to_a``, and so on."""
    num_tiles = 0
    for num_words in (num_a, num_b, num_c, num_d, num_e, num_f, num_g, num_h):
        num_tiles += _num_tiles(num_words)
    item = cuda.blockIdx.x
    while item < num_tiles:
        part = item, a, to_a, num_a
        part = _next_part(part, b, to_b, num_b)
        part = _next_part(part, c, to_c, num_c)
        part = _next_part(part, d, to_d, num_d)
        part = _next_part(part, e, to_e, num_e)
        part = _next_part(part, f, to_f, num_f)
        part = _next_part(part, g, to_g, num_g)
        part = _next_part(part, h, to_h, num_h)
        _copy_tile(part)
        item += cuda.gridDim.x


copy_parts = CudaKernel(_copy_parts_kernel, *[np.int64, np.int64, None] * MAX_PARTS)
