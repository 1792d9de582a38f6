"""What layer 0 multiplies with its weight: A X, on the device or streamed from the host.

Shape legend: ``m`` rows of this rank, ``W`` columns of the table.
Assumption: the table holds X first, and then, once and in place, block by block, A X.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from pyg_direct.memory import MappedArray

NUM_STAGING_BUFFERS = 2
# Bytes of one staging buffer: large enough that a copy runs at the speed of the bus.
STAGING_BYTES = 1 << 28


class ResidentRows:
    """A table in device memory.

    Parameters
    ----------
    num_rows, width : int
    dtype : torch.dtype
    device : torch.device
    """

    def __init__(
        self, num_rows: int, width: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._table = torch.empty(num_rows, width, dtype=dtype, device=device)

    @property
    def device_bytes(self) -> int:
        """Bytes on the device."""
        return self._table.numel() * self._table.element_size()

    def write(self, start: int, column: int, block: Tensor) -> None:
        """Copy ``block`` to the rows from ``start`` and the columns from ``column`` on."""
        rows, width = block.shape
        self._table[start : start + rows, column : column + width].copy_(block)

    def read(self, column: int, out: Tensor) -> None:
        """Copy the columns from ``column`` on, as many as ``out`` (m, w) has, to ``out``."""
        out.copy_(self._table[:, column : column + out.size(1)])

    def pieces(self) -> Iterator[tuple[int, Tensor]]:
        """Yield ``(first row, rows)``: the whole table at once, not a copy."""
        yield 0, self._table

    def close(self) -> None:
        """Free the table; harmless twice."""
        self._table = self._table.new_empty(0, 0)


class StreamedRows:
    """A table in host memory whose rows visit the device in pieces.

    On CUDA the host memory is page-locked, and a piece is copied on a stream of its own while the
    one before it is used.

    Parameters
    ----------
    num_rows, width : int
    dtype : torch.dtype
    device : torch.device
        Where the pieces go.
    staging_bytes : int
        Bytes of each of the two pieces on the device.

    Raises
    ------
    HostMappingError
        If CUDA refuses to lock the pages.
    """

    def __init__(
        self,
        num_rows: int,
        width: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        self._memory = MappedArray.empty((num_rows, width), dtype)
        self._table = self._memory.cpu_view()
        row_bytes = width * self._table.element_size()
        self._piece_rows = _rows_per_piece(num_rows, row_bytes, staging_bytes)
        self._staging: list[Tensor] = []
        self._mapped: Tensor | None = None
        self._stream = None
        if device.type == "cuda":
            # The view keeps the pages locked: copies from the table run at the speed of the bus.
            self._mapped = self._memory.cuda_view(device)
            self._stream = torch.cuda.Stream(device)
            shape = (self._piece_rows, width)
            self._staging = [
                torch.empty(shape, dtype=dtype, device=device) for _ in range(NUM_STAGING_BUFFERS)
            ]

    @property
    def device_bytes(self) -> int:
        """Bytes of the staging buffers on the device."""
        return sum(buffer.numel() * buffer.element_size() for buffer in self._staging)

    @staticmethod
    def staging_bytes_of(num_rows: int, row_bytes: int, device: torch.device) -> int:
        """Return what ``device_bytes`` of such a table would be."""
        if device.type != "cuda":
            return 0
        return NUM_STAGING_BUFFERS * _rows_per_piece(num_rows, row_bytes, STAGING_BYTES) * row_bytes

    def write(self, start: int, column: int, block: Tensor) -> None:
        """Copy ``block`` to the rows from ``start`` and the columns from ``column`` on.

        Waits until the block has arrived in host memory.
        """
        rows, width = block.shape
        part = (slice(start, start + rows), slice(column, column + width))
        if self._mapped is not None and block.is_cuda and width < self._table.size(1):
            # A copy engine wants whole rows; for part of them a kernel writes over the bus.
            self._mapped[part].copy_(block)
            torch.cuda.current_stream().synchronize()
        else:
            self._table[part].copy_(block)

    def read(self, column: int, out: Tensor) -> None:
        """Copy the columns from ``column`` on, as many as ``out`` (m, w) has, to ``out``."""
        for start, rows in self.pieces():
            part = rows[:, column : column + out.size(1)]
            out[start : start + rows.size(0)].copy_(part)

    def pieces(self) -> Iterator[tuple[int, Tensor]]:
        """Yield ``(first row, rows)`` in order; a piece lasts until the next but one is asked for.

        On the CPU the rows are a view of the table.
        """
        starts = range(0, self._table.size(0), self._piece_rows)
        if self._mapped is None:
            for start in starts:
                yield start, self._table[start : start + self._piece_rows]
            return
        current = torch.cuda.current_stream()
        if self._stream is None:
            raise RuntimeError("pieces() after close(); make a new table")
        self._stream.wait_stream(current)
        arrived = {0: self._fetch(0)} if len(starts) else {}
        for turn, start in enumerate(starts):
            if turn + 1 < len(starts):
                arrived[turn + 1] = self._fetch(turn + 1)
            rows, event = arrived.pop(turn)
            current.wait_event(event)
            yield start, rows
            self._stream.wait_stream(current)

    def _fetch(self, turn: int) -> tuple[Tensor, torch.cuda.Event]:
        start = turn * self._piece_rows
        source = self._table[start : start + self._piece_rows]
        rows = self._staging[turn % NUM_STAGING_BUFFERS][: source.size(0)]
        with torch.cuda.stream(self._stream):
            rows.copy_(source, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        return rows, event

    def close(self) -> None:
        """Free the table once its views are gone; harmless twice."""
        self._memory.close()
        self._mapped = self._stream = None
        self._staging = []
        self._table = self._table.new_empty(0, 0)


def _rows_per_piece(num_rows: int, row_bytes: int, staging_bytes: int) -> int:
    return max(1, min(num_rows, staging_bytes // max(1, row_bytes)))
