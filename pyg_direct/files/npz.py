"""Arrays of a ``.npz`` archive, read from its zip entries in pieces, whatever their size.

Shape legend: ``R`` rows of an array, ``E`` edges.
"""

import math
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from pyg_direct.files.manifest import StoredGraphError

# zipfile holds a few pieces at once while it inflates.
READ_BYTES = 1 << 22
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_FAILURES = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError,
)  # fmt: skip

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzArray:
    """One array of an archive.

    Attributes
    ----------
    archive : Path
    name : str
        As ``np.savez`` takes it.
    dtype : np.dtype
    shape : tuple of int
    is_fortran : bool
        Its first index runs fastest.
    """

    archive: Path
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.name!r} of {self.archive}"

    def rows(self, scratch: Path) -> Iterator[Array]:
        """Yield all rows in order, a bounded number of bytes at once.

        Parameters
        ----------
        scratch : Path
            A folder on a disk that has room for the array, which is used where ``is_fortran``: the
            array must be read as a whole before its first row is known.
        """
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        rows_at_once = max(1, READ_BYTES // max(1, row_bytes))
        if self.is_fortran and len(self.shape) > 1:
            yield from self._rows_of_columns(scratch, rows_at_once)
            return
        for values in self._values(rows_at_once * math.prod(self.shape[1:])):
            yield values.reshape(-1, *self.shape[1:])

    def edge_ends(self) -> Iterator[tuple[int, int, Array]]:
        """Yield the entries of an array of shape (2, E): its row, the first of columns, the values.

        Every entry comes once; nothing is staged on a disk.
        """
        num_edges, start = self.shape[1], 0
        for values in self._values(READ_BYTES // self.dtype.itemsize // 2 * 2):
            if self.is_fortran:
                yield 0, start, values[0::2]
                yield 1, start, values[1::2]
                start += values.size // 2
                continue
            end = max(0, min(values.size, num_edges - start))
            yield 0, start, values[:end]
            yield 1, max(0, start - num_edges), values[end:]
            start += values.size

    def _values(self, at_once: int) -> Iterator[Array]:
        """Yield all values as they lie."""
        missing = math.prod(self.shape)
        with (
            reading(self.title),
            zipfile.ZipFile(self.archive) as archive,
            archive.open(f"{self.name}.npy") as file,
        ):
            _read_header(file)
            while missing:
                num_values = min(missing, at_once)
                data = file.read(num_values * self.dtype.itemsize)
                if len(data) < num_values * self.dtype.itemsize:
                    raise EOFError(f"it ends {missing} values before the end of {self.shape}")
                missing -= num_values
                # The stored order of bytes may be foreign.
                native = self.dtype.newbyteorder("=")
                yield np.frombuffer(data, self.dtype).astype(native, copy=False)
            # zipfile compares checksums where it meets the end.
            if file.read(1):
                raise ValueError(f"it goes on behind the end of {self.shape}")

    def _rows_of_columns(self, scratch: Path, rows_at_once: int) -> Iterator[Array]:
        num_rows, num_columns = self.shape[0], math.prod(self.shape[1:])
        native = self.dtype.newbyteorder("=")
        with tempfile.TemporaryFile(dir=scratch) as stage:
            for values in self._values(READ_BYTES // self.dtype.itemsize):
                stage.write(values.data)
            for start in range(0, num_rows, rows_at_once):
                block = np.empty((num_columns, min(rows_at_once, num_rows - start)), native)
                for column in range(num_columns):
                    stage.seek((column * num_rows + start) * native.itemsize)
                    stage.readinto(block[column].data)
                yield block.reshape(*self.shape[:0:-1], -1).T


def open_npz(archive: Path) -> dict[str, NpzArray]:
    """Return the arrays of an archive by name; only their headers are read.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    StoredGraphError
        If it is damaged, or holds Python objects.
    """
    if not archive.is_file():
        raise FileNotFoundError(f"{archive} is missing; download the dataset again")
    arrays = {}
    with reading(str(archive)), zipfile.ZipFile(archive) as opened:
        for entry in opened.namelist():
            name = entry.removesuffix(".npy")
            with opened.open(entry) as file:
                shape, is_fortran, dtype = _read_header(file)
            if dtype.hasobject:
                raise ValueError(f"{name!r} holds Python objects, expected numbers")
            arrays[name] = NpzArray(
                archive=archive, name=name, dtype=dtype, shape=shape, is_fortran=is_fortran
            )
    return arrays


@contextmanager
def reading(title: str) -> Iterator[None]:
    """Raise what goes wrong with a file as ``StoredGraphError`` that names it."""
    try:
        yield
    except StoredGraphError:
        raise
    except _FAILURES as error:
        raise StoredGraphError(
            f"{title} cannot be read: {error or type(error).__name__}; it is damaged or foreign, "
            "download the dataset again"
        ) from error


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"format {version} of .npy, expected one of {sorted(_HEADERS)}")
    return _HEADERS[version](file)
