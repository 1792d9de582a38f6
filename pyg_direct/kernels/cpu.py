"""Compile a loop for the CPU: on all threads, or on one where threads cannot be had.

A forked child (a worker of a data loader) must not enter the threading layer that its parent
started: OpenMP ends the process there. Such children run the same loop on one thread; they are many
already. Threads of one process take turns: a kernel uses all cores, and Numba's own threading layer
ends a process that enters it twice at a time.
"""

import functools
import os
import threading
import types
from collections.abc import Callable
from typing import Any

import numba

_PROCESS = os.getpid()
_TURN = threading.Lock()


def cpu_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function``, whose outer loop is a ``numba.prange``; cached on disk, no GIL.

    Parameters
    ----------
    function : callable
        Numba source over NumPy arrays. Every iteration writes to places of its own.

    Returns
    -------
    callable
        Same arguments.
    """
    parallel = numba.njit(function, parallel=True, cache=True, nogil=True)
    serial = numba.njit(_renamed(function, "_serial"), cache=True, nogil=True)

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        # A lock that was held at a fork stays so in the child, which needs none.
        if os.getpid() != _PROCESS:
            return serial(*arguments)
        with _TURN:
            return parallel(*arguments)

    return run


def _renamed(function: Callable[..., Any], suffix: str) -> Callable[..., Any]:
    """Copy a function: Numba's disk cache tells two compilations apart by name alone."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__ + suffix, function.__defaults__
    )
    copy.__qualname__ = function.__qualname__ + suffix
    copy.__module__ = function.__module__
    return copy
