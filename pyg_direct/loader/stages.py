"""The stages of a batch on the CPU and on a GPU: sample, gather, hand over.

On a GPU, sampling and gathering have streams of their own, and events take the place of waiting:
the gather waits on the GPU for its ids, the consumer's stream for its rows. What is no gather stays
off the gather's stream, where it would keep the bus idle. The host waits in two places: for the
sizes of a batch, and for the consumer to be done with an earlier batch, which bounds memory.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pyg_direct.loader.stats import GATHER, SAMPLE, TRAIN, WAIT, EpochRecord, GatherCount
from pyg_direct.memory.streams import StreamTurn, keep_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a loader does at each stage.

    Attributes
    ----------
    start : callable
        From an item of the source to what waits for a sampler's output, and hands it to the
        stream that is current then.
    gather : callable
        From that output, and a ``GatherCount`` to fill, to a batch.
    finish : callable
        From that batch to the consumer's; runs in the consumer's thread.
    samples_on_gpu : bool
        Whose time sampling takes.
    """

    start: Callable[[Any], Callable[[], Any]]
    gather: Callable[[Any, GatherCount], Any]
    finish: Callable[[Any], Any]
    samples_on_gpu: bool = False


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


class StreamPairs:
    """Streams, one for sampling and one for gathering, kept from epoch to epoch.

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
        self._free: list[tuple[torch.cuda.Stream, torch.cuda.Stream]] = []

    def take(self) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
        """Return a pair that nobody else uses."""
        with self._lock:
            if self._free:
                return self._free.pop()
        # Their kernels take few multiprocessors: they should have them before the model takes all.
        return torch.cuda.Stream(self._device, -1), torch.cuda.Stream(self._device, -1)

    def put_back(self, pair: tuple[torch.cuda.Stream, torch.cuda.Stream]) -> None:
        """Let others use a pair."""
        with self._lock:
            self._free.append(pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaProduct:
    """A batch whose rows are on their way, and the event that says when they are there."""

    batch: Any
    count: GatherCount
    gathered: torch.cuda.Event


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
    pairs : StreamPairs, optional
        Where streams of one's own come from; None works on the current stream.
    """

    def __init__(
        self,
        work: Work,
        record: EpochRecord,
        *,
        device: torch.device,
        pairs: StreamPairs | None = None,
    ) -> None:
        self._work, self._record, self._index, self._pairs = work, record, device.index, pairs
        self._streams = None if pairs is None else pairs.take()
        sampling, gathering = self._streams or (None, None)
        self._sampling = StreamTurn(device, sampling, name="pyg_direct sample")
        self._gathering = StreamTurn(device, gathering, name="pyg_direct gather")
        self._sampled = torch.cuda.Event()
        self._handed_over: torch.cuda.Event | None = None
        self._released: torch.cuda.Event | None = None

    def release(self) -> torch.cuda.Event | None:
        # docstring inherited
        self._consumer = torch.cuda.current_stream(self._index)
        last, self._released = self._released, _event(self._consumer)
        if self._handed_over is not None:
            self._record.add_events(TRAIN, self._handed_over, self._released)
            self._handed_over = None
        if last is not None:
            return self._released
        # Tables that the consumer's stream still fills must be there before the first gather; the
        # host need not wait for that.
        self._record.start(time.perf_counter(), self._released)
        for stream in self._streams or ():
            stream.wait_event(self._released)
        return None

    def start(self, item: Any, released: torch.cuda.Event | None) -> Callable[[], Any]:
        # docstring inherited
        if self._streams is not None and released is not None:
            released.synchronize()
        with self._sampling as stream:
            if not self._work.samples_on_gpu:
                return self._on_cpu(self._work.start, item)  # type: ignore[no-any-return]
            start = _event(stream)
            finish = self._work.start(item)
            self._record.add_events(SAMPLE, start, _event(stream))
            return finish

    def _on_cpu(self, half: Callable[..., Any], *arguments: Any) -> Any:
        """Do the first or the second half of sampling, and note its time."""
        start_s = time.perf_counter()
        out = half(*arguments)
        self._record.add(SAMPLE, start_s, time.perf_counter())
        return out

    def gather(self, started: Callable[[], Any]) -> CudaProduct:  # docstring inherited
        count = GatherCount()
        with self._sampling as sampling:
            # A GPU has done its work by then, and copies what came of it.
            sample = started() if self._work.samples_on_gpu else self._on_cpu(started)
            self._sampled.record(sampling)
        with self._gathering as stream:
            if self._streams is not None:
                stream.wait_event(self._sampled)
                keep_for(sample, stream)
            start = _event(stream)
            batch = self._work.gather(sample, count)
            gathered = _event(stream)
        self._record.add_events(GATHER, start, gathered)
        return CudaProduct(batch=batch, count=count, gathered=gathered)

    def consume(self, product: CudaProduct) -> Any:  # docstring inherited
        if self._streams is not None:
            self._consumer.wait_event(product.gathered)
            keep_for(product.batch, self._consumer)
        torch.cuda.nvtx.range_push("pyg_direct transform")
        try:
            batch = self._work.finish(product.batch)
        finally:
            torch.cuda.nvtx.range_pop()
        self._record.add_batch(product.count, product.gathered)
        self._handed_over = _event(self._consumer)
        if self._released is not None:
            self._record.add_events(WAIT, self._released, self._handed_over)
        return batch

    def close(self) -> None:  # docstring inherited
        self._record.stop()
        streams, self._streams = self._streams, None
        if streams is not None and self._pairs is not None:
            self._pairs.put_back(streams)


def _event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    # Blocking: whoever waits for it sleeps, and leaves the CPU to others.
    event = torch.cuda.Event(enable_timing=True, blocking=True)
    event.record(stream)
    return event
