"""A table: one feature tensor, wherever its rows are.

Shape legend: ``R`` rows of a table, ``N`` requested rows, ``...`` the trailing shape of a row.
Assumption: rows are bytes; a table moves them and never looks inside.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor


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
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def num_rows(self) -> int:
        """``R``."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def gather(self, index: Tensor, out: Tensor | None = None, *, trusted: bool = False) -> Tensor:
        """Return the rows with the given ids, in the order of ``index``.

        Parameters
        ----------
        index : int32 or int64 tensor, shape (N,)
            Ids in ``[0, R)``, on any device, in any order, repeated or not.
        out : torch.Tensor, optional
            Contiguous, shape ``(N, ...)``, on ``device``; overwritten in full and returned.
        trusted : bool
            The caller vouches that every id is valid: they are not checked, and the call does
            not wait for a GPU on which they are. A wrong id is then undefined behaviour.

        Returns
        -------
        torch.Tensor
            Shape ``(N, ...)``, on ``device``: ``out``, or memory of its own.

        Raises
        ------
        IndexError
            If an id is not in ``[0, R)``. Nothing is read then, and the GPU is unharmed.
        TypeError, ValueError
            If ``index`` or ``out`` is not as described, or the table is closed.
        """
        self._check_open()
        index = self._check_index(index, trusted).to(self.device)
        shape = (index.numel(), *self.shape[1:])
        if out is None:
            out = torch.empty(shape, dtype=self.dtype, device=self.device)
        self._check_rows("out", out, shape)
        if out.numel():
            self._gather(index, out)
        return out

    def scatter(self, index: Tensor, rows: Tensor) -> None:
        """Replace the rows with the given ids; of rows with one id the last one counts.

        Parameters
        ----------
        index : int32 or int64 tensor, shape (N,)
            Ids in ``[0, R)``, on any device.
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
        index = self._check_index(index, trusted=False).to(self.device)
        rows = rows.detach().to(self.device).contiguous()
        self._check_rows("rows", rows, (index.numel(), *self.shape[1:]))
        index, last = _last_of_each(index)
        if rows.numel():
            self._scatter(index, rows if last is None else rows[last])

    @abstractmethod
    def tensor(self) -> Tensor:
        """Return all rows as a tensor on ``device`` that shares the table's memory."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the memory; harmless twice."""

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""

    @abstractmethod
    def _gather(self, index: Tensor, out: Tensor) -> None: ...

    @abstractmethod
    def _scatter(self, index: Tensor, rows: Tensor) -> None: ...

    def _check_open(self) -> None:
        if self.is_closed:
            raise ValueError(f"{self.name} is closed; put the tensor again")

    def _check_index(self, index: Tensor, trusted: bool) -> Tensor:
        if index.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"index holds {index.dtype}, expected torch.int32 or torch.int64")
        if index.dim() != 1:
            raise ValueError(f"index has shape {tuple(index.shape)}, expected one dimension")
        if index.numel() and not trusted:
            lowest, highest = torch.stack(index.aminmax()).tolist()
            if lowest < 0 or highest >= self.num_rows:
                wrong = lowest if lowest < 0 else highest
                raise IndexError(
                    f"id {wrong} is outside {self.name}, which has {self.num_rows} rows; "
                    f"expected ids in [0, {self.num_rows})"
                )
        return index.long().contiguous()

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
