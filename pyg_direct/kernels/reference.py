"""What each kernel computes, in plain NumPy: the same names and arguments, no thought of speed."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def gather_rows(table: Array, index: Array, out: Array) -> None:
    """Write ``table[index]`` to ``out``."""
    out[...] = table[index]


def scatter_rows(table: Array, index: Array, rows: Array) -> None:
    """Write ``rows`` to ``table[index]``; the ids are unique."""
    table[index] = rows
