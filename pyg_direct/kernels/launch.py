"""Launch Numba CUDA kernels on raw addresses.

A ``CudaKernel`` has one signature whose array arguments are plain pointers, so that an argument is
one machine word and a launch costs a few microseconds instead of tens. In Numba's simulator the
same call runs the same kernel on NumPy views of the same memory.

Assumption: who launches keeps every array alive until the stream has passed the kernel.
"""

import ctypes
import functools
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

THREADS_PER_WARP = 32


@dataclass(frozen=True, slots=True)
class Span:
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
        self._handles: dict[int, Any] = {}
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
            One for each of the kernel's arguments, in order.
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
        driver, words = _driver(), self._words
        numbers = list(arguments)
        for position in self._pointers:
            numbers[position] = address_of(numbers[position])
        words.pack_into(words.buffer, 0, *numbers)
        (code,) = driver.cuLaunchKernel(
            self._handle(), num_blocks, 1, 1, threads_per_block, 1, 1, 0, stream, words.address, 0
        )
        if code != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(
                f"launch of {self._function.__name__} with {num_blocks} blocks of "
                f"{threads_per_block} threads failed: {code.name} ({int(code)})"
            )

    def _handle(self) -> Any:
        driver = _driver()
        code, device = driver.cuCtxGetDevice()
        if code != driver.CUresult.CUDA_SUCCESS:
            device = cuda.current_context().device.id
        handle = self._handles.get(int(device))
        if handle is None:
            handle = self._handles[int(device)] = self._compile()
        return handle

    def _compile(self) -> Any:
        from numba.cuda import types

        def argument_type(dtype: np.dtype[Any] | None) -> Any:
            return types.int64 if dtype is None else types.CPointer(getattr(types, dtype.name))

        cuda.current_context()
        dispatcher = cuda.jit(self._function, cache=True, **self._options)
        signature = types.void(*[argument_type(dtype) for dtype in self._dtypes])
        kernel = dispatcher.compile(signature.args)
        return _driver().CUkernel(int(kernel.library.get_cufunc().handle))


def address_of(array: Any) -> int:
    """Return the address that ``span_of`` finds, in a third of the time: launches are many."""
    if isinstance(array, Span):
        return array.address
    address: int = array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data
    return address


@functools.cache
def _driver() -> Any:
    """Import the driver's bindings, which only a machine with a GPU needs."""
    from cuda.bindings import driver

    return driver


def _numpy_view(span: Span, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if span.num_bytes == 0:
        return np.empty(0, dtype)
    memory = (ctypes.c_uint8 * span.num_bytes).from_address(span.address)
    view: np.ndarray[Any, Any] = np.ctypeslib.as_array(memory).view(dtype)
    return view
