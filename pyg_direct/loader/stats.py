"""What each epoch of a loader cost, by stage.

Times of a GPU come from events, which are read when the GPU has passed them: nothing waits for them
in the loop.
"""

import threading
import time
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_direct.tables import HostTable, Request, Table, TieredTable

# Enough for a picture, and bounded.
MAX_SPANS = 256
# So many numbers are read at a time: to look after each batch takes the loop more time.
MAX_UNREAD = 64

SAMPLE, GATHER, WAIT, TRAIN = "sample", "gather", "wait", "train"


class GatherCount:
    """Rows of a batch that tables delivered.

    Attributes
    ----------
    rows : int
        Of nodes and edges, all tables together.
    host_rows, host_bytes : int
        Of those, the ones of tables in host memory, hot rows among them until ``settle``.
    hot_rows : int
        Of those, the ones that stood on the device as well; 0 until ``settle``.
    """

    def __init__(self) -> None:
        self.rows = self.host_rows = self.host_bytes = self.hot_rows = 0
        self._hits: list[tuple[Tensor, int]] = []

    @property
    def is_settled(self) -> bool:
        """Whether no number is still to come from a GPU."""
        return not self._hits

    def add(self, table: Table, ids: Tensor) -> None:
        """Count ids that a table answered, on the current stream, without waiting for a GPU."""
        num_rows = ids.numel()
        self.rows += num_rows
        if not isinstance(table, HostTable):
            return
        self.host_rows += num_rows
        self.host_bytes += num_rows * table.row_bytes
        if isinstance(table, TieredTable) and table.num_hot:
            hits = torch.as_tensor(table.num_hits(Request(ids)))
            if hits.is_cuda:
                # The number comes to the host behind the rows, and is read when they are there.
                on_gpu, hits = hits, torch.empty((), dtype=torch.int64, pin_memory=True)
                hits.copy_(on_gpu, non_blocking=True)
            self._hits.append((hits, table.row_bytes))

    def settle(self) -> None:
        """Take hot rows off the bytes from host memory; the GPU must have passed the gather."""
        for hits, row_bytes in self._hits:
            self.hot_rows += int(hits)
            self.host_bytes -= int(hits) * row_bytes
        self._hits.clear()


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
    num_host_rows, num_hot_rows : int
        Of those, the ones of tables in host memory, and the ones of these that stood on the device.
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
    num_host_rows: int
    num_hot_rows: int
    host_bytes: int
    spans: tuple[StageSpan, ...] = field(repr=False)

    @property
    def gather_gb_per_s(self) -> float:
        """Rows from host memory, in 10^9 bytes a second of the gather; 0.0 where there are none."""
        return self.host_bytes / self.gather_s / 1e9 if self.gather_s else 0.0

    @property
    def hit_share(self) -> float:
        """Share of the rows of tables in host memory, between 0 and 1, that stood on the device."""
        return self.num_hot_rows / self.num_host_rows if self.num_host_rows else 0.0

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
        self._num_batches = self._rows = self._host_rows = self._hot_rows = self._host_bytes = 0
        self._counts: deque[tuple[torch.cuda.Event | None, GatherCount]] = deque()
        self._first: torch.cuda.Event | None = None
        self._start_s: float | None = None
        self._stop_s: float | None = None
        # The ends of the last stages that were read: the host may leave the loop before the GPU.
        self._last: dict[str, torch.cuda.Event] = {}

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

    def catch_up(self) -> None:
        """Read numbers of the GPU's that are there by now, if many are still unread."""
        with self._lock:
            if len(self._passing) > MAX_UNREAD:
                self._read_passed()
            if len(self._counts) > MAX_UNREAD:
                self._add_counts()

    def add_passed(self, *stages: tuple[str, torch.cuda.Event, torch.cuda.Event]) -> None:
        """Add stages that a GPU has passed; their events may be recorded again afterwards."""
        with self._lock:
            for stage in stages:
                self._read(*stage)

    def add_batch(self, count: GatherCount, gathered: torch.cuda.Event | None = None) -> None:
        """Count a batch that is handed over; ``gathered`` says when its rows are there."""
        with self._lock:
            self._num_batches += 1
            self._counts.append((gathered, count))

    def _add_counts(self) -> None:
        while self._counts and (self._counts[0][0] is None or self._counts[0][0].query()):
            _, count = self._counts.popleft()
            count.settle()
            self._rows += count.rows
            self._host_rows += count.host_rows
            self._hot_rows += count.hot_rows
            self._host_bytes += count.host_bytes

    def _add(self, stage: str, start_s: float, stop_s: float) -> None:
        self._seconds[stage] += stop_s - start_s
        if len(self._spans) < MAX_SPANS:
            self._spans.append(StageSpan(stage=stage, start_s=start_s, stop_s=stop_s))

    def _read_passed(self) -> None:
        while self._passing and self._passing[0][2].query():
            stage, start, stop = self._passing.popleft()
            self._last[stage] = stop
            self._read(stage, start, stop)

    def _read(self, stage: str, start: torch.cuda.Event, stop: torch.cuda.Event) -> None:
        start_s = 0.0
        # Each question takes the loop microseconds, and where a stage began only a span tells.
        if self._first is not None and len(self._spans) < MAX_SPANS:
            start_s = self._first.elapsed_time(start) / 1e3
        self._add(stage, start_s, start_s + start.elapsed_time(stop) / 1e3)

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
            first, last = self._first, self._last.values()
            gpu_s = [] if first is None else [first.elapsed_time(stop) / 1e3 for stop in last]
            return EpochStats(
                epoch=self._epoch,
                num_batches=self._num_batches,
                epoch_s=max([host_s, *gpu_s]),
                num_rows=self._rows,
                num_host_rows=self._host_rows,
                num_hot_rows=self._hot_rows,
                host_bytes=self._host_bytes,
                spans=tuple(self._spans),
                **{f"{stage}_s": seconds for stage, seconds in self._seconds.items()},
            )  # fmt: skip
