"""A table whose rows stand where they are wanted, in GPU memory: nothing crosses the bus."""

import torch
from torch import Tensor

from pyg_direct.tables.plan import VECTOR_BYTES
from pyg_direct.tables.request import Request
from pyg_direct.tables.table import Table
from pyg_direct.tables.words import as_integers, as_words, word_bytes

# What torch surely selects as it is.
SELECTED = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32}
)


class DeviceTable(Table):
    """Rows in the memory of the device on which they are gathered.

    Parameters
    ----------
    rows : torch.Tensor
        Contiguous, at least one dimension; used in place, and kept.
    name : str
        What error messages call the table.

    Raises
    ------
    ValueError
        If ``rows`` is not contiguous.
    """

    def __init__(self, rows: Tensor, *, name: str = "table") -> None:
        if not rows.is_contiguous():
            raise ValueError(
                f"rows have strides {rows.stride()}, expected contiguous rows; call .contiguous()"
            )
        self.name, self.device = name, rows.device
        self.shape, self.dtype = tuple(rows.shape), rows.dtype
        self._tensor: Tensor | None = rows.detach()
        self._is_vectorized = self.row_bytes % VECTOR_BYTES == 0

    def tensor(self) -> Tensor:
        """Return the rows themselves."""
        if self._tensor is None:
            raise ValueError(f"{self.name} is closed; put the tensor again")
        return self._tensor

    def _gather_new(self, request: Request) -> Tensor:
        # docstring inherited
        if not self._is_vectorized or self.dtype not in SELECTED:
            return super()._gather_new(request)
        # Torch takes longer to be given memory than to find some.
        if not request.is_trusted:
            request.check(self.name, self.num_rows)
        return torch.index_select(self.tensor(), 0, request.ids(self.device))

    def _gather(self, request: Request, out: Tensor) -> None:
        if not request.is_trusted:
            request.check(self.name, self.num_rows)
        table = self.tensor()
        # torch moves such rows fast whatever their dtype; views take longer than many a gather.
        if not self._is_vectorized:
            table, out = self._as_words(table, out)
        elif self.dtype not in SELECTED:
            table, out = as_integers(table), as_integers(out)
        torch.index_select(table, 0, request.ids(self.device), out=out)

    def _scatter(self, index: Tensor, rows: Tensor) -> None:
        table, rows = self._as_words(self.tensor(), rows)
        table.index_copy_(0, index, rows)

    def _as_words(self, *arrays: Tensor) -> list[Tensor]:
        size = word_bytes(self.row_bytes, *(array.data_ptr() for array in arrays))
        return [as_words(array, size) for array in arrays]

    def close(self) -> None:  # docstring inherited
        self._tensor = None

    @property
    def is_closed(self) -> bool:  # docstring inherited
        return self._tensor is None
