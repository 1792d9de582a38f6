"""What each epoch of a loader cost, by stage."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_direct.tables import Request, Table

SAMPLE, GATHER, WAIT, TRAIN = "sample", "gather", "wait", "train"


class GatherCount:
    """Rows that tables delivered, of a batch, or of several.

    Parameters
    ----------
    asks_hits : bool
        Ask which rows of a tiered table are hot: that is work of its own for the GPU, and the host.

    Attributes
    ----------
    rows : int
        Of nodes and edges, all tables together.
    host_rows, host_bytes : int
        Of those, the ones of tables in host memory, hot rows among them.
    asked_rows, unasked_rows : int
        Of those, the ones of tables with hot rows, by whether it was asked which are.
    hot_rows, hot_bytes : int
        The asked ones that were; 0 until ``settle``.
    """

    def __init__(self, *, asks_hits: bool = True) -> None:
        self._asks_hits = asks_hits
        self.rows = self.host_rows = self.host_bytes = 0
        self.asked_rows = self.unasked_rows = self.hot_rows = self.hot_bytes = 0
        self._hits: list[tuple[Tensor, int]] = []

    @property
    def is_settled(self) -> bool:
        """Whether no number is still to come from a GPU."""
        return not self._hits

    def add(self, table: Table, ids: Tensor) -> None:
        """Count ids that a table answered, on the current stream, without waiting for a GPU."""
        num_rows = ids.numel()
        self.rows += num_rows
        if not table.is_on_host:
            return
        self.host_rows += num_rows
        self.host_bytes += num_rows * table.row_bytes
        if not table.num_hot:
            return
        if not self._asks_hits:
            self.unasked_rows += num_rows
            return
        self.asked_rows += num_rows
        hits = torch.as_tensor(table.num_hits(Request(ids)))
        if hits.is_cuda:
            # The number comes to the host behind the rows, and is read when they are there.
            on_gpu, hits = hits, torch.empty((), dtype=torch.int64, pin_memory=True)
            hits.copy_(on_gpu, non_blocking=True)
        self._hits.append((hits, table.row_bytes))

    def settle(self) -> None:
        """Read how many rows were hot; the GPU must have passed the gather."""
        for hits, row_bytes in self._hits:
            self.hot_rows += int(hits)
            self.hot_bytes += int(hits) * row_bytes
        self._hits.clear()

    def add_count(self, other: "GatherCount") -> None:
        """Add what another one counted, which is settled."""
        self.rows += other.rows
        self.host_rows += other.host_rows
        self.host_bytes += other.host_bytes
        self.asked_rows += other.asked_rows
        self.unasked_rows += other.unasked_rows
        self.hot_rows += other.hot_rows
        self.hot_bytes += other.hot_bytes

    def all_hot(self) -> tuple[int, int]:
        """Return hot rows, and their bytes, with those that nobody asked about in proportion."""
        scale = 1 + self.unasked_rows / max(self.asked_rows, 1)
        return round(self.hot_rows * scale), round(self.hot_bytes * scale)


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
        Seconds of the stages. Pipelined, they overlap with each other and with training. Seconds of
        a GPU, here and below, are measured for the first 16 batches, and for every eighth later.
    wait_s : float
        Seconds that the consumer waited for batches; on a GPU, that its stream stood idle for them.
        The time of ``transform`` is in it.
    train_s : float
        Seconds between batches, which the consumer used.
    num_rows : int
        Rows gathered, of nodes and edges.
    num_host_rows, num_hot_rows : int
        Of those, the ones of tables in host memory, and the ones of these that stood on the device;
        counted for the batches that are timed, and in proportion for the others.
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
