"""Batches as a CUDA graph: what the host launches once, the GPU repeats at one command.

A batch is some thirty short kernels, which take the host longer to launch than the GPU to run.
Where no size depends on the GPU's answer, batches of one layout launch the same, and the third
one is captured; so is what follows it and needs no answer either, such as the gather of its rows.
"""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from pyg_direct.kernels.copies import WORD_BYTES, Copies
from pyg_direct.memory import MappedArray
from pyg_direct.memory.streams import current_handle, on_device
from pyg_direct.sampler.hops import HopSampler, Sampled
from pyg_direct.sampler.layout import BatchLayout, IdArray
from pyg_direct.sampler.relation import NodeType

# Of a word that the graph has not noted; those that it notes are not negative.
NOT_YET = -1
# Between two looks at what it noted: about a tenth of the time that has passed.
SHORTEST_NAP_S, LONGEST_NAP_S, NAP_GROWTH = 10e-6, 1e-3, 1.1


class Follower(Protocol):
    """What a graph does behind the sampling of a batch, with sizes that only the GPU knows then."""

    def is_current(self) -> bool:
        """Tell whether what was captured may still be repeated."""

    def launch(self, reached: dict[NodeType, tuple[Tensor, Tensor]]) -> Any:
        """Launch it on the current stream, by ``HopSampler.reached``; returns what ``take`` needs.

        Called once as it is, which loads every kernel, and then in the capture.
        """

    def take(self, made: Any, num_nodes: dict[NodeType, int], copies: Copies) -> Any:
        """Return what it made for a batch, in memory of the current stream.

        The caller launches the copies on that stream then.
        """


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
    words : int64 array
        The first batch, packed; all is launched once with it before it is captured: a capture may
        neither register memory nor load a kernel.
    follower : Follower, optional
        What else belongs to a batch. Its stream must not be the default one, which nobody captures.
    """

    def __init__(
        self,
        layout: BatchLayout,
        make_sampler: Callable[[], HopSampler],
        device: torch.device,
        words: IdArray,
        follower: Follower | None = None,
    ) -> None:
        # What the graph reads, and where it notes the key when it has done all, and the totals: to
        # look there takes the host less than an event, and no order of what it sees matters.
        self._host = MappedArray.empty((layout.num_words,), torch.int64)
        self._notes = MappedArray.empty((1 + layout.num_totals,), torch.int64)
        self._packed, self._noted = (
            array.cpu_view().numpy() for array in (self._host, self._notes)
        )
        self._layout, self._device = layout, device
        self._words = torch.empty(layout.num_words, dtype=torch.int64, device=device)
        # When sampling begins and ends; the graph records them.
        self.sampling = external_event(), external_event()
        # The graph waits until the copies of the batch before were made.
        self._taken = torch.cuda.Event(external=True)
        self._graph = torch.cuda.CUDAGraph()
        # The first batch is noted before it is captured, too.
        self._lock, self._is_passed = threading.Lock(), False
        self._repeated: Callable[[], RepeatedBatch | None] = _nothing
        self._follower = follower
        self._stream = torch.cuda.current_stream(device)
        # What follows leaves notes for the next one on its stream.
        side = torch.cuda.Stream(device) if follower is None else self._stream
        self._packed[:], self._noted[:] = words, NOT_YET
        self._taken.record(self._stream)
        side.wait_stream(self._stream)
        with torch.cuda.stream(side), _no_collection():
            self._launch(make_sampler, side)
            # Other threads may go on using the GPU meanwhile.
            self._graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._sampler, self._following = self._launch(make_sampler, side)
            finally:
                self._graph.capture_end()
        self._stream.wait_stream(side)

    def _launch(
        self, make_sampler: Callable[[], HopSampler], stream: torch.cuda.Stream
    ) -> tuple[HopSampler, Any]:
        layout, (began, sampled) = self._layout, self.sampling
        words, noted = self._words.data_ptr(), self._notes.device_address
        self._taken.wait(stream)
        began.record(stream)
        _copy(self._host.device_address, words, layout.num_words, stream)
        sampler = make_sampler()
        sampler.launch(layout, self._words)
        _copy(words + WORD_BYTES, noted + WORD_BYTES, layout.num_totals, stream)
        sampled.record(stream)
        follower = self._follower
        following = None if follower is None else follower.launch(sampler.reached())
        _copy(words, noted, 1, stream)
        return sampler, following

    @property
    def is_current(self) -> bool:
        """Whether the graph may be repeated."""
        return self._follower is None or self._follower.is_current()

    def start(self, words: IdArray) -> "RepeatedBatch | None":
        """Start a batch of the layout on the stream of the graph.

        Parameters
        ----------
        words : int64 array
            The batch, packed by the layout; copied.

        Returns
        -------
        RepeatedBatch or None
            None while the one before it was neither collected nor dropped: it has the memory.
        """
        with self._lock:
            last = self._repeated()
            if last is not None and not last.is_collected:
                return None
            repeated = RepeatedBatch(self, is_followed=self._follower is not None)
            self._repeated = weakref.ref(repeated)
        if not self._is_passed:
            # A batch that was dropped may not have read the host's words yet.
            self._wait()
        self._noted[:] = NOT_YET
        self._packed[:] = words
        self._graph.replay()
        self._is_passed = False
        return repeated

    def collect(self) -> tuple[Sampled, Any]:
        """Wait for the batch; return copies of it, and of what follows it, on the current stream.

        The next batch waits for the copies on the GPU.
        """
        totals, following = self._wait(), None
        with on_device(self._device):
            copies = Copies()
            sampled = self._sampler.collect(totals, copies)
            if self._follower is not None:
                num_nodes = {kind: ids.numel() for kind, ids in sampled.node.items()}
                following = self._follower.take(self._following, num_nodes, copies)
            copies.launch(current_handle())
            self._taken.record()
        return sampled, following

    def _wait(self) -> list[int]:
        """Return the totals of the batch that was started last, when the graph has done it."""
        _, *totals = wait_for_notes(self._noted, self._stream)
        self._is_passed = True
        return totals


class RepeatedBatch:
    """A batch in the memory of a graph. Call it once: it waits, and returns copies.

    They are made on the current stream, whichever it is, and the memory is free for the next batch.

    Parameters
    ----------
    batches : CapturedBatches
        The graph.
    is_followed : bool
        Whether something follows the sampling.

    Attributes
    ----------
    sampling : pair of torch.cuda.Event
        The begin and the end of sampling, until the next batch of the graph begins.
    following : object
        What the follower made, once the batch was called.
    """

    def __init__(self, batches: CapturedBatches, *, is_followed: bool) -> None:
        self._batches, self.is_followed = batches, is_followed
        self.sampling, self.following = batches.sampling, None
        self.is_collected = False

    def __call__(self) -> Sampled:
        sampled, self.following = self._batches.collect()
        self.is_collected = True
        return sampled


def wait_for_notes(noted: IdArray, stream: torch.cuda.Stream) -> list[int]:
    """Return what a stream notes in host memory, when none of the words is ``NOT_YET``.

    Parameters
    ----------
    noted : int64 array
        The words.
    stream : torch.cuda.Stream
        Which notes them.

    Raises
    ------
    RuntimeError
        If the stream came to its end without them, or the GPU failed.
    """
    nap_s = SHORTEST_NAP_S
    words: list[int]
    while min(words := noted.tolist()) == NOT_YET:
        time.sleep(nap_s)
        nap_s = min(NAP_GROWTH * nap_s, LONGEST_NAP_S)
        # To ask takes time, and raises if the GPU has failed. The last words may come meanwhile.
        is_at_end = nap_s == LONGEST_NAP_S and stream.query()
        if is_at_end and noted.min() == NOT_YET:
            raise RuntimeError("a CUDA graph ended without its batch; make a new loader")
    return words


def external_event() -> torch.cuda.Event:
    """Return an event that a graph records each time it is repeated."""
    return torch.cuda.Event(enable_timing=True, external=True)


def _copy(source: int, target: int, num_words: int, stream: torch.cuda.Stream) -> None:
    copies = Copies()
    copies.add(source, target, num_words)
    copies.launch(stream.cuda_stream)


def _nothing() -> None:
    return None


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
