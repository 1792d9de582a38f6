"""Rows as integers, so that torch selects and copies rows of any dtype."""

from math import gcd

import torch
from torch import Tensor

INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


def as_integers(rows: Tensor) -> Tensor:
    """View rows as integers of their size: torch does not select every dtype."""
    # complex128 has no integer of its size, and torch selects it as it is.
    return rows.view(INTEGERS.get(rows.dtype.itemsize, rows.dtype))


def as_bytes(rows: Tensor) -> Tensor:
    """View contiguous, non-empty rows as uint8 of shape (rows, bytes a row)."""
    return rows.reshape(-1).view(torch.uint8).view(rows.shape[0], -1)


def word_bytes(row_bytes: int, *addresses: int) -> int:
    """Return the size of the widest integer that rows at these addresses allow: 8, 4, 2 or 1."""
    return gcd(8, row_bytes, *addresses)


def as_words(rows: Tensor, size: int) -> Tensor:
    """View contiguous, non-empty rows as integers of ``size`` bytes, shape (rows, words a row)."""
    return as_bytes(rows).view(INTEGERS[size])
