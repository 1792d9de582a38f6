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
from pyg_direct.kernels.pair import TableOfPair, gather_pair
from pyg_direct.kernels.walk import LINE_BYTES, GatherLaunch, row_walk
from pyg_direct.memory import MappedArray
from pyg_direct.memory.streams import current_handle, on_device
from pyg_direct.tables.notes import StreamNotes, notes_of
from pyg_direct.tables.plan import INDEX_SELECT, PARTITIONED, SORTED, GatherPlan, plan_about
from pyg_direct.tables.request import Request
from pyg_direct.tables.table import Table
from pyg_direct.tables.words import as_bytes, as_integers


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

    is_on_host = True

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
        self._alias: Tensor | None = None
        if device.type == "cuda":
            self._map()

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

    def rows(self) -> Tensor:
        # docstring inherited
        self._check_open()
        return self._array.cpu_view()

    def plan(self, num_ids: int, *, is_sorted: bool = False, is_trusted: bool = True) -> GatherPlan:
        """Return how a GPU would gather so many rows; print it to see why.

        Parameters
        ----------
        num_ids : int
            1 or more.
        is_sorted : bool
            The ids are in order already.
        is_trusted : bool
            The ids are known to be valid.

        Raises
        ------
        ValueError
            If the table serves the CPU, which reads row by row, or ``num_ids`` is less than 1.
        """
        if self.device.type != "cuda" or num_ids < 1:
            raise ValueError(
                f"num_ids is {num_ids} and device is {self.device}; expected 1 or more, and a GPU"
            )
        return self._plan(num_ids, self._host_share(), is_sorted=is_sorted, is_trusted=is_trusted)

    def _plan(
        self,
        num_ids: int,
        host_share: float,
        *,
        is_sorted: bool = False,
        is_trusted: bool = False,
        is_background: bool = False,
    ) -> GatherPlan:
        return plan_about(
            row_bytes=self.row_bytes, num_ids=num_ids, num_rows=self.num_rows,
            num_sms=_num_sms(self.device), max_sms=self.max_sms, is_sorted=is_sorted,
            is_trusted=is_trusted, is_background=is_background, host_share=host_share,
        )  # fmt: skip

    def _host_share(self) -> float:
        """Return the expected share of requested rows that stand in host memory."""
        return 1.0

    def _gather(self, request: Request, out: Tensor) -> None:
        is_checked = request.is_trusted
        if not is_checked and request.index.device.type == "cpu":
            request.check(self.name, self.num_rows)
            is_checked = True
        if self.device.type == "cpu":
            self._gather_cpu(request.ids(self.device), out)
            return
        with on_device(self.device):
            self._gather_cuda(request, out, is_checked)

    def _gather_cpu(self, ids: Tensor, out: Tensor) -> None:
        gather_rows_cpu(self._numpy_bytes(), ids.numpy(), as_bytes(out).numpy())

    def _gather_cuda(self, request: Request, out: Tensor, is_checked: bool) -> None:
        plan = self._plan_of(request, is_trusted=is_checked)
        if plan.way == INDEX_SELECT:
            alias = self._selectable_alias()
            torch.index_select(alias, 0, request.ids(self.device), out=out.view(alias.dtype))
            return
        if plan.way == SORTED and not is_checked:
            # A sort of 32 bits would make right ids of wrong ones.
            request.check(self.name, self.num_rows)
            is_checked = True
        stream = current_handle()
        notes = notes_of(self.device, stream)
        ids, places = self._in_order_of(plan, request, notes, stream)
        launch = notes.launch(plan, stream, request.num_used)
        self._launch_gather(ids, out, launch, places)
        if not is_checked:
            torch.cuda.current_stream().synchronize()
            notes.raise_if_wrong(self.name, self.num_rows)

    def pair_plan(self, request: Request) -> GatherPlan | None:
        """Return how a launch that reads another table too answers a request.

        None if the table answers it alone: by the CPU or by torch; because ids have to be checked,
        hot rows looked up, or hits counted; or because its rows are so far apart that those of
        another table would crowd out their translations. Two tables of one ``piece_bytes`` make a
        pair.
        """
        self._check_open()
        if self.device.type == "cpu" or not request.is_trusted or not len(request):
            return None
        plan = self._plan_of(request) if self.row_bytes else None
        return None if plan is None or plan.way == INDEX_SELECT or plan.is_sparse else plan

    @property
    def piece_bytes(self) -> int:
        """The widest store into new memory that rows of the table allow, in bytes: 4, 2 or 1."""
        shift = self._device_span().address % LINE_BYTES
        return row_walk(self.row_bytes, shift, 0).piece_bytes

    def gather_with(
        self, other: "HostTable", request: Request, plans: tuple[GatherPlan, GatherPlan]
    ) -> tuple[Tensor, Tensor]:
        """Return rows of this table and of another one, read by one launch.

        Parameters
        ----------
        other : HostTable
            On the same device, and of the same ``piece_bytes``.
        request : Request
            Of both.
        plans : pair of GatherPlan
            The ``pair_plan`` of both.
        """
        # The longer rows take the time: they decide about the order.
        if self.row_bytes < other.row_bytes:
            return other.gather_with(self, request, plans[::-1])[::-1]
        with on_device(self.device):
            rows, other_rows = self._new_rows(request), other._new_rows(request)
            stream = current_handle()
            notes = notes_of(self.device, stream)
            ids, places = self._in_order_of(plans[0], request, notes, stream)
            gather_pair(
                TableOfPair(self._device_span(), rows, self.row_bytes, plans[0].rows_per_ticket),
                TableOfPair(
                    other._device_span(), other_rows, other.row_bytes, plans[1].rows_per_ticket
                ),
                ids, launch=notes.launch(plans[0], stream, request.num_used), places=places,
            )  # fmt: skip
        return rows, other_rows

    def _plan_of(self, request: Request, *, is_trusted: bool = True) -> GatherPlan:
        return self._plan(
            len(request), self._host_share(), is_sorted=request.is_sorted, is_trusted=is_trusted,
            is_background=request.is_background,
        )  # fmt: skip

    def _in_order_of(
        self, plan: GatherPlan, request: Request, notes: StreamNotes, stream: int
    ) -> tuple[Tensor, Tensor | None]:
        """Return the ids in the order in which a plan reads them, and where each stands."""
        if plan.way == SORTED:
            return request.in_order(self.device, self.num_rows)
        if plan.way == PARTITIONED:
            return request.by_address(
                self.device, lambda ids: notes.partition(ids, self.num_rows, stream)
            )
        return request.ids(self.device), None

    def _launch_gather(
        self, ids: Tensor, out: Tensor, launch: GatherLaunch, places: Tensor | None
    ) -> None:
        gather_rows(
            self._device_span(), ids, out, row_bytes=self.row_bytes, launch=launch, places=places
        )

    def _map(self) -> None:
        self._device_span()

    def _is_written_by_gpu(self) -> bool:
        return self.device.type == "cuda" and self._array.is_cuda_writable

    def _scatter(self, index: Tensor, rows: Tensor) -> None:
        if not self._array.is_writable:
            raise ValueError(
                f"{self.name} stands on read-only memory; open the file for writing "
                "(np.memmap mode 'r+'), or put a copy of the tensor"
            )
        if self._is_written_by_gpu():
            with on_device(self.device):
                self._scatter_cuda(index, rows)
            return
        # A GPU may not write to a file that is mapped; the CPU may, once nothing reads there.
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        scatter_rows_cpu(self._numpy_bytes(), index.cpu().numpy(), as_bytes(rows.cpu()).numpy())

    def _scatter_cuda(self, index: Tensor, rows: Tensor) -> None:
        # Every row is written to host memory, whatever has a copy elsewhere.
        plan = self._plan(index.numel(), 1.0)
        stream = current_handle()
        notes = notes_of(self.device, stream)
        ids, places = self._in_order_of(plan, Request(index), notes, stream)
        scatter_rows(
            self._device_span(), ids, rows, row_bytes=self.row_bytes,
            launch=notes.launch(plan, stream), places=places,
        )  # fmt: skip

    def _numpy_bytes(self) -> np.ndarray[Any, Any]:
        return as_bytes(self._array.cpu_view()).numpy()

    def _device_span(self) -> Span:
        if self._span is None:
            self._span = Span(self._array.device_address, self._array.num_bytes)
        return self._span

    def _selectable_alias(self) -> Tensor:
        """Return the rows for torch, as integers: it does not select every dtype."""
        if self._alias is None:
            self._alias = as_integers(self._array.cuda_view(self.device))
        return self._alias

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the memory for itself, when it first reads on a GPU.
        return self.__dict__ | {"_span": None, "_alias": None}

    def close(self) -> None:  # docstring inherited
        self._array.close()
        self._span = self._alias = None

    @property
    def is_closed(self) -> bool:  # docstring inherited
        return self._array.is_closed


@cache
def _num_sms(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
