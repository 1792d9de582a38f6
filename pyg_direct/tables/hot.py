"""Hot rows of a table: copies where rows are wanted, and how many of them a budget holds.

Shape legend: ``R`` rows of a table, ``H`` hot rows.
"""

import os
import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_direct.tables.device import DeviceTable

SLOT_BYTES = 4


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Tier:
    """Copies of rows, and where they are; replaced as a whole, never changed but by ``scatter``.

    ``ids``: int64, shape (H,), ascending, on the CPU; ``table``: H rows in the order of the ids;
    ``slots``: int32, shape (R,), or None if every row is hot, so that a slot is an id; ``ignored``:
    an int64 word on the device that nobody reads. Whoever drops it last waits for the GPU, of which
    any stream may still read the copies.
    """

    ids: Tensor
    table: DeviceTable
    slots: Tensor | None
    ignored: Tensor
    host_share: float

    def __post_init__(self) -> None:
        if self.table.device.type == "cuda":
            finalizer = weakref.finalize(self, _wait_for_readers, self.table.device, os.getpid())
            finalizer.atexit = False

    @property
    def hot(self) -> Tensor:
        """The copies, shape (H, ...)."""
        return self.table.tensor()

    @property
    def num_bytes(self) -> int:
        """Bytes of rows and slots."""
        return self.hot.nbytes + (0 if self.slots is None else self.slots.nbytes)


def _wait_for_readers(device: torch.device, process: int) -> None:
    # A forked child has no part in it; CUDA itself would not work there.
    if os.getpid() == process:
        torch.cuda.synchronize(device)


@dataclass(frozen=True, slots=True)
class HitCount:
    """How many rows were asked for, and how many of them stood on the device.

    Attributes
    ----------
    num_rows, num_hits : int
        Since counting began; repeated ids count each time.
    """

    num_rows: int
    num_hits: int

    @property
    def share(self) -> float:
        """Share of the rows that stood on the device; 0 of none."""
        return self.num_hits / self.num_rows if self.num_rows else 0.0


def num_hot_rows(budget_bytes: int, num_rows: int, row_bytes: int) -> int:
    """Return how many rows fit a budget, the table that finds them included.

    Parameters
    ----------
    budget_bytes : int
        0 or more.
    num_rows, row_bytes : int
        Of the table.

    Raises
    ------
    ValueError
        If the budget is negative.
    """
    if budget_bytes < 0:
        raise ValueError(f"budget_bytes is {budget_bytes}, expected 0 or more")
    if budget_bytes >= num_rows * row_bytes:
        return num_rows
    return max(0, (budget_bytes - SLOT_BYTES * num_rows) // row_bytes)
