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


def gather_tiers(table: Array, index: Array, out: Array, *, hot: Array, slots: Array) -> None:
    """Write ``table[index]`` to ``out``, a row with a slot from ``hot``."""
    for place, row in enumerate(index):
        out[place] = hot[slots[row]] if slots[row] >= 0 else table[row]


def partition_ids(index: Array, shift: int, num_buckets: int, ids: Array, places: Array) -> None:
    """Write ids in order of their buckets of ``2**shift`` rows, and where each stood."""
    places[...] = np.clip(index.astype(np.int64) >> shift, 0, num_buckets - 1).argsort(
        kind="stable"
    )
    ids[...] = index[places]
