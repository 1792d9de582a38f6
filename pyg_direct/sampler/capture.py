"""Batches as a CUDA graph: what the host launches once, the GPU repeats at one command.

A batch is some thirty short kernels, which take the host longer to launch than the GPU to run.
Where no size depends on the GPU's answer, batches of one layout launch the same, and the second
one is captured.
"""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_direct.kernels.dispatch import launch_shape
from pyg_direct.kernels.join import copy_words
from pyg_direct.kernels.launch import Span
from pyg_direct.memory import MappedArray
from pyg_direct.memory.streams import current_handle, on_device
from pyg_direct.sampler.hops import HopSampler, Sampled
from pyg_direct.sampler.layout import BatchLayout
from pyg_direct.sampler.relation import EdgeType, NodeType

# Each keeps the memory of a batch, with bounds for sizes.
MAX_CAPTURED = 2
# Link loaders have a size of their own for almost every batch.
MAX_SEEN = 1000

_this_thread = threading.local()


class CaptureKey(NamedTuple):
    """What batches must share to be repeated by one graph."""

    layout: BatchLayout
    fanouts: tuple[tuple[EdgeType, tuple[int, ...]], ...]
    method: int
    edge_form: int
    stream: int


class CapturedBatches:
    """The graph of one layout, on the stream that is current when it is made.

    Parameters
    ----------
    layout : BatchLayout
        Of the batches.
    make_sampler : callable
        Returns a ``HopSampler`` that launches on the current stream.
    device : torch.device
        A CUDA device, the current one.

    Notes
    -----
    The kernels must have run before on this device: loading one is not allowed during a capture.
    """

    def __init__(
        self, layout: BatchLayout, make_sampler: Callable[[], HopSampler], device: torch.device
    ) -> None:
        # What the graph reads, and where it notes the totals.
        self._host = MappedArray.empty((layout.num_words,), torch.int64)
        self._layout, self._packed, self._device = layout, self._host.cpu_view(), device
        self._noted = MappedArray(self._packed[1 : 1 + layout.num_totals])
        self._words = torch.empty(layout.num_words, dtype=torch.int64, device=device)
        self._made = torch.cuda.Event(blocking=True)
        self._graph = torch.cuda.CUDAGraph()
        self._lock = threading.Lock()
        self._repeated: Callable[[], RepeatedBatch | None] = _nothing
        self._stream, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        # A capture may neither register memory nor load a kernel, and nothing has used these yet.
        packed, noted = (
            Span(each.device_address, each.num_bytes) for each in (self._host, self._noted)
        )
        copy_words(1, 1, packed, 0, noted, stream=self._stream.cuda_stream)
        side.wait_stream(self._stream)
        with torch.cuda.stream(side), _no_collection():
            # Other threads may go on using the GPU meanwhile.
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                _copy(packed, self._words, layout.num_words, side)
                self._sampler = make_sampler()
                self._sampler.launch(layout, self._words)
                _copy(self._words[1:], noted, layout.num_totals, side)
            finally:
                self._graph.capture_end()
        self._stream.wait_stream(side)

    def start(
        self, key: int, seeds: dict[NodeType, Tensor], carried: Tensor | None
    ) -> "RepeatedBatch | None":
        """Start a batch of the layout on the stream of the graph.

        Parameters
        ----------
        key, seeds, carried
            See ``BatchLayout.pack``.

        Returns
        -------
        RepeatedBatch or None
            None while the one before it was neither collected nor dropped: it has the memory.
        """
        with self._lock:
            last = self._repeated()
            if last is not None and not last.is_collected:
                return None
            repeated = RepeatedBatch(self)
            self._repeated = weakref.ref(repeated)
        # A batch that was dropped may not have read the host's words yet.
        self._made.synchronize()
        self._layout.pack(key, seeds, carried, out=self._packed)
        self._graph.replay()
        self._made.record(self._stream)
        return repeated

    def _collect(self) -> Sampled:
        self._made.synchronize()
        totals = self._noted.cpu_view().tolist()
        with on_device(self._device):
            handle = current_handle()
            sampled = self._sampler.collect(totals, stream=handle)
        if handle != self._stream.cuda_stream:
            # The next batch will overwrite what the copies still read.
            self._stream.wait_stream(torch.cuda.current_stream(self._device.index))
        return sampled


class RepeatedBatch:
    """A batch in the memory of a graph.

    Parameters
    ----------
    batches : CapturedBatches
        The graph.
    """

    def __init__(self, batches: CapturedBatches) -> None:
        self._batches, self.is_collected = batches, False

    def collect(self) -> Sampled:
        """Wait for the batch and return copies, made on the current stream, whichever it is.

        The memory is free for the next one, which waits for the copies on the GPU.
        """
        sampled = self._batches._collect()
        self.is_collected = True
        return sampled


def _copy(source: Any, target: Any, num_words: int, stream: torch.cuda.Stream) -> None:
    shape = launch_shape(num_words)
    copy_words(*shape, source, num_words, target, stream=stream.cuda_stream)


def _nothing() -> None:
    return None


def bar_captures() -> None:
    """Let this thread capture nothing: batches that want it are launched kernel by kernel.

    During a capture torch lets no thread draw random numbers on the GPU, so a thread that samples
    beside a model, with its dropout, must not capture.
    """
    _this_thread.is_barred = True


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's cycle collector from freeing GPU memory here, which would end a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class CaptureCache:
    """Decides which batches are worth a graph, and keeps the graphs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_seen: dict[CaptureKey, int] = {}
        self._captured: dict[CaptureKey, CapturedBatches] = {}

    def find(
        self, key: CaptureKey, make_sampler: Callable[[], HopSampler], device: torch.device
    ) -> CapturedBatches | None:
        """Return the graph for a key, captured now if batches like it were seen twice before.

        Parameters
        ----------
        key : CaptureKey
            Of a batch.
        make_sampler, device
            See ``CapturedBatches``.
        """
        with self._lock:
            if key not in self._captured:
                is_worth_it = self._num_seen.get(key, 0) >= 2 and len(self._captured) < MAX_CAPTURED
                if not is_worth_it or getattr(_this_thread, "is_barred", False):
                    return None
                self._captured[key] = CapturedBatches(key.layout, make_sampler, device)
            return self._captured[key]

    def note(self, key: CaptureKey) -> None:
        """Remember a batch that was made without a graph, and never waited in between."""
        with self._lock:
            if len(self._num_seen) >= MAX_SEEN:
                self._num_seen.clear()
            self._num_seen[key] = self._num_seen.get(key, 0) + 1
