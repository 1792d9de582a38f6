"""C = A B over the ranks: the parts of B are broadcast one after the other while A multiplies.

Shape legend: ``P`` ranks, ``m_i`` rows of rank i, ``w`` columns of B.
Assumption: every rank calls with the same widths, in the same order.

MG-GCN (arXiv 2110.08688, section 4.2): two buffers take turns, so that a broadcast waits only for
the product before the last. A rank multiplies its own tile first, while the first two broadcasts
fly, which hides one stage more.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from pyg_direct.fullbatch.engine import Engine
from pyg_direct.fullbatch.local_product import add_product
from pyg_direct.fullbatch.processes import Ranks
from pyg_direct.fullbatch.tiles import Tile

NUM_RECEIVE_BUFFERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When a broadcast or a product of one stage ran.

    Attributes
    ----------
    kind : {"broadcast", "product"}
    stage : int
        Rank whose rows were broadcast or multiplied.
    start_s, stop_s : float
        Seconds since the trace began; on CUDA by events of the stream that did the work.
    """

    kind: Literal["broadcast", "product"]
    stage: int
    start_s: float
    stop_s: float


@dataclass(slots=True)
class Trace:
    """Collects the spans of the products that run while it is attached.

    Attributes
    ----------
    device : torch.device
        Where the products run.
    """

    device: torch.device
    marks: list[tuple[Literal["broadcast", "product"], int, Any, Any]] = field(default_factory=list)
    origin: Any = None

    def __post_init__(self) -> None:
        self.origin = self.now()

    def now(self) -> Any:
        """Return a moment: an event on the current stream, or seconds on the CPU."""
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def spans(self) -> list[Span]:
        """Return what was collected, in the order of the calls; waits for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return [
            Span(kind=kind, stage=stage, start_s=self._since(start), stop_s=self._since(stop))
            for kind, stage, start, stop in self.marks
        ]

    def _since(self, moment: Any) -> float:
        if self.device.type == "cuda":
            return float(self.origin.elapsed_time(moment)) / 1e3
        return float(moment - self.origin)


class StagedProduct:
    """Multiplies the block row of this rank with a matrix whose rows lie on all ranks.

    Parameters
    ----------
    ranks : Ranks
    sizes : tuple of int, length P
        Rows of each rank.
    buffers : sequence of tensors, one-dimensional
        Two for the rows of other ranks (none is needed for P = 1, one for P = 2), each of
        ``max(sizes) * w`` elements or more. Borrowed: the caller keeps them.
    engine : {"library", "kernel"}
    column_block : int, optional
        See ``add_product``.
    """

    def __init__(
        self,
        ranks: Ranks,
        sizes: tuple[int, ...],
        *,
        buffers: Sequence[Tensor] = (),
        engine: Engine = "library",
        column_block: int | None = None,
    ) -> None:
        needed = min(NUM_RECEIVE_BUFFERS, ranks.num_ranks - 1)
        if len(buffers) < needed:
            raise ValueError(f"buffers: {len(buffers)} came, expected {needed} or more")
        self.ranks = ranks
        self.sizes = sizes
        self.engine = engine
        self.column_block = column_block
        self.trace: Trace | None = None
        self._buffers = list(buffers)
        self._on_cuda = ranks.device.type == "cuda"
        self._stream = None
        if self._on_cuda and ranks.num_ranks > 1:
            self._stream = torch.cuda.Stream(ranks.device)

    def multiply(
        self,
        tiles: tuple[Tile, ...],
        operand: Tensor,
        out: Tensor,
        *,
        accumulate: bool = False,
        bias: Tensor | None = None,
    ) -> None:
        """Write A B to ``out``, or add it where ``accumulate`` is true.

        On CUDA the call returns at once; the current stream carries the result.

        Parameters
        ----------
        tiles : tuple of Tile, length P
            Block row of A.
        operand : tensor, shape (m_rank, w) or wider, equally on all ranks
            This rank's rows of B, contiguous. Not changed. Columns beyond w are padding: they are
            broadcast and not multiplied.
        out : tensor, shape (m_rank, w)
            May be some columns of a wider tensor. Must not overlap ``operand``.
        accumulate : bool
        bias : tensor, shape (w,), optional
            Added to every row.

        Raises
        ------
        ValueError
            If a shape does not fit, or a receive buffer is too small.
        RuntimeError
            If a rank died or did not answer in time.
        """
        self._check(operand, out)
        own = tiles[self.ranks.rank]
        # Where the first product reaches every row it overwrites and adds the bias: no extra pass.
        overwrite = not accumulate and own.covers_rows
        if not own.covers_rows:
            _start_rows(out, bias, accumulate)
            bias = None
        others = [root for root in range(self.ranks.num_ranks) if root != self.ranks.rank]
        flight = _Flight(self, operand)
        flight.start_through(others[1] if len(others) > 1 else self.ranks.num_ranks - 1)
        self._product(own, operand, out, self.ranks.rank, overwrite=overwrite, bias=bias)
        for turn, root in enumerate(others):
            rows = flight.arrived(root)
            self._product(tiles[root], rows, out, root)
            flight.release(root)
            ahead = turn + NUM_RECEIVE_BUFFERS
            flight.start_through(others[ahead] if ahead < len(others) else self.ranks.num_ranks - 1)
        flight.land()

    def close(self) -> None:
        """Let go of the buffers; harmless twice."""
        self._buffers = []

    def _check(self, operand: Tensor, out: Tensor) -> None:
        rows = self.sizes[self.ranks.rank]
        if not operand.size(0) == out.size(0) == rows or operand.size(1) < out.size(1):
            raise ValueError(
                f"operand {tuple(operand.shape)} and out {tuple(out.shape)} came, expected "
                f"{rows} rows each, and as many columns or padding beyond them"
            )
        if self.ranks.num_ranks == 1:
            return
        largest = max(self.sizes) * operand.size(1)
        smallest = min(buffer.numel() for buffer in self._buffers)
        if smallest < largest:
            raise ValueError(f"receive buffer of {smallest} elements, expected {largest} or more")

    def _product(
        self,
        tile: Tile,
        rows: Tensor,
        out: Tensor,
        stage: int,
        *,
        overwrite: bool = False,
        bias: Tensor | None = None,
    ) -> None:
        start = self.trace.now() if self.trace else None
        for piece in tile.pieces:
            add_product(
                piece,
                rows,
                out[piece.start : piece.stop],
                engine=self.engine,
                column_block=self.column_block,
                overwrite=overwrite,
                bias=bias,
            )
        if self.trace:
            self.trace.marks.append(("product", stage, start, self.trace.now()))


def _start_rows(out: Tensor, bias: Tensor | None, accumulate: bool) -> None:
    """Prepare ``out`` for products that are only added."""
    if not accumulate:
        out.zero_()
    if bias is not None:
        out.add_(bias)


class _Flight:
    """The broadcasts of one product: started in the order of the roots, on their own stream."""

    def __init__(self, product: StagedProduct, operand: Tensor) -> None:
        self.product = product
        self.operand = operand
        self.next_root = 0
        self.num_received = 0
        self.works: dict[int, tuple[Any, Tensor, Any]] = {}
        self.done: dict[int, Any] = {}
        self.free: dict[int, Any] = {}
        self.slot_of: dict[int, int] = {}
        if product._stream is not None:
            product._stream.wait_stream(torch.cuda.current_stream())

    def start_through(self, last_root: int) -> None:
        """Start every broadcast up to that of ``last_root`` which has not been started."""
        if self.product.ranks.num_ranks == 1:
            return
        while self.next_root <= last_root:
            self._start(self.next_root)
            self.next_root += 1

    def _start(self, root: int) -> None:
        ranks, stream = self.product.ranks, self.product._stream
        rows = self.operand
        if root != ranks.rank:
            slot = self.num_received % NUM_RECEIVE_BUFFERS
            self.num_received += 1
            self.slot_of[root] = slot
            shape = (self.product.sizes[root], self.operand.size(1))
            rows = self.product._buffers[slot][: shape[0] * shape[1]].view(shape)
        with torch.cuda.stream(stream):
            if stream is not None and root != ranks.rank and self.slot_of[root] in self.free:
                stream.wait_event(self.free[self.slot_of[root]])
            start = self.product.trace.now() if self.product.trace else None
            work = ranks.broadcast(rows, root)
            self.works[root] = (work, rows, start)
            if stream is not None:
                self._finish(root)

    def _finish(self, root: int) -> None:
        """Wait for a broadcast: the host on the CPU, the broadcasting stream on CUDA."""
        work, _, start = self.works[root]
        self.product.ranks.wait(work, f"the broadcast from rank {root}")
        trace, stream = self.product.trace, self.product._stream
        if trace:
            trace.marks.append(("broadcast", root, start, trace.now()))
        if stream is not None:
            self.done[root] = stream.record_event()

    def arrived(self, root: int) -> Tensor:
        """Return the rows of ``root``; the current stream (on the CPU, the host) waits for them."""
        if self.product._stream is None:
            self._finish(root)
        else:
            torch.cuda.current_stream().wait_event(self.done[root])
        return self.works[root][1]

    def release(self, root: int) -> None:
        """Let the buffer of ``root`` be overwritten once the products queued so far are done."""
        if self.product._stream is not None:
            self.free[self.slot_of[root]] = torch.cuda.current_stream().record_event()

    def land(self) -> None:
        """Wait until this rank's own rows have been sent, so that they may be overwritten."""
        own = self.product.ranks.rank
        if self.product.ranks.num_ranks == 1:
            return
        if self.product._stream is None:
            self._finish(own)
        else:
            torch.cuda.current_stream().wait_event(self.done[own])
