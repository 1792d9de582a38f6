"""A table: one feature tensor, wherever its rows are.

Shape legend: ``R`` rows of a table, ``N`` requested rows, ``...`` the trailing shape of a row.
Assumption: rows are bytes; a table moves them and never looks inside.
"""

import math
from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from pyg_direct.tables.request import Request


class Table(ABC):
    """Rows that can be gathered by id and replaced by id.

    Attributes
    ----------
    name : str
        What error messages call the table.
    shape : tuple of int
        ``(R, ...)``.
    dtype : torch.dtype
        Element type.
    device : torch.device
        Where gathered rows appear.
    version : int
        Another one when rows are read from elsewhere than before.
    is_on_host : bool
        Whether the rows stand in host memory.
    """

    version = 0
    is_on_host = False
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def num_rows(self) -> int:
        """``R``."""
        return self.shape[0]

    @cached_property
    def row_bytes(self) -> int:
        """Bytes a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def gather(self, index: Tensor | Request, out: Tensor | None = None) -> Tensor:
        """Return the rows with the given ids, in the order of ``index``.

        Parameters
        ----------
        index : int32 or int64 tensor, shape (N,), or Request
            Ids in ``[0, R)``, on any device, in any order, repeated or not. A request shares what
            is worked out about the ids with other tables, and may vouch for them.
        out : torch.Tensor, optional
            Contiguous, shape ``(N, ...)``, on ``device``; overwritten in full and returned.

        Returns
        -------
        torch.Tensor
            Shape ``(N, ...)``, on ``device``: ``out``, or memory of its own. On a GPU the rows are
            there when the current stream has come so far; ids that nobody vouches for are waited
            for.

        Raises
        ------
        IndexError
            If an id is not in ``[0, R)``. The GPU is unharmed.
        TypeError, ValueError
            If ``index`` or ``out`` is not as described, or the table is closed.
        """
        self._check_open()
        request = index if isinstance(index, Request) else Request(index)
        if out is None:
            return self._gather_new(request)
        self._check_rows("out", out, (len(request), *self.shape[1:]))
        return self._gather_into(request, out)

    def _gather_new(self, request: Request) -> Tensor:
        """Return the rows in memory of their own."""
        return self._gather_into(request, self._new_rows(request))

    def _new_rows(self, request: Request) -> Tensor:
        """Return memory for the rows of a request."""
        shape = (len(request), *self.shape[1:])
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def _gather_into(self, request: Request, out: Tensor) -> Tensor:
        if out.numel():
            self._gather(request, out)
        elif not request.is_trusted:
            request.check(self.name, self.num_rows)
        return out

    def scatter(self, index: Tensor | Request, rows: Tensor) -> None:
        """Replace the rows with the given ids; of rows with one id the last one counts.

        Parameters
        ----------
        index : int32 or int64 tensor, shape (N,), or Request
            Ids in ``[0, R)``, on any device. Of a request that vouches for them, and for that they
            are distinct, none is looked at, and nothing waits.
        rows : torch.Tensor
            Shape ``(N, ...)``, dtype of the table, on any device; copied.

        Raises
        ------
        IndexError
            If an id is not in ``[0, R)``. Nothing is written then.
        TypeError, ValueError
            If ``index`` or ``rows`` is not as described, the memory is read-only, or the table
            is closed.
        """
        self._check_open()
        request = index if isinstance(index, Request) else Request(index)
        if not request.is_trusted:
            request.check(self.name, self.num_rows)
        rows = rows.detach().to(self.device).contiguous()
        self._check_rows("rows", rows, (len(request), *self.shape[1:]))
        ids = request.ids(self.device)
        ids, last = (ids, None) if request.is_distinct else _last_of_each(ids)
        if rows.numel():
            self._scatter(ids, rows if last is None else rows[last])

    @abstractmethod
    def tensor(self) -> Tensor:
        """Return all rows as a tensor on ``device`` that shares the table's memory."""

    def part(self, index: slice | int) -> Tensor:
        """Return a copy, on ``device``, of the rows of a slice with positive step, or of one row.

        Parameters
        ----------
        index : slice or int
            Within the bounds.
        """
        return self.tensor()[index].clone()

    def rows(self) -> Tensor:
        """Return all rows as a tensor where they stand, host memory on the CPU, without a copy."""
        return self.tensor()

    @property
    def num_hot(self) -> int:
        """How many rows of a table in host memory have copies on the device."""
        return 0

    def num_hits(self, request: Request) -> int | Tensor:
        """Return how many rows of a request are hot; nobody waits for the GPU.

        Parameters
        ----------
        request : Request
            Ids that need not have been checked.

        Returns
        -------
        int, or int64 tensor of shape ()
            On the device of the table, where the ids have to be looked up.
        """
        return 0

    @property
    def is_repeatable(self) -> bool:
        """Whether a CUDA graph can repeat gathers, until ``version`` changes."""
        return self.device.type == "cuda" and not self.is_closed

    @abstractmethod
    def close(self) -> None:
        """Let go of the memory; harmless twice."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""

    @abstractmethod
    def _gather(self, request: Request, out: Tensor) -> None: ...

    @abstractmethod
    def _scatter(self, index: Tensor, rows: Tensor) -> None: ...

    def _check_open(self) -> None:
        if self.is_closed:
            raise ValueError(f"{self.name} is closed; put the tensor again")

    def _check_rows(self, name: str, rows: Tensor, shape: tuple[int, ...]) -> None:
        came = (tuple(rows.shape), rows.dtype, rows.device.type)
        expected = (shape, self.dtype, self.device.type)
        if came != expected or not rows.is_contiguous():
            raise ValueError(
                f"{name} is {came} with strides {rows.stride()}, expected {expected}, contiguous"
            )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name}, shape={self.shape}, dtype={self.dtype}, "
            f"device={self.device})"
        )


def _last_of_each(index: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the distinct ids and where each stands last; None where they are distinct already."""
    unique, inverse = torch.unique(index, return_inverse=True)
    if unique.numel() == index.numel():
        return index, None
    places = torch.arange(index.numel(), device=index.device)
    last = torch.zeros_like(unique).scatter_reduce_(0, inverse, places, "amax")
    return unique, last
