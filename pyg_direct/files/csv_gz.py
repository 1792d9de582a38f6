"""Tables of numbers in ``.csv.gz`` files without a header, read in pieces.

Shape legend: ``R`` rows of a table, ``C`` columns, ``E`` edges.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyg_direct.files.manifest import StoredGraphError
from pyg_direct.files.npz import Array, reading

# Lines become Python strings, and those numbers, before the next are read.
READ_BYTES = 1 << 21
_OF_INTEGERS = b"0123456789+-, \r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvArray:
    """One table.

    Attributes
    ----------
    path : Path
    dtype : np.dtype
        int64 or float32.
    shape : tuple of int
        ``(R, C)``. R is what another file says; reading compares it.
    """

    path: Path
    dtype: np.dtype[Any]
    shape: tuple[int, int]

    @property
    def title(self) -> str:
        """What messages call it."""
        return str(self.path)

    def rows(self, scratch: Path | None = None) -> Iterator[Array]:
        """Yield all rows in order, a bounded number of bytes at once; ``scratch`` is not used."""
        num_rows = 0
        for block in _blocks(self.path, self.dtype):
            num_rows += len(block)
            if block.shape[1] != self.shape[1]:
                raise StoredGraphError(
                    f"{self.path} has {block.shape[1]} numbers in row {num_rows}, expected "
                    f"{self.shape[1]}; it is damaged, download the dataset again"
                )
            if num_rows > self.shape[0]:
                break
            yield block
        if num_rows != self.shape[0]:
            raise StoredGraphError(
                f"{self.path} has {num_rows} rows{' or more' * (num_rows > self.shape[0])}, "
                f"expected {self.shape[0]}; it is damaged, download the dataset again"
            )

    def edge_ends(self) -> Iterator[tuple[int, int, Array]]:
        """Yield the entries of a table of E edges: the column, the first of rows, the values."""
        start = 0
        for pairs in self.rows():
            yield 0, start, pairs[:, 0]
            yield 1, start, pairs[:, 1]
            start += len(pairs)


def open_csv(path: Path, num_rows: int) -> CsvArray:
    """Look at a table; its type is int64 if there are no other numbers in it, else float32.

    Parameters
    ----------
    path : Path
    num_rows : int
        Expected; not counted here.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    StoredGraphError
        If it is damaged.

    Notes
    -----
    Reads until the first number that is no integer, and so all of a table of integers.
    """
    _require(path)
    with reading(str(path)), gzip.open(path, "rb") as file:
        piece = file.read(READ_BYTES)
        num_columns = piece.split(b"\n", 1)[0].count(b",") + 1
        is_integer = True
        while piece and is_integer:
            is_integer = not piece.translate(None, _OF_INTEGERS)
            piece = file.read(READ_BYTES)
    dtype = np.dtype(np.int64 if is_integer else np.float32)
    return CsvArray(path=path, dtype=dtype, shape=(num_rows, num_columns))


def read_integers(path: Path) -> Iterator[Array]:
    """Yield the integers of a table of one column in pieces, int64, shape (R,).

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    StoredGraphError
        If it is damaged, or holds something else.
    """
    _require(path)
    for block in _blocks(path, np.dtype(np.int64)):
        yield block[:, 0]


def _require(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; download the dataset again")


def _blocks(path: Path, dtype: np.dtype[Any]) -> Iterator[Array]:
    with reading(str(path)), gzip.open(path, "rt", encoding="ascii") as file:
        while lines := file.readlines(READ_BYTES):
            rows = [line for line in lines if not line.isspace()]
            if rows:
                yield np.loadtxt(rows, dtype, delimiter=",", comments=None, ndmin=2)
