"""How many threads run an operation: parallel CPU functions, and launch shapes of CUDA kernels."""

import multiprocessing
from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import njit
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR
from numba.extending import register_jitable

THREADS_PER_BLOCK = 256
MAX_BLOCKS = 1 << 20
# A simulated thread is a Python thread: few of them, each with many items.
SIMULATOR_BLOCKS = 2
SIMULATOR_THREADS_PER_BLOCK = 2


class CpuFunction:
    """A loop over items, compiled with ``numba.prange`` on all threads.

    In a daemonic process, as the workers of a ``DataLoader`` are, it runs on one thread: OpenMP
    does not survive a fork, and the workers are the parallelism already.

    Parameters
    ----------
    function : callable
        Source for ``numba.njit``. Items write to distinct places, or the same value to one place.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._parallel = njit(parallel=True, cache=True)(function)
        self._serial = njit(cache=True)(_renamed(function))
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any) -> None:
        """Run to the end on NumPy arrays and numbers."""
        is_worker = multiprocessing.current_process().daemon
        (self._serial if is_worker else self._parallel)(*arguments)


def shared_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function on arrays callable from CPU loops and CUDA kernels alike.

    Numba compiles an ``njit`` function anew for the GPU. The simulator's arrays are no NumPy
    arrays, so that there a kernel must call plain Python.
    """
    shared: Callable[..., Any] = (
        register_jitable(function) if IS_SIMULATOR else njit(cache=True)(function)
    )
    return shared


def _renamed(function: Callable[..., None]) -> Callable[..., None]:
    """Copy a function under another name: Numba's disk cache does not tell its options apart."""
    source: Any = function
    copy = FunctionType(source.__code__, source.__globals__, source.__name__ + "_serial")
    copy.__qualname__ = source.__qualname__ + "_serial"
    return copy


def launch_shape(num_items: int) -> tuple[int, int]:
    """Return blocks, and threads a block, for a kernel that strides over its items."""
    if IS_SIMULATOR:
        return SIMULATOR_BLOCKS, SIMULATOR_THREADS_PER_BLOCK
    blocks = -(-num_items // THREADS_PER_BLOCK)
    return max(1, min(blocks, MAX_BLOCKS)), THREADS_PER_BLOCK
