"""Launch Numba CUDA kernels on raw addresses.

A ``CudaKernel`` has one signature whose array arguments are plain pointers, so that an argument is
one machine word and a launch costs a few microseconds instead of tens. In Numba's simulator the
same call runs the same kernel on NumPy views of the same memory.

Assumption: who launches keeps every array alive until the stream has passed the kernel.
"""

import ctypes
import functools
import os
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

THREADS_PER_WARP = 32


class Span(NamedTuple):
    """Bytes at an address, in memory that somebody else owns.

    Parameters
    ----------
    address : int
        Of the first byte; 0 for no memory at all.
    num_bytes : int
        Length, in bytes.
    """

    address: int
    num_bytes: int


NO_SPAN = Span(0, 0)


def span_of(array: Any) -> Span:
    """Return the bytes of a contiguous array, without a copy.

    Parameters
    ----------
    array : torch tensor, NumPy array or Span
        On the CPU or the GPU; row-major and contiguous, which is not checked.

    Returns
    -------
    Span
        Valid for as long as ``array`` lives.
    """
    if isinstance(array, Span):
        return array
    if hasattr(array, "data_ptr"):
        return Span(array.data_ptr(), array.numel() * array.element_size())
    return Span(array.ctypes.data, array.nbytes)


class _ArgumentWords(threading.local):
    """Memory for the arguments of one kernel, one for each thread, made once: ctypes is slow.

    The driver copies the arguments before a launch returns.
    """

    def __init__(self, num_arguments: int) -> None:
        self.buffer = bytearray(8 * num_arguments)
        self.pack_into = struct.Struct(f"{num_arguments}q").pack_into
        self._words = (ctypes.c_int64 * num_arguments).from_buffer(self.buffer)
        first = ctypes.addressof(self._words)
        self._pointers = (ctypes.c_void_p * num_arguments)(
            *range(first, first + len(self.buffer), 8)
        )
        self.address = ctypes.addressof(self._pointers)
        self.device = ctypes.c_int()


class CudaKernel:
    """A CUDA kernel of one signature, compiled at its first launch and cached on disk.

    Parameters
    ----------
    function : callable
        Numba CUDA source. Indexes its pointer arguments; never asks for their shape.
    *dtypes : numpy.dtype or None
        One for each argument: the element type of a pointer, or None for an int64 number.
    **options
        Options of ``numba.cuda.jit``.
    """

    def __init__(self, function: Callable[..., None], *dtypes: Any, **options: Any) -> None:
        self._function = function
        self._dtypes = tuple(None if dtype is None else np.dtype(dtype) for dtype in dtypes)
        self._pointers = [i for i, dtype in enumerate(self._dtypes) if dtype is not None]
        self._options = options
        self._handles: dict[int, int] = {}
        self._words = _ArgumentWords(len(dtypes))
        self.__doc__ = function.__doc__

    def __call__(
        self, num_blocks: int, threads_per_block: int, *arguments: Any, stream: int = 0
    ) -> None:
        """Launch the kernel and return without waiting for it.

        Parameters
        ----------
        num_blocks, threads_per_block : int
            Launch shape, both in one dimension.
        *arguments : Span, torch tensor, NumPy array or int
            One for each of the kernel's arguments, in order. A pointer may be an address, an int,
            but not in the simulator, which has to know how much memory there is.
        stream : int
            CUDA stream handle; the kernel runs on the current device.
        """
        if IS_SIMULATOR:
            self._simulate(num_blocks, threads_per_block, arguments)
        else:
            self._launch(num_blocks, threads_per_block, arguments, stream)

    def _simulate(
        self, num_blocks: int, threads_per_block: int, arguments: tuple[Any, ...]
    ) -> None:
        views = [
            value if dtype is None else _numpy_view(span_of(value), dtype)
            for value, dtype in zip(arguments, self._dtypes, strict=True)
        ]
        cuda.jit(self._function)[num_blocks, threads_per_block](*views)

    def _launch(
        self, num_blocks: int, threads_per_block: int, arguments: tuple[Any, ...], stream: int
    ) -> None:
        words = self._words
        numbers = list(arguments)
        for position in self._pointers:
            numbers[position] = address_of(numbers[position])
        words.pack_into(words.buffer, 0, *numbers)
        code = _driver().cuLaunchKernel(
            self._handle(words.device), num_blocks, 1, 1, threads_per_block, 1, 1, 0, stream,
            words.address, None,
        )  # fmt: skip
        if code:
            raise RuntimeError(
                f"launch of {self._function.__name__} with {num_blocks} blocks of "
                f"{threads_per_block} threads failed: {_name_of(code)} ({code})"
            )

    def _handle(self, device: ctypes.c_int) -> int:
        if _driver().cuCtxGetDevice(ctypes.byref(device)):
            device.value = cuda.current_context().device.id
        handle = self._handles.get(device.value)
        if handle is None:
            handle = self._handles[device.value] = self._compile()
        return handle

    def _compile(self) -> int:
        from numba.cuda import types

        def argument_type(dtype: np.dtype[Any] | None) -> Any:
            return types.int64 if dtype is None else types.CPointer(getattr(types, dtype.name))

        cuda.current_context()
        dispatcher = cuda.jit(self._function, cache=True, **self._options)
        signature = types.void(*[argument_type(dtype) for dtype in self._dtypes])
        kernel = dispatcher.compile(signature.args)
        return int(kernel.library.get_cufunc().handle)


def address_of(array: Any) -> int:
    """Return the address that ``span_of`` finds, in a third of the time: launches are many."""
    if isinstance(array, int):
        return array
    if isinstance(array, Span):
        return array.address
    address: int = array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data
    return address


@functools.cache
def _driver() -> Any:
    """Open CUDA's driver, which only a machine with a GPU has.

    Two calls a launch go to it directly: the bindings make an enumeration's member of every code
    that comes back, which takes longer than the call.
    """
    driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    driver.cuLaunchKernel.argtypes = [
        ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3,
    ]  # fmt: skip
    return driver


def _name_of(code: int) -> str:
    from cuda.bindings import driver

    return str(driver.CUresult(code).name)


def _numpy_view(span: Span, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if span.num_bytes == 0:
        return np.empty(0, dtype)
    memory = (ctypes.c_uint8 * span.num_bytes).from_address(span.address)
    view: np.ndarray[Any, Any] = np.ctypeslib.as_array(memory).view(dtype)
    return view
