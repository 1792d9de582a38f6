"""What each epoch of a loader cost, by stage.

Times of a GPU come from events, which are read when the GPU has passed them: nothing waits for them
in the loop.
"""

import threading
import time
from collections import deque
from dataclasses import dataclass, field

import torch

# Enough for a picture, and bounded.
MAX_SPANS = 256

SAMPLE, GATHER, WAIT, TRAIN = "sample", "gather", "wait", "train"


@dataclass(slots=True)
class GatherCount:
    """Rows of a batch that tables delivered.

    Attributes
    ----------
    rows : int
        Of nodes and edges, all tables together.
    host_bytes : int
        Bytes of those that stand in host memory.
    """

    rows: int = 0
    host_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpan:
    """When a stage of a batch ran, in seconds since the epoch's first batch was asked for."""

    stage: str
    start_s: float
    stop_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStats:
    """One epoch, or what there is of it.

    Attributes
    ----------
    epoch : int
        Its number; the first is 0.
    num_batches : int
        Batches handed over.
    epoch_s : float
        Seconds from the first batch asked for to the end of the loop.
    sample_s, gather_s : float
        Seconds of the stages. Pipelined, they overlap with each other and with training.
    wait_s : float
        Seconds that the consumer waited for batches; on a GPU, that its stream stood idle for them.
        The time of ``transform`` is in it.
    train_s : float
        Seconds between batches, which the consumer used.
    num_rows : int
        Rows gathered, of nodes and edges.
    host_bytes : int
        Bytes of the rows that came from host memory.
    spans : tuple of StageSpan
        When the first stages ran, for a picture.
    """

    epoch: int
    num_batches: int
    epoch_s: float
    sample_s: float
    gather_s: float
    wait_s: float
    train_s: float
    num_rows: int
    host_bytes: int
    spans: tuple[StageSpan, ...] = field(repr=False)

    @property
    def gather_gb_per_s(self) -> float:
        """Rows from host memory, in 10^9 bytes a second of the gather; 0.0 where there are none."""
        return self.host_bytes / self.gather_s / 1e9 if self.gather_s else 0.0

    @property
    def idle_share(self) -> float:
        """Share of the consumer's time, between 0 and 1, that it waited for batches."""
        total = self.wait_s + self.train_s
        return self.wait_s / total if total else 0.0


class EpochRecord:
    """Collects what becomes an ``EpochStats``; threads may share it.

    Parameters
    ----------
    epoch : int
        Its number.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._lock = threading.Lock()
        self._seconds = dict.fromkeys((SAMPLE, GATHER, WAIT, TRAIN), 0.0)
        self._spans: list[StageSpan] = []
        self._passing: deque[tuple[str, torch.cuda.Event, torch.cuda.Event]] = deque()
        self._count = GatherCount()
        self._num_batches = 0
        self._first: torch.cuda.Event | None = None
        self._start_s: float | None = None
        self._stop_s: float | None = None
        # The host may leave the loop long before the GPU.
        self._passed_s = 0.0

    def start(self, at_s: float, first: torch.cuda.Event | None = None) -> None:
        """Start the epoch's clock, at a reading of ``time.perf_counter``.

        Parameters
        ----------
        at_s : float
            The reading.
        first : torch.cuda.Event, optional
            Recorded at that time.
        """
        self._start_s, self._first = at_s, first

    def stop(self) -> None:
        """Stop the epoch's clock; harmless twice."""
        if self._stop_s is None:
            self._stop_s = time.perf_counter()

    def add(self, stage: str, start_s: float, stop_s: float) -> None:
        """Add a stage that ran on the CPU; readings of ``time.perf_counter``."""
        base = start_s if self._start_s is None else self._start_s
        with self._lock:
            self._add(stage, start_s - base, stop_s - base)

    def add_events(self, stage: str, start: torch.cuda.Event, stop: torch.cuda.Event) -> None:
        """Add a stage that runs on a GPU between two recorded events."""
        with self._lock:
            self._passing.append((stage, start, stop))
            self._read_passed()

    def add_batch(self, count: GatherCount) -> None:
        """Count a batch that is handed over."""
        with self._lock:
            self._num_batches += 1
            self._count.rows += count.rows
            self._count.host_bytes += count.host_bytes

    def _add(self, stage: str, start_s: float, stop_s: float) -> None:
        self._seconds[stage] += stop_s - start_s
        if len(self._spans) < MAX_SPANS:
            self._spans.append(StageSpan(stage=stage, start_s=start_s, stop_s=stop_s))

    def _read_passed(self) -> None:
        while self._passing and self._passing[0][2].query():
            stage, start, stop = self._passing.popleft()
            first = start if self._first is None else self._first
            start_s = first.elapsed_time(start) / 1e3
            stop_s = start_s + start.elapsed_time(stop) / 1e3
            self._add(stage, start_s, stop_s)
            self._passed_s = max(self._passed_s, stop_s)

    def stats(self) -> EpochStats:
        """Return the numbers so far; waits for what the GPU has not passed yet."""
        with self._lock:
            for _, _, stop in self._passing:
                stop.synchronize()
            self._read_passed()
            stop_s = time.perf_counter() if self._stop_s is None else self._stop_s
            host_s = 0.0 if self._start_s is None else stop_s - self._start_s
            return EpochStats(
                epoch=self._epoch,
                num_batches=self._num_batches,
                epoch_s=max(host_s, self._passed_s),
                num_rows=self._count.rows,
                host_bytes=self._count.host_bytes,
                spans=tuple(self._spans),
                **{f"{stage}_s": seconds for stage, seconds in self._seconds.items()},
            )  # fmt: skip
