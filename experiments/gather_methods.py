"""Ways to fetch scattered rows from host memory: ours, and what it is measured against.

Each method takes a table and ids on the GPU and returns the rows there, in the order of the request
unless its name says otherwise. Rows are whole 4-byte words.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from experiments.gather_kernels import (
    LINE_BYTES,
    WARPS_PER_BLOCK,
    circular_shift_kernel,
    naive_kernel,
)
from pyg_direct.kernels.launch import CudaKernel
from pyg_direct.memory import MappedArray
from pyg_direct.tables import HostTable, Request


class GatherMethods:
    """All methods over one table in host memory.

    Parameters
    ----------
    rows : int32 tensor, shape (R, W)
        On the CPU, contiguous; used in place.
    device : torch.device
        Where rows are wanted.
    max_sms : int, optional
        For our own method alone.
    """

    def __init__(self, rows: Tensor, device: torch.device, *, max_sms: int | None = None) -> None:
        self.rows, self.device = rows, device
        self.table = HostTable(MappedArray(rows), device, max_sms=max_sms)
        self.alias = self.table.tensor()
        self._buffers: tuple[Tensor, Tensor] | None = None

    def names(self) -> list[str]:
        """Return the methods that this machine can run."""
        if self.device.type == "cpu":
            return ["pyg_direct", "index_select"]
        names = ["pyg_direct", "index_select", "index_select_sorted", "naive", "circular_shift"]
        return [*names, "cpu_gather", *(["wholegraph"] if find_wholegraph() else [])]

    def prepare(self, name: str, index: Tensor) -> Callable[[], Tensor]:
        """Return a function that gathers the rows of ``index`` and does nothing else.

        Parameters
        ----------
        name : str
            One of ``names()``.
        index : int64 tensor, shape (N,)
            On ``device``.
        """
        return getattr(self, f"_{name}")(index)

    def _pyg_direct(self, index: Tensor) -> Callable[[], Tensor]:
        # A new request each time: the sort is part of the gather.
        return lambda: self.table.gather(Request(index, is_trusted=True))

    def _index_select(self, index: Tensor) -> Callable[[], Tensor]:
        return lambda: torch.index_select(self.alias, 0, index)

    def _index_select_sorted(self, index: Tensor) -> Callable[[], Tensor]:
        # Its rows are left in order of id, which is less than was asked for.
        return lambda: torch.index_select(self.alias, 0, torch.sort(index).values)

    def _naive(self, index: Tensor) -> Callable[[], Tensor]:
        return self._kernel(naive_kernel(), index)

    def _circular_shift(self, index: Tensor) -> Callable[[], Tensor]:
        return self._kernel(circular_shift_kernel(), index)

    def _kernel(self, kernel: CudaKernel, index: Tensor) -> Callable[[], Tensor]:
        def gather() -> Tensor:
            out = torch.empty(
                (index.numel(), self.rows.shape[1]), dtype=torch.int32, device=self.device
            )
            kernel(
                -(-index.numel() // WARPS_PER_BLOCK), 32 * WARPS_PER_BLOCK,
                self.alias, self.alias.data_ptr() % LINE_BYTES, index, out, index.numel(),
                self.rows.shape[1], stream=torch.cuda.current_stream().cuda_stream,
            )  # fmt: skip
            return out

        return gather

    def _cpu_gather(self, index: Tensor) -> Callable[[], Tensor]:
        ids = index.cpu()
        pinned, out = self._staging((ids.numel(), self.rows.shape[1]))

        def gather() -> Tensor:
            torch.index_select(self.rows, 0, ids, out=pinned)
            return out.copy_(pinned, non_blocking=True)

        return gather

    def _staging(self, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Return a pinned buffer and one on the device, the last ones again if they fit."""
        if self._buffers is None or self._buffers[0].shape != shape:
            pinned = torch.empty(shape, dtype=torch.int32, pin_memory=True)
            self._buffers = pinned, torch.empty(shape, dtype=torch.int32, device=self.device)
        return self._buffers

    def _wholegraph(self, index: Tensor) -> Callable[[], Tensor]:
        wholegraph = find_wholegraph()
        tensor = wholegraph_tensor(wholegraph, self.rows)
        return lambda: tensor.gather(index)


@cache
def find_wholegraph() -> Any:
    """Return the module ``pylibwholegraph.torch``, or None where it is not installed."""
    try:
        import librmm
        import rapids_logger

        rapids_logger.load_library()
        librmm.load_library()
        import pylibwholegraph.torch as wholegraph
    except ImportError:
        return None
    return wholegraph


def wholegraph_tensor(wholegraph: Any, rows: Tensor) -> Any:
    """Return a copy of a table as WholeGraph keeps it in pinned host memory."""
    wholegraph.init(0, 1, 0, 1)
    communicator = wholegraph.get_global_communicator()
    tensor = wholegraph.create_wholememory_tensor(
        communicator, "continuous", "cpu", list(rows.shape), rows.dtype, None
    )
    tensor.get_global_tensor(host_view=True).copy_(rows)
    return tensor
