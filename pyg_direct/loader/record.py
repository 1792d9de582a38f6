"""Collects what an epoch of a loader costs, by stage.

Times of a GPU come from events, which are read when the GPU has passed them: nothing waits for them
in the loop. To make, record and read them is work for the host, though, so that after the first
batches of an epoch only every eighth is timed, and stands for the others.
"""

import threading
import time
from collections import deque
from dataclasses import dataclass

import torch

from pyg_direct.loader.stats import (
    GATHER,
    SAMPLE,
    TRAIN,
    WAIT,
    EpochStats,
    GatherCount,
    StageSpan,
)

# Enough for a picture, and bounded.
MAX_SPANS = 256
# Batches of which every one is timed, and then one of so many.
NUM_TIMED, TIMED_STEP = 16, 8
# So many numbers are read at a time: to look after each batch takes the loop more time.
MAX_UNREAD = 64


@dataclass(slots=True)
class _Seconds:
    """Seconds of a stage: of the first batches, and of some later ones, for all of those.

    Attributes
    ----------
    num_due, num_read : int
        Batches that asked whether they are to be timed, and those that were.
    first, later : float
        Of what was read.
    """

    num_due: int = 0
    num_read: int = 0
    first: float = 0.0
    later: float = 0.0

    @property
    def is_next_due(self) -> bool:
        """Whether the next batch is to be timed."""
        return self.num_due < NUM_TIMED or self.num_due % TIMED_STEP == 0

    def is_due(self) -> bool:
        """Tell whether the next batch is to be timed, and count it."""
        is_due = self.is_next_due
        self.num_due += 1
        return is_due

    def add(self, seconds: float) -> None:
        """Add what was read of a batch that was due."""
        if self.num_read < NUM_TIMED:
            self.first += seconds
        else:
            self.later += seconds
        self.num_read += 1

    @property
    def total(self) -> float:
        """Of all batches."""
        num_later = self.num_read - NUM_TIMED
        if num_later <= 0:
            return self.first
        return self.first + self.later * (self.num_due - NUM_TIMED) / num_later


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
        self._seconds = {stage: _Seconds() for stage in (SAMPLE, GATHER, WAIT, TRAIN)}
        self._spans: list[StageSpan] = []
        self._passing: deque[tuple[str, torch.cuda.Event, torch.cuda.Event]] = deque()
        self._num_batches, self._total = 0, GatherCount()
        self._counts: deque[tuple[torch.cuda.Event | None, GatherCount]] = deque()
        self._first: torch.cuda.Event | None = None
        self._last: torch.cuda.Event | None = None
        self._start_s: float | None = None
        self._stop_s: float | None = None

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

    def stop(self, last: torch.cuda.Event | None = None) -> None:
        """Stop the epoch's clock; harmless twice.

        Parameters
        ----------
        last : torch.cuda.Event, optional
            Recorded at the end of the loop, which the GPU may reach later than the host.
        """
        if self._stop_s is None:
            self._stop_s, self._last = time.perf_counter(), last

    def add(self, stage: str, start_s: float, stop_s: float) -> None:
        """Add a stage that ran on the CPU; readings of ``time.perf_counter``."""
        base = start_s if self._start_s is None else self._start_s
        with self._lock:
            self._seconds[stage].first += stop_s - start_s
            self._add_span(stage, start_s - base, stop_s - base)

    def is_next_due(self, stage: str) -> bool:
        """Tell what ``is_due`` will."""
        return self._seconds[stage].is_next_due

    def is_due(self, stage: str) -> bool:
        """Tell whether a GPU's stage of the next batch is to be timed; asked once a batch."""
        return self._seconds[stage].is_due()

    def add_events(self, stage: str, start: torch.cuda.Event, stop: torch.cuda.Event) -> None:
        """Add a stage, one that is due, which runs on a GPU between two recorded events."""
        with self._lock:
            self._passing.append((stage, start, stop))

    def catch_up(self) -> None:
        """Read numbers of the GPU's that are there by now, if many are still unread."""
        with self._lock:
            if len(self._passing) > MAX_UNREAD:
                self._read_passed()
            if len(self._counts) > MAX_UNREAD:
                self._add_counts()

    def add_passed(self, stage: str, start: torch.cuda.Event, stop: torch.cuda.Event) -> None:
        """Add one that is due, and that the GPU has passed; its events may be recorded again."""
        with self._lock:
            self._read(stage, start, stop)

    def add_batch(self, count: GatherCount, gathered: torch.cuda.Event | None = None) -> None:
        """Count a batch that is handed over; ``gathered`` says when its rows are there."""
        with self._lock:
            self._num_batches += 1
            self._counts.append((gathered, count))

    def _add_counts(self) -> None:
        while self._counts and (self._counts[0][0] is None or self._counts[0][0].query()):
            _, count = self._counts.popleft()
            count.settle()
            self._total.add_count(count)

    def _add_span(self, stage: str, start_s: float, stop_s: float) -> None:
        if len(self._spans) < MAX_SPANS:
            self._spans.append(StageSpan(stage=stage, start_s=start_s, stop_s=stop_s))

    def _read_passed(self) -> None:
        while self._passing and self._passing[0][2].query():
            self._read(*self._passing.popleft())

    def _read(self, stage: str, start: torch.cuda.Event, stop: torch.cuda.Event) -> None:
        seconds = start.elapsed_time(stop) / 1e3
        self._seconds[stage].add(seconds)
        # Each question takes the loop microseconds, and where a stage began only a span tells.
        if self._first is not None and len(self._spans) < MAX_SPANS:
            start_s = self._first.elapsed_time(start) / 1e3
            self._add_span(stage, start_s, start_s + seconds)

    def stats(self) -> EpochStats:
        """Return the numbers so far; waits for what the GPU has not passed yet."""
        with self._lock:
            for _, _, stop in self._passing:
                stop.synchronize()
            for gathered, _ in self._counts:
                if gathered is not None:
                    gathered.synchronize()
            self._read_passed()
            self._add_counts()
            stop_s = time.perf_counter() if self._stop_s is None else self._stop_s
            host_s = 0.0 if self._start_s is None else stop_s - self._start_s
            gpu_s = 0.0
            if self._first is not None and self._last is not None:
                self._last.synchronize()
                gpu_s = self._first.elapsed_time(self._last) / 1e3
            total, (num_hot, hot_bytes) = self._total, self._total.all_hot()
            return EpochStats(
                epoch=self._epoch,
                num_batches=self._num_batches,
                epoch_s=max(host_s, gpu_s),
                num_rows=total.rows,
                num_host_rows=total.host_rows,
                num_hot_rows=num_hot,
                host_bytes=total.host_bytes - hot_bytes,
                spans=tuple(self._spans),
                **{f"{stage}_s": seconds.total for stage, seconds in self._seconds.items()},
            )  # fmt: skip
