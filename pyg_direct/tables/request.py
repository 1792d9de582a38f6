"""The ids of one request, and what is worked out about them once for all tables that answer it.

Shape legend: ``R`` rows of a table, ``N`` requested rows.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor


class Request:
    """Ids of rows, in the order in which the rows are wanted.

    Several tables of one node type share a request, and with it one check and one order.

    Parameters
    ----------
    index : int32 or int64 tensor, shape (N,)
        On any device, in any order, repeated or not.
    is_trusted : bool
        The caller vouches that every id is valid. Nothing then waits for a GPU on which ids are
        checked; a wrong id is still never read, but its row is left as it was.
    is_sorted : bool
        The ids are in ascending order, or in a few runs that are, as samplers give them.
    is_distinct : bool
        No id comes twice, as a trusted caller knows.
    is_background : bool
        A model runs meanwhile: the gather leaves it most of the GPU's multiprocessors.
    num_used : int64 tensor, shape (1,), optional
        On the GPU: how many of the ids, from the first on, are asked for. The ids behind them are
        valid all the same, and their rows may come or not. For ids that are trusted, sorted and in
        the background, whose gather then waits for nothing that only the host knows.

    Raises
    ------
    TypeError
        If ``index`` does not hold int32 or int64.
    ValueError
        If ``index`` has not one dimension.
    """

    def __init__(
        self,
        index: Tensor,
        *,
        is_trusted: bool = False,
        is_sorted: bool = False,
        is_distinct: bool = False,
        is_background: bool = False,
        num_used: Tensor | None = None,
    ) -> None:
        if index.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"index holds {index.dtype}, expected torch.int32 or torch.int64")
        if index.dim() != 1:
            raise ValueError(f"index has shape {tuple(index.shape)}, expected one dimension")
        self.index = index
        self.is_trusted, self.is_sorted = is_trusted, is_sorted
        self.is_distinct, self.is_background = is_distinct, is_background
        self.num_used = num_used
        self._ids: dict[torch.device, Tensor] = {}
        self._sorted: tuple[Tensor, Tensor] | None = None
        self._partitioned: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return self.index.numel()

    def ids(self, device: torch.device) -> Tensor:
        """Return the ids as a contiguous int64 tensor on a device."""
        index = self.index
        if index.dtype == torch.int64 and index.device == device and index.is_contiguous():
            return index
        if device not in self._ids:
            self._ids[device] = index.to(device, torch.int64).contiguous()
        return self._ids[device]

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest id, ``(0, -1)`` of none; waits for a GPU that holds them."""
        if not len(self):
            return 0, -1
        lowest, highest = torch.stack(self.index.aminmax()).tolist()
        return int(lowest), int(highest)

    def in_order(self, device: torch.device, num_rows: int) -> tuple[Tensor, Tensor]:
        """Return the ids in ascending order, and where each stands in the request.

        Parameters
        ----------
        device : torch.device
            Where both are.
        num_rows : int
            ``R``, below which every id must lie: where it fits 32 bits the ids come back as int32,
            after half the passes of a sort.
        """
        if self._sorted is None:
            dtype = torch.int32 if num_rows <= 2**31 else torch.int64
            self._sorted = torch.sort(self.index.to(device, dtype))
        return self._sorted

    def by_address(
        self, device: torch.device, partition: Callable[[Tensor], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return the ids roughly in order, and where each stands in the request.

        Parameters
        ----------
        device : torch.device
            Where both are.
        partition : callable
            Makes both of ``ids(device)``, if nobody asked before; ids that somebody had sorted are
            good enough.
        """
        if self._partitioned is None:
            self._partitioned = self._sorted or partition(self.ids(device))
        return self._partitioned

    def check(self, name: str, num_rows: int) -> None:
        """Refuse ids outside ``[0, R)``.

        Raises
        ------
        IndexError
            Naming the table, the id and the number of rows.
        """
        lowest, highest = self.bounds
        if lowest < 0 or highest >= num_rows:
            raise outside(name, lowest if lowest < 0 else highest, num_rows)


def outside(name: str, wrong: int, num_rows: int) -> IndexError:
    """Return the error for an id that a table of ``num_rows`` rows does not have."""
    return IndexError(
        f"id {wrong} is outside {name}, which has {num_rows} rows; expected ids in [0, {num_rows})"
    )
