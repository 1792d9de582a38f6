"""Nodes of one type in order of their score, and how many rows of tensors a budget then holds.

Shape legend: ``n`` nodes of one type, and rows of each of its tensors; ``H`` hot rows.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_direct.tables import Table
from pyg_direct.tables.hot import SLOT_BYTES, num_hot_rows

NUM_BISECTIONS = 64
Key = tuple[Any, Any]


class Ranking:
    """The nodes of one type, the hottest first.

    Parameters
    ----------
    name : str
        What error messages call the scores.
    scores : float tensor, shape (n,)
        0 or more each, on any device.
    device : torch.device
        Where to sort.

    Attributes
    ----------
    order : int64 tensor, shape (n,)
        Ids, the hottest first, of equal ones the lower id; on the CPU.

    Raises
    ------
    ValueError
        If a score is negative or not a number, or there is more than one dimension.
    """

    def __init__(self, name: str, scores: Tensor, device: torch.device) -> None:
        lowest = float(scores.min()) if scores.numel() else 0.0
        if scores.dim() != 1 or not lowest >= 0:
            raise ValueError(
                f"scores of {name} have shape {tuple(scores.shape)} and hold {lowest}, expected "
                "one dimension and numbers of 0 or more"
            )
        falling, order = scores.detach().to(device).sort(descending=True, stable=True)
        self.order = order.cpu()
        self._rising = falling.flip(0).cpu()

    def __len__(self) -> int:
        return self.order.numel()

    @property
    def highest(self) -> float:
        """The highest score, 0 of none."""
        return float(self._rising[-1]) if len(self) else 0.0

    def num_above(self, score: float) -> int:
        """Return how many nodes score more."""
        return len(self) - int(torch.searchsorted(self._rising, score, right=True))

    def share(self, num_hot: int) -> float:
        """Return the part that the hottest nodes have in the sum of all scores."""
        total = float(self._rising.sum(dtype=torch.float64))
        hottest = float(self._rising[len(self) - num_hot :].sum(dtype=torch.float64))
        return hottest / total if total else num_hot / max(1, len(self))


def hot_bytes(table: Table, num_hot: int) -> int:
    """Return the bytes of hot rows on the device, with the table of slots that finds them."""
    slots = SLOT_BYTES * table.num_rows if 0 < num_hot < table.num_rows else 0
    return num_hot * table.row_bytes + slots


def share_out(
    tables: Mapping[Key, Table], rankings: Mapping[Any, Ranking], budget_bytes: int
) -> dict[Key, int]:
    """Return how many of the hottest rows of each table fit a budget together.

    Rows are taken by score a byte, whatever table they are of; the last of equal worth where the
    budget ends are cut, those of long rows first.

    Parameters
    ----------
    tables : mapping of tables
        By group and name.
    rankings : mapping of Ranking
        By group.
    budget_bytes : int
        0 or more.
    """
    low, high = -1.0, 1.0
    for (group, _), table in tables.items():
        high = max(high, rankings[group].highest / table.row_bytes)
    for _ in range(NUM_BISECTIONS):
        worth = (low + high) / 2
        if _total_bytes(tables, _counts_above(tables, rankings, worth)) <= budget_bytes:
            high = worth
        else:
            low = worth
    counts = _counts_above(tables, rankings, high)
    left = budget_bytes - _total_bytes(tables, counts)
    for key in sorted(tables, key=lambda each: tables[each].row_bytes):
        table = tables[key]
        own = left + hot_bytes(table, counts[key])
        counts[key] = max(counts[key], num_hot_rows(own, table.num_rows, table.row_bytes))
        left = own - hot_bytes(table, counts[key])
    return counts


def _counts_above(
    tables: Mapping[Key, Table], rankings: Mapping[Any, Ranking], worth: float
) -> dict[Key, int]:
    counts = {}
    for key, table in tables.items():
        num_hot = rankings[key[0]].num_above(worth * table.row_bytes)
        # Where the slots take more than the rest of the rows, the rest comes too.
        is_all = num_hot and hot_bytes(table, num_hot) >= table.num_rows * table.row_bytes
        counts[key] = table.num_rows if is_all else num_hot
    return counts


def _total_bytes(tables: Mapping[Key, Table], counts: Mapping[Key, int]) -> int:
    return sum(hot_bytes(table, counts[key]) for key, table in tables.items())
