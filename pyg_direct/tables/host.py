"""A table whose rows stay in host memory; a GPU reads them in place."""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_direct.kernels.gather import (
    gather_rows,
    gather_rows_cpu,
    scatter_rows,
    scatter_rows_cpu,
)
from pyg_direct.kernels.launch import Span
from pyg_direct.memory import MappedArray
from pyg_direct.tables.plan import GatherPlan, plan_gather
from pyg_direct.tables.request import Request, outside
from pyg_direct.tables.table import Table


class HostTable(Table):
    """Rows in host memory, gathered by the CPU or over the bus by a GPU.

    Parameters
    ----------
    array : MappedArray
        At least one dimension. The table keeps the memory; the caller may close the array.
    device : torch.device
        The CPU, or a CUDA device, for which the memory is registered at once.
    name : str
        What error messages call the table.
    max_sms : int, optional
        How many multiprocessors of the GPU a gather may keep busy; all by default.

    Raises
    ------
    HostMappingError
        If CUDA refuses to register the memory.
    """

    def __init__(
        self,
        array: MappedArray,
        device: torch.device,
        *,
        name: str = "table",
        max_sms: int | None = None,
    ) -> None:
        self.name, self.device, self.max_sms = name, device, max_sms
        self.shape, self.dtype = array.shape, array.dtype
        self._array = MappedArray(array.cpu_view())
        self._span: Span | None = None
        if device.type == "cuda":
            self._device_span()

    @property
    def array(self) -> MappedArray:
        """The memory of the rows."""
        return self._array

    def tensor(self) -> Tensor:
        """Return all rows on ``device`` without a copy: for a GPU, an alias of host memory."""
        self._check_open()
        if self.device.type == "cuda":
            return self._array.cuda_view(self.device)
        return self._array.cpu_view()

    def plan(self, num_ids: int, *, is_sorted: bool = False) -> GatherPlan:
        """Return how a GPU would gather so many rows; print it to see why.

        Parameters
        ----------
        num_ids : int
            1 or more.
        is_sorted : bool
            The ids are in order already.

        Raises
        ------
        ValueError
            If the table serves the CPU, which reads row by row, or ``num_ids`` is less than 1.
        """
        if self.device.type != "cuda" or num_ids < 1:
            raise ValueError(
                f"num_ids is {num_ids} and device is {self.device}; expected 1 or more, and a GPU"
            )
        return plan_gather(
            row_bytes=self.row_bytes,
            num_ids=num_ids,
            num_rows=self.num_rows,
            num_sms=_num_sms(self.device),
            max_sms=self.max_sms,
            is_sorted=is_sorted,
        )

    def _gather(self, request: Request, out: Tensor) -> None:
        if self.device.type == "cuda":
            self._gather_cuda(request, out)
            return
        if not request.is_trusted:
            request.check(self.name, self.num_rows)
        ids = request.ids(self.device).numpy()
        gather_rows_cpu(self._numpy_bytes(), ids, _as_bytes(out).numpy())

    def _gather_cuda(self, request: Request, out: Tensor) -> None:
        plan = self.plan(len(request), is_sorted=request.is_sorted)
        if not request.is_trusted and request.index.device.type == "cpu":
            request.check(self.name, self.num_rows)
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream()
            notes = _notes_of(self.device, stream.cuda_stream)
            gather_rows(
                self._device_span(),
                request.ids(self.device),
                out,
                row_bytes=self.row_bytes,
                order=request.order(self.device, self.num_rows) if plan.is_sorted else None,
                rows_per_ticket=plan.rows_per_ticket,
                num_blocks=plan.num_blocks,
                tickets=notes.tickets,
                wrong=notes.wrong_span,
                stream=stream.cuda_stream,
            )
            if not request.is_trusted and request.index.device.type == "cuda":
                stream.synchronize()
                notes.raise_if_wrong(self.name, self.num_rows)

    def _scatter(self, index: Tensor, rows: Tensor) -> None:
        if not self._array.is_writable:
            raise ValueError(
                f"{self.name} stands on read-only memory; open the file for writing "
                "(np.memmap mode 'r+'), or put a copy of the tensor"
            )
        if self.device.type == "cuda" and self._array.is_cuda_writable:
            self._scatter_cuda(index, rows)
            return
        # A GPU may not write to a file that is mapped; the CPU may, once nothing reads there.
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        scatter_rows_cpu(self._numpy_bytes(), index.cpu().numpy(), _as_bytes(rows.cpu()).numpy())

    def _scatter_cuda(self, index: Tensor, rows: Tensor) -> None:
        plan = self.plan(index.numel())
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream().cuda_stream
            notes = _notes_of(self.device, stream)
            scatter_rows(
                self._device_span(),
                index,
                rows,
                row_bytes=self.row_bytes,
                order=torch.sort(index).indices if plan.is_sorted else None,
                rows_per_ticket=plan.rows_per_ticket,
                num_blocks=plan.num_blocks,
                tickets=notes.tickets,
                wrong=notes.wrong_span,
                stream=stream,
            )

    def _numpy_bytes(self) -> np.ndarray[Any, Any]:
        return _as_bytes(self._array.cpu_view()).numpy()

    def _device_span(self) -> Span:
        if self._span is None:
            self._span = Span(self._array.device_address, self._array.num_bytes)
        return self._span

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the memory for itself, when it first reads on a GPU.
        return self.__dict__ | {"_span": None}

    def close(self) -> None:  # docstring inherited
        self._array.close()
        self._span = None

    @property
    def is_closed(self) -> bool:  # docstring inherited
        return self._array.is_closed


# No id, right or wrong, that a user means.
NO_ID = -(2**63)


class _StreamNotes:
    """What the kernels of one stream leave for the next, and for the host."""

    def __init__(self, device: torch.device) -> None:
        self.tickets = torch.zeros(2, dtype=torch.int64, device=device)
        self._wrong = MappedArray.empty((1,), torch.int64)
        self._wrong.cpu_view().fill_(NO_ID)
        self.wrong_span = Span(self._wrong.device_address, 8)

    def raise_if_wrong(self, name: str, num_rows: int) -> None:
        """Raise for the id that a kernel noted; the stream must have passed it."""
        wrong = int(self._wrong.cpu_view())
        if wrong != NO_ID:
            self._wrong.cpu_view().fill_(NO_ID)
            raise outside(name, wrong, num_rows)


@cache
def _notes_of(device: torch.device, stream: int) -> _StreamNotes:
    return _StreamNotes(device)


@cache
def _num_sms(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _as_bytes(rows: Tensor) -> Tensor:
    """View contiguous, non-empty rows as uint8 of shape (rows, bytes a row)."""
    return rows.reshape(-1).view(torch.uint8).view(rows.shape[0], -1)
