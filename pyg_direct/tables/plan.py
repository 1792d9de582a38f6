"""Decide how a GPU reads rows from host memory.

Every read that misses a translation of addresses costs about the same, whatever its size, and ids
at random over a large table miss almost always. Ids in order hit, but sorting them takes time. And
what is in flight at one time should lie close together, so few warps read a sparse request. The
numbers below were measured on one H200 (PCIe Gen5 x16); ``experiments/results`` has the runs.
"""

from dataclasses import dataclass

LINK_BYTES_PER_S = 51e9
# Launches and radix passes of torch's sort, and its rate.
SORT_S, SORTED_IDS_PER_S = 85e-6, 12e9
# Translations a second, of ids in order and of ids at random in tables of 1, 8 and 32 GiB.
ORDERED_MISSES_PER_S = 45e6
RANDOM_MISSES_PER_S = ((2**30, 113e6), (2**33, 40e6), (2**35, 31e6))
TRANSLATED_BYTES = 2**16
# Up to about so many ids at random cost half of that.
FEW_IDS = 16_384
# What is in flight should span no more of the table than translations reach.
WINDOW_BYTES = 192 * 2**20
FEWEST_BLOCKS = 16
WARPS_PER_BLOCK = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherPlan:
    """How one request is read from one table.

    Attributes
    ----------
    is_sorted : bool
        Whether rows are read in order of their id; they come out in the order of the request.
    rows_per_ticket : int
        Rows that a warp takes at a time.
    num_blocks : int
        Blocks of 32 warps, one to a multiprocessor.
    sorted_s, unsorted_s : float
        Estimated seconds of both ways.
    reason : str
        Why, in words.
    """

    is_sorted: bool
    rows_per_ticket: int
    num_blocks: int
    sorted_s: float
    unsorted_s: float
    reason: str

    def __str__(self) -> str:
        return (
            f"{'sort, then read in order' if self.is_sorted else 'read in the order of the ids'}: "
            f"{self.reason}\n"
            f"  estimated: {self.sorted_s * 1e6:.0f} us in order, sort included, "
            f"{self.unsorted_s * 1e6:.0f} us as they are\n"
            f"  {self.num_blocks} blocks of {WARPS_PER_BLOCK} warps, "
            f"{self.rows_per_ticket} rows a ticket"
        )


def plan_gather(
    *,
    row_bytes: int,
    num_ids: int,
    num_rows: int,
    num_sms: int,
    max_sms: int | None = None,
    is_sorted: bool = False,
) -> GatherPlan:
    """Plan a gather from host memory.

    Parameters
    ----------
    row_bytes : int
        Bytes a row.
    num_ids, num_rows : int
        Of the request, and of the table.
    num_sms : int
        Multiprocessors of the GPU.
    max_sms : int, optional
        How many of them the gather may keep busy; all by default.
    is_sorted : bool
        The ids are in order already.

    Raises
    ------
    ValueError
        If ``max_sms`` is less than 1.
    """
    if max_sms is not None and max_sms < 1:
        raise ValueError(f"max_sms is {max_sms}, expected 1 or more")
    table_bytes = row_bytes * num_rows
    transfer_s = num_ids * row_bytes / LINK_BYTES_PER_S
    unsorted_s = max(transfer_s, num_ids / _random_misses_per_s(table_bytes, num_ids))
    touched = min(num_ids, table_bytes / TRANSLATED_BYTES)
    sorted_s = max(transfer_s * _distinct(num_ids, num_rows), touched / ORDERED_MISSES_PER_S)
    sorted_s += 0.0 if is_sorted else SORT_S + num_ids / SORTED_IDS_PER_S
    sorts = not is_sorted and sorted_s < unsorted_s
    in_order = sorts or is_sorted
    rows_per_ticket = max(1, 512 // row_bytes)
    if sorts and _distinct(num_ids, num_rows) < 0.9:
        # Equal ids that one warp reads one after the other cross the bus once.
        rows_per_ticket *= 8
    blocks = _num_blocks(num_ids, rows_per_ticket, num_sms if max_sms is None else max_sms)
    if in_order:
        spacing = table_bytes / num_ids
        in_window = int(WINDOW_BYTES / (spacing * rows_per_ticket * WARPS_PER_BLOCK))
        blocks = min(blocks, max(FEWEST_BLOCKS, in_window))
    if is_sorted:
        reason = "the ids are in order already"
    elif sorts:
        reason = "translations that hit save more than the sort costs"
    else:
        reason = "a sort would cost more than the translations that it saves"
    return GatherPlan(
        is_sorted=sorts,
        rows_per_ticket=rows_per_ticket,
        num_blocks=blocks,
        sorted_s=sorted_s,
        unsorted_s=unsorted_s,
        reason=reason,
    )


def _distinct(num_ids: int, num_rows: int) -> float:
    """Estimate the share of distinct ids among ids at random."""
    repeats = num_ids / max(num_rows, 1)
    return 1.0 if repeats < 1e-3 else float((1 - (1 - 1 / num_rows) ** num_ids) / repeats)


def _random_misses_per_s(table_bytes: int, num_ids: int) -> float:
    (_, rate), *larger = RANDOM_MISSES_PER_S
    for at_bytes, slower in larger:
        if table_bytes >= at_bytes * 0.6:
            rate = slower
    return rate * 2 if num_ids <= FEW_IDS else rate


def _num_blocks(num_ids: int, rows_per_ticket: int, num_sms: int) -> int:
    warps = -(-num_ids // rows_per_ticket)
    return max(1, min(num_sms, -(-warps // WARPS_PER_BLOCK)))
