"""A table on a file that may be larger than memory: the CPU reads it through the page cache.

Nothing of the file is pinned. Hot rows stand above it, on the device.

Shape legend: ``R`` rows of a table, ``H`` hot rows, ``N`` requested rows.
"""

import torch
from torch import Tensor

from pyg_direct.kernels.gather import gather_rows_cpu
from pyg_direct.tables.plan import GatherPlan
from pyg_direct.tables.request import Request
from pyg_direct.tables.tiered import TieredTable
from pyg_direct.tables.words import as_bytes, as_words, word_bytes


class DiskTable(TieredTable):
    """Rows on a mapped file, gathered by the CPU and copied to where they are wanted.

    Parameters
    ----------
    array : MappedArray
        On a mapped file, as a rule. Never registered with CUDA.
    device : torch.device
        Where rows appear and hot rows stand.
    name : str
        What error messages call the table.
    max_sms : int, optional
        Without effect.

    Notes
    -----
    A gather on a GPU waits for the ids, which the CPU needs; rows that are hot never cross the bus.
    """

    @property
    def is_repeatable(self) -> bool:
        """False: the CPU reads the rows."""
        return False

    def tensor(self) -> Tensor:
        """Return all rows, on the CPU, whatever the device: no GPU can address the file."""
        return self.rows()

    def part(self, index: slice | int) -> Tensor:
        # docstring inherited
        return self.rows()[index].to(self.device, copy=True)

    def pair_plan(self, request: Request) -> GatherPlan | None:
        # docstring inherited
        return None

    def _map(self) -> None:
        """Leave the file to the page cache."""

    def _is_written_by_gpu(self) -> bool:
        return False

    def _gather_cuda(self, request: Request, out: Tensor, is_checked: bool) -> None:
        if not is_checked:
            request.check(self.name, self.num_rows)
        tier = self._tier
        if tier is None or tier.slots is None:
            out.copy_(self._read(request.index.cpu()), non_blocking=True)
            return
        ids = request.ids(self.device)
        slots = tier.slots[ids]
        size = word_bytes(self.row_bytes, tier.hot.data_ptr(), out.data_ptr())
        rows = as_words(out, size)
        torch.index_select(as_words(tier.hot, size), 0, slots.clamp(min=0), out=rows)
        places = (slots < 0).nonzero().view(-1)
        if places.numel():
            cold = self._read(ids[places].cpu()).to(self.device, non_blocking=True)
            rows.index_copy_(0, places, as_words(cold, size))

    def _read(self, ids: Tensor) -> Tensor:
        """Read rows into pinned memory, from which a copy does not make the CPU wait."""
        shape = (ids.numel(), *self.shape[1:])
        rows = torch.empty(shape, dtype=self.dtype, pin_memory=True)
        gather_rows_cpu(self._numpy_bytes(), ids.long().numpy(), as_bytes(rows).numpy())
        return rows
