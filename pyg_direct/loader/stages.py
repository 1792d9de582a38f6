"""The stages of a batch on the CPU and on a GPU: sample, gather, hand over.

On a GPU, each batch on its way has a stream of its own, and events take the place of waiting:
gathers wait on the GPU for each other, so that the bus serves one at a time, and the consumer's
stream waits for its rows. The host waits in two places: for the sizes of a batch, and for the
consumer to be done with an earlier one, which bounds memory. A batch that a graph makes is waited
for as a whole, and copied to memory of the consumer's stream.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pyg_direct.loader.record import EpochRecord
from pyg_direct.loader.stats import GATHER, SAMPLE, TRAIN, WAIT, GatherCount
from pyg_direct.memory.streams import StreamPool, StreamTurn, keep_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a loader does at each stage.

    Attributes
    ----------
    start : callable
        From an item of the source to what waits for a sampler's output, and hands it to the
        stream that is current then.
    repeat : callable, optional
        Tried before ``start``: from an item to a ``StartedBatch`` that is ``whole``, or None.
    gather : callable
        From that output, a ``GatherCount`` to fill, and rows if they are there already, to a batch.
    finish : callable
        From that batch to the consumer's; runs in the consumer's thread.
    samples_on_gpu : bool
        Whose time sampling takes.
    """

    start: Callable[[Any], Callable[[], Any]]
    gather: Callable[..., Any]
    finish: Callable[[Any], Any]
    samples_on_gpu: bool = False
    repeat: Callable[[Any], Any] | None = None


class CpuStages:
    """Stages of which none involves a GPU.

    Parameters
    ----------
    work : Work
        What to do.
    record : EpochRecord
        Where times go.
    """

    def __init__(self, work: Work, record: EpochRecord) -> None:
        self._work, self._record = work, record
        self._is_started = False
        self._handed_over_s: float | None = None
        self._asked_s = 0.0

    def release(self) -> None:  # docstring inherited
        self._asked_s = time.perf_counter()
        if not self._is_started:
            self._is_started = True
            self._record.start(self._asked_s)
        if self._handed_over_s is not None:
            self._record.add(TRAIN, self._handed_over_s, self._asked_s)
            self._handed_over_s = None

    def start(self, item: Any, released: None) -> Any:  # docstring inherited
        start_s = time.perf_counter()
        sample = self._work.start(item)()
        self._record.add(SAMPLE, start_s, time.perf_counter())
        return sample

    def gather(self, started: Any) -> tuple[Any, GatherCount]:  # docstring inherited
        self._record.catch_up()
        start_s = time.perf_counter()
        count = GatherCount()
        batch = self._work.gather(started, count)
        self._record.add(GATHER, start_s, time.perf_counter())
        return batch, count

    def consume(self, product: tuple[Any, GatherCount]) -> Any:  # docstring inherited
        batch, count = product
        batch = self._work.finish(batch)
        self._record.add_batch(count)
        self._handed_over_s = time.perf_counter()
        self._record.add(WAIT, self._asked_s, self._handed_over_s)
        return batch

    def close(self) -> None:  # docstring inherited
        self._record.stop()


class _Lane:
    """Where a batch is made: a stream, and an event for the begin of its sampling."""

    def __init__(self, device: torch.device, stream: torch.cuda.Stream | None) -> None:
        self.sampling = StreamTurn(device, stream, name="pyg_direct sample")
        self.gathering = StreamTurn(device, stream, name="pyg_direct gather")
        self.begun = _timed_event()


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaProduct:
    """A batch whose rows are on their way, when they are there, and whose memory it is."""

    batch: Any
    count: GatherCount
    gathered: torch.cuda.Event | None
    stream: torch.cuda.Stream


