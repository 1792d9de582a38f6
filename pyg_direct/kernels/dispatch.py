"""What the sampling kernels share: launch shapes, and functions for loops and kernels alike."""

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR
from numba.extending import register_jitable

THREADS_PER_BLOCK = 256
MAX_BLOCKS = 1 << 20
# A simulated thread is a Python thread: few of them, each with many items.
SIMULATOR_BLOCKS = 2
SIMULATOR_THREADS_PER_BLOCK = 2


def shared_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function on arrays callable from CPU loops and CUDA kernels alike.

    Numba compiles an ``njit`` function anew for the GPU. The simulator's arrays are no NumPy
    arrays, so that there a kernel must call plain Python.
    """
    shared: Callable[..., Any] = (
        register_jitable(function) if IS_SIMULATOR else njit(cache=True)(function)
    )
    return shared


def launch_shape(num_items: int) -> tuple[int, int]:
    """Return blocks, and threads a block, for a kernel that strides over its items."""
    if IS_SIMULATOR:
        return SIMULATOR_BLOCKS, SIMULATOR_THREADS_PER_BLOCK
    blocks = -(-num_items // THREADS_PER_BLOCK)
    return max(1, min(blocks, MAX_BLOCKS)), THREADS_PER_BLOCK
