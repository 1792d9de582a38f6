"""One tensor in one ``.npy`` file, rows from the second page on, so that mapped rows are aligned.

Types that NumPy lacks are stored as integers of the same size; the manifest keeps their name.
"""

import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_direct.memory import tensor_from_numpy
from pyg_direct.tables.words import INTEGERS

PAGE_BYTES = 4096
PIECE_BYTES = 1 << 26
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
)}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """What the manifest says of a file.

    Attributes
    ----------
    file : str
        Its name in the folder.
    dtype : str
        Torch's name of the element type.
    shape : tuple of int
    checksum : int
        CRC-32 of everything behind the header.
    """

    file: str
    dtype: str
    shape: tuple[int, ...]
    checksum: int


def write_array(
    folder: Path, file: str, tensor: Tensor, report: Callable[[int], Any]
) -> StoredArray:
    """Write a tensor piece by piece and wait until the disk has it.

    Parameters
    ----------
    folder : Path
        Exists.
    file : str
        Must not exist in it.
    tensor : torch.Tensor
        Dense, on any device; pieces of it are copied to the CPU.
    report : callable
        Called with the number of bytes after each piece.

    Raises
    ------
    TypeError
        If the element type cannot be stored.
    """
    return write_pieces(
        folder, file, _pieces(tensor), dtype=tensor.dtype, shape=tuple(tensor.shape), report=report
    )


def write_pieces(
    folder: Path,
    file: str,
    pieces: Iterable[memoryview],
    *,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    report: Callable[[int], Any],
) -> StoredArray:
    """Write an array that arrives in pieces and wait until the disk has it.

    Parameters
    ----------
    folder : Path
        Exists.
    file : str
        Must not exist in it.
    pieces : iterable of memoryview
        All bytes of the array, row by row; none is kept.
    dtype : torch.dtype
    shape : tuple of int
    report : callable
        Called with the number of bytes after each piece.

    Raises
    ------
    TypeError
        If the element type cannot be stored.
    ValueError
        If the pieces are not as many bytes as ``shape`` asks for.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise TypeError(f"{file} holds {dtype}, expected one of {sorted(DTYPES)}")
    checksum = num_bytes = 0
    with (folder / file).open("xb") as target:
        target.write(_header(_numpy_dtype(dtype), shape))
        for piece in pieces:
            target.write(piece)
            checksum = zlib.crc32(piece, checksum)
            num_bytes += piece.nbytes
            report(piece.nbytes)
        target.flush()
        os.fsync(target.fileno())
    expected = math.prod(shape) * dtype.itemsize
    if num_bytes != expected:
        raise ValueError(f"{file} got {num_bytes} bytes, expected {expected} for shape {shape}")
    return StoredArray(file=file, dtype=name, shape=shape, checksum=checksum)


def map_array(folder: Path, stored: StoredArray) -> Tensor:
    """Return a tensor on a file that is mapped for reading; nothing is read.

    Raises
    ------
    ValueError
        If the file is missing, or is not what the manifest says.
    """
    path = folder / stored.file
    dtype = DTYPES[stored.dtype]
    expected = (_numpy_dtype(dtype), stored.shape)
    try:
        array = np.load(path, mmap_mode="r" if 0 not in stored.shape else None, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path} cannot be mapped: {error}") from error
    if (array.dtype, array.shape) != expected:
        raise ValueError(f"{path} holds {(array.dtype, array.shape)}, expected {expected}")
    return tensor_from_numpy(array).view(dtype)


def checksum_of(tensor: Tensor) -> int:
    """Return the checksum that ``write_array`` would store; reads everything."""
    checksum = 0
    for piece in _pieces(tensor):
        checksum = zlib.crc32(piece, checksum)
    return checksum


def _pieces(tensor: Tensor) -> Iterator[memoryview]:
    """Yield all bytes of a tensor, row by row, in pieces of a bounded size."""
    if tensor.numel() == 0:
        return
    rows = tensor.detach()
    if rows.dim() == 0:
        rows = rows[None]
    row_bytes = rows[0].numel() * rows.element_size()
    for piece in rows.split(max(1, PIECE_BYTES // row_bytes)):
        yield piece.cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError:
        return torch.empty(0, dtype=INTEGERS[dtype.itemsize]).numpy().dtype


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    text = repr(
        {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    magic = np.lib.format.magic(1, 0)
    length = PAGE_BYTES - len(magic) - 2
    return magic + length.to_bytes(2, "little") + (text.ljust(length - 1) + "\n").encode("latin1")