class CudaStages:
    """Stages of batches that appear on a GPU.

    Parameters
    ----------
    work : Work
        What to do.
    record : EpochRecord
        Where times go.
    device : torch.device
        A CUDA device.
    pool : StreamPool, optional
        Where streams of one's own come from; None works on the current stream.
    num_streams : int
        Of the pool: how many batches are on their way at a time.
    """

    def __init__(
        self,
        work: Work,
        record: EpochRecord,
        *,
        device: torch.device,
        pool: StreamPool | None = None,
        num_streams: int = 1,
    ) -> None:
        self._work, self._record, self._pool = work, record, pool
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = device = torch.device("cuda", index)
        self._streams = [] if pool is None else pool.take(num_streams)
        self._lanes = deque(_Lane(device, stream) for stream in self._streams or (None,))
        self._set_consumer(torch.cuda.current_stream(device.index))
        self._gathered: torch.cuda.Event | None = None
        self._handed_over: torch.cuda.Event | None = None
        self._released: torch.cuda.Event | None = None
        # The one before the last may still be waited for.
        self._turns = deque(_timed_event() for _ in range(3))

    def release(self) -> torch.cuda.Event | None:
        # docstring inherited
        if torch._C._cuda_getCurrentStream(self._device.index) != self._consumer_numbers:
            self._set_consumer(torch.cuda.current_stream(self._device.index))
        last, self._released = self._released, self._next_event()
        self._released.record(self._consumer)
        if self._handed_over is not None:
            self._record.add_events(TRAIN, self._handed_over, self._released)
            self._handed_over = None
        if last is not None:
            return self._released
        # Tables that the consumer's stream still fills must be there before the first gather; the
        # host need not wait for that.
        self._record.start(time.perf_counter(), self._released)
        for stream in self._streams:
            stream.wait_event(self._released)
        return None

    def _next_event(self) -> torch.cuda.Event:
        """Return an event for ``release``: one of a few by turns, if nobody reads its time."""
        if self._handed_over is not None or self._record.is_next_due(WAIT):
            return _timed_event()
        self._turns.rotate()
        return self._turns[0]

    def _set_consumer(self, stream: torch.cuda.Stream) -> None:
        self._consumer = stream
        self._consumer_numbers = stream.stream_id, stream.device_index, stream.device_type
        self._taking = StreamTurn(self._device, stream, name="pyg_direct take")

    def start(self, item: Any, released: torch.cuda.Event | None) -> tuple[_Lane, Any]:
        # docstring inherited
        lane = self._lanes[0]
        self._lanes.rotate(-1)
        with lane.sampling as stream:
            if not self._work.samples_on_gpu:
                self._wait_for(released)
                return lane, self._on_cpu(self._work.start, item)
            if self._work.repeat is not None and (repeated := self._work.repeat(item)) is not None:
                return lane, repeated
            self._wait_for(released)
            lane.begun.record(stream)
            started = self._work.start(item)
            if _whole(started) is None and self._record.is_due(SAMPLE):
                self._record.add_events(SAMPLE, lane.begun, _event(stream))
                lane.begun = _timed_event()
            return lane, started

    def _wait_for(self, released: torch.cuda.Event | None) -> None:
        """Bound the memory of batches; those that graphs make have no more than the graphs."""
        if self._streams and released is not None:
            released.synchronize()

    def _on_cpu(self, half: Callable[..., Any], *arguments: Any) -> Any:
        """Do the first or the second half of sampling, and note its time."""
        start_s = time.perf_counter()
        out = half(*arguments)
        self._record.add(SAMPLE, start_s, time.perf_counter())
        return out

    def gather(self, begun: tuple[_Lane, Any]) -> Any:  # docstring inherited
        self._record.catch_up()
        lane, started = begun
        is_due = self._record.is_due(GATHER)
        count = GatherCount(asks_hits=is_due)
        if _whole(started) is not None:
            return self._take(started, count, is_due)
        with lane.gathering as stream:
            # A GPU has done its work by then, and copies what came of it.
            sample = started() if self._work.samples_on_gpu else self._on_cpu(started)
            if self._gathered is not None and self._streams:
                stream.wait_event(self._gathered)
            start = _event(stream) if is_due else None
            batch = self._work.gather(sample, count)
            self._gathered = _event(stream)
        if start is not None:
            self._record.add_events(GATHER, start, self._gathered)
        return CudaProduct(batch=batch, count=count, gathered=self._gathered, stream=stream)

    def _take(self, started: Any, count: GatherCount, is_due: bool) -> CudaProduct:
        """Copy a batch that a graph made to memory of the consumer's stream, as its next work."""
        with self._taking as stream:
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    "the stream of the loop is capturing a CUDA graph, which would repeat the copy "
                    "of a batch; capture on another stream, as torch.cuda.graph does, or use "
                    "depth=0"
                )
            sample, whole = started(), started.whole
            batch = self._work.gather(sample, count, whole.following.rows)
            # Of what is counted on the GPU.
            taken = None if count.is_settled else _event(stream)
        if self._record.is_due(SAMPLE):
            self._record.add_passed(SAMPLE, *whole.sampling)
        if is_due:
            self._record.add_passed(GATHER, *whole.following.gathering)
        return CudaProduct(batch=batch, count=count, gathered=taken, stream=stream)

    def consume(self, product: CudaProduct) -> Any:  # docstring inherited
        if product.stream != self._consumer:
            self._consumer.wait_event(product.gathered or product.stream.record_event())
            keep_for(product.batch, self._consumer)
        torch.cuda.nvtx.range_push("pyg_direct transform")
        try:
            batch = self._work.finish(product.batch)
        finally:
            torch.cuda.nvtx.range_pop()
        self._record.add_batch(product.count, product.gathered)
        # Both of one batch, or neither.
        if self._record.is_due(WAIT) & self._record.is_due(TRAIN) and self._released is not None:
            self._handed_over = _event(self._consumer)
            self._record.add_events(WAIT, self._released, self._handed_over)
        return batch

    def close(self) -> None:  # docstring inherited
        self._record.stop(self._released)
        streams, self._streams = self._streams, []
        if streams and self._pool is not None:
            self._pool.put_back(streams)


def _whole(started: Any) -> Any:
    """Return the batch if a graph makes all of it, rows too, else None."""
    return getattr(started, "whole", None)


def _timed_event() -> torch.cuda.Event:
    # Blocking: whoever waits for it sleeps, and leaves the CPU to others.
    return torch.cuda.Event(enable_timing=True, blocking=True)


def _event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = _timed_event()
    event.record(stream)
    return event
