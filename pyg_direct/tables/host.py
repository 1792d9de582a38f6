"""A table whose rows stay in host memory; a GPU reads them in place."""

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
from pyg_direct.memory import MappedArray
from pyg_direct.tables.table import Table


class HostTable(Table):
    """Rows in host memory, gathered by the CPU or over the bus by a GPU.

    Parameters
    ----------
    array : MappedArray
        At least one dimension. The table keeps it; the caller may close it.
    device : torch.device
        The CPU, or a CUDA device, for which the memory is registered at once.
    name : str
        What error messages call the table.

    Raises
    ------
    HostMappingError
        If CUDA refuses to register the memory.
    """

    def __init__(self, array: MappedArray, device: torch.device, *, name: str = "table") -> None:
        self.name, self.device = name, device
        self.shape, self.dtype = array.shape, array.dtype
        self._array = MappedArray(array.cpu_view())
        self._alias: Tensor | None = None
        if device.type == "cuda":
            self._device_bytes()

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

    def _gather(self, index: Tensor, out: Tensor) -> None:
        if self.device.type == "cpu":
            gather_rows_cpu(self._numpy_bytes(), index.numpy(), _as_bytes(out).numpy())
            return
        with torch.cuda.device(self.device):
            stream = torch.cuda.current_stream().cuda_stream
            gather_rows(self._device_bytes(), index, out, row_bytes=self.row_bytes, stream=stream)

    def _scatter(self, index: Tensor, rows: Tensor) -> None:
        if not self._array.is_writable:
            raise ValueError(
                f"{self.name} stands on read-only memory; open the file for writing "
                "(np.memmap mode 'r+'), or put a copy of the tensor"
            )
        if self.device.type == "cuda" and self._array.is_cuda_writable:
            with torch.cuda.device(self.device):
                stream = torch.cuda.current_stream().cuda_stream
                scatter_rows(
                    self._device_bytes(), index, rows, row_bytes=self.row_bytes, stream=stream
                )
            return
        # A GPU may not write to a file that is mapped; the CPU may, once nothing reads there.
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        scatter_rows_cpu(self._numpy_bytes(), index.cpu().numpy(), _as_bytes(rows.cpu()).numpy())

    def _numpy_bytes(self) -> np.ndarray[Any, Any]:
        return _as_bytes(self._array.cpu_view()).numpy()

    def _device_bytes(self) -> Tensor:
        if self._alias is None:
            self._alias = self._array.cuda_view(self.device)
        return self._alias

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the memory for itself, when it first reads on a GPU.
        return self.__dict__ | {"_alias": None}

    def close(self) -> None:  # docstring inherited
        self._array.close()
        self._alias = None

    @property
    def is_closed(self) -> bool:  # docstring inherited
        return self._array.is_closed


def _as_bytes(rows: Tensor) -> Tensor:
    """View contiguous, non-empty rows as uint8 of shape (rows, bytes a row)."""
    return rows.reshape(-1).view(torch.uint8).view(rows.shape[0], -1)
