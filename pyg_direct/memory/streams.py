"""CUDA streams: keep some, make one current, and hand tensors from one to another."""

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.data import BaseData

_WITHOUT_TENSORS = (int, float, str, type(None))


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which a CUDA device is the current one."""
    if torch.cuda.current_device() == device.index:
        return nullcontext()
    return torch.cuda.device(device)


def current_handle() -> int:
    """Return CUDA's handle of the current stream of the current device.

    The stream itself would take torch several times as long.
    """
    return torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())


class StreamTurn:
    """A context in which a stream and its device are current, to enter again and again.

    It does what ``torch.cuda.stream`` does, with fewer look-ups: loaders enter several a batch. One
    thread at a time may be in it, once.

    Parameters
    ----------
    device : torch.device
        A CUDA device.
    stream : torch.cuda.Stream, optional
        Of the device; None leaves the device's stream as it is.
    name : str
        What profilers call the work that is launched inside.
    """

    def __init__(
        self, device: torch.device, stream: torch.cuda.Stream | None = None, *, name: str
    ) -> None:
        self._index = torch.cuda.current_device() if device.index is None else device.index
        self._given, self._name = stream, name
        if stream is not None:
            self._numbers = stream.stream_id, stream.device_index, stream.device_type

    def __enter__(self) -> torch.cuda.Stream:
        """Return the stream."""
        torch.cuda.nvtx.range_push(self._name)
        self._last_index = torch.cuda.current_device()
        # As three numbers: to make a stream of them takes torch several times as long.
        self._last = torch._C._cuda_getCurrentStream(self._index)
        if self._given is not None:
            if self._last != self._numbers or self._last_index != self._index:
                torch._C._cuda_setStream(*self._numbers)
            return self._given
        stream = torch.cuda.current_stream(self._index)
        torch.cuda.set_stream(stream)
        return stream

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        torch._C._cuda_setStream(*self._last)
        if self._last_index != self._index:
            torch.cuda.set_device(self._last_index)
        torch.cuda.nvtx.range_pop()


class StreamPool:
    """Streams for batches that are made ahead, kept from epoch to epoch.

    A captured batch of the sampler belongs to a stream, so epochs should use the same ones; epochs
    that overlap must not.

    Parameters
    ----------
    device : torch.device
        A CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._free: list[torch.cuda.Stream] = []

    def take(self, num_streams: int) -> list[torch.cuda.Stream]:
        """Return streams that nobody else uses."""
        with self._lock:
            taken, self._free = self._free[:num_streams], self._free[num_streams:]
        # None goes before the model's: a batch is made while others wait to be used.
        missing = range(num_streams - len(taken))
        return taken + [torch.cuda.Stream(self._device) for _ in missing]

    def put_back(self, streams: list[torch.cuda.Stream]) -> None:
        """Let others use streams that were taken."""
        with self._lock:
            self._free = streams + self._free


def bind_to_stream(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function to call with any stream current, which runs on the one that is so now.

    Parameters
    ----------
    function : callable
        What it returns is handed to the stream that is current at the call; see ``keep_for``. A
        process that does not use CUDA gets the function as it is.
    """
    if not torch.cuda.is_initialized():
        return function
    home = torch.cuda.current_stream()

    def call() -> Any:
        current = torch.cuda.current_stream(home.device_index)
        if current == home and torch.cuda.current_device() == home.device_index:
            return function()
        with torch.cuda.stream(home):
            values = function()
        current.wait_stream(home)
        keep_for(values, current)
        return values

    return call


def keep_for(values: Any, stream: torch.cuda.Stream) -> None:
    """Keep the allocator from reusing memory of CUDA tensors until a stream has come so far.

    Parameters
    ----------
    values : object
        Tensors in dictionaries, lists, tuples, PyG's graphs, or objects with attributes.
    stream : torch.cuda.Stream
        Which uses them, and did not make them.
    """
    if isinstance(values, Tensor):
        if values.is_cuda:
            values.record_stream(stream)
        return
    for value in _parts(values):
        if not isinstance(value, _WITHOUT_TENSORS):
            keep_for(value, stream)


def _parts(values: Any) -> Iterable[Any]:
    if isinstance(values, list | tuple):
        return values
    if isinstance(values, dict):
        return values.values()
    if isinstance(values, BaseData):
        return [storage._mapping for storage in values.stores]
    slots = [getattr(values, name, None) for name in getattr(values, "__slots__", ())]
    return [*getattr(values, "__dict__", {}).values(), *slots]
