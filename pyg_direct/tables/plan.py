"""Decide how a GPU reads rows from host memory.

Every read that misses a translation of addresses costs about the same, whatever its size, and ids
at random over a large table miss almost always. Ids in order hit, but order takes time: a partition
by address is enough, unless ids repeat. What is in flight at one time should lie within the reach
of the translations, so few warps read a sparse request. And where neither matters torch's own
kernel, which knows nothing of all this, is launched soonest. The numbers below were measured on one
H200 (PCIe Gen5 x16); ``experiments/results`` has the runs.
"""

import math
from dataclasses import dataclass

LINK_BYTES_PER_S = 51e9
# What it costs to bring ids in order: launches and passes of torch's sort, and its rate; and those
# of a partition by address, which counts on ids that do not repeat.
SORT_S, SORTED_IDS_PER_S = 85e-6, 12e9
PARTITION_S, PARTITIONED_IDS_PER_S = 50e-6, 40e9
# Translations a second, of ids in order and of ids at random in tables of 1, 8 and 32 GiB.
ORDERED_MISSES_PER_S = 45e6
RANDOM_MISSES_PER_S = ((2**30, 110e6), (2**33, 38e6), (2**35, 29e6))
TRANSLATED_BYTES = 2**16
# So few ids are gone before a kernel of ours is launched.
FEWEST_IDS = 1_536
WARPS_PER_BLOCK = 32
# So many warps for each multiprocessor of the GPU saturate the link, or the translations, with rows
# in order that are so long at most; longer ones that lie far apart take more. Rows further apart
# than that meet translations that are further apart: fewer in flight, the more of them hit.
WARPS_PER_SM, FAR_WARPS_PER_SM = 4, 2
FAR_BYTES, WARP_BYTES = 2**18, 512
# A ticket is so many bytes of rows, or one row where they lie so far apart that none shares a
# translation.
TICKET_BYTES = 2_048
# A warp that reads on the device has no row on the bus, so a request of which more than half stands
# there takes warps in inverse proportion to the share that does not. Too many cost little, too few
# three times the time.
MANY_HITS_SHARE = 0.5
# torch reads rows of whole words of this size fast, and long ones in any order.
VECTOR_BYTES, LONG_ROW_BYTES = 16, 3_072
# Of ids that repeat more than this, equal ones should be neighbours.
DISTINCT_SHARE = 0.9

INDEX_SELECT, AS_REQUESTED, ON_DEVICE = "index_select", "as requested", "on device"
SORTED, PARTITIONED = "sorted", "partitioned"
REASONS = {
    INDEX_SELECT: "torch's index_select: no order would be faster, and it is launched soonest",
    AS_REQUESTED: "our kernel, in the order of the request: another would not pay, or is not due",
    ON_DEVICE: "torch's index_select on the device: every row is hot, and nothing crosses the bus",
    SORTED: "sort, then our kernel: translations that hit save more than the sort costs, and equal "
    "ids cross the bus once",
    PARTITIONED: "partition by address, then our kernel: translations that hit save more than that "
    "costs",
}


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How one request is read from one table; print it to see why.

    Attributes
    ----------
    way : str
        ``"index_select"``, ``"as requested"``, ``"partitioned"``, ``"sorted"`` or
        ``"on device"``; rows come out in the order of the request whatever the way.
    rows_per_ticket : int
        Rows that a warp takes at a time.
    num_warps, max_blocks : int
        Warps of our kernel, and the multiprocessors that they keep busy at most.
    ordered_s, unordered_s : float
        Estimated seconds on the bus in order of address, with what the order costs, and in the
        order of the request.
    """

    way: str
    rows_per_ticket: int
    num_warps: int
    max_blocks: int
    ordered_s: float
    unordered_s: float

    def __str__(self) -> str:
        if self.way == ON_DEVICE:
            return REASONS[self.way]
        return (
            f"{REASONS[self.way]}\n  estimated: {self.ordered_s * 1e6:.0f} us in order, with what "
            f"that costs, {self.unordered_s * 1e6:.0f} us in the order of the request\n"
            f"  our kernel: {self.num_warps} warps on {self.max_blocks} multiprocessors at most, "
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
    is_trusted: bool = True,
    host_share: float = 1.0,
) -> GatherPlan:
    """Plan a gather from host memory.

    Parameters
    ----------
    row_bytes : int
        Bytes a row.
    num_ids, num_rows : int
        Of the request, and of the table; 1 or more.
    num_sms : int
        Multiprocessors of the GPU.
    max_sms : int, optional
        How many of them the gather may keep busy; all by default.
    is_sorted : bool
        The ids are in order already.
    is_trusted : bool
        The ids are known to be valid. Only then may torch's kernel run: a wrong id would end the
        CUDA context.
    host_share : float
        Expected share of the ids whose rows cross the bus; the rest stand on the device. Between 0
        and 1 torch's kernel never runs: it knows of one place alone.

    Raises
    ------
    ValueError
        If ``max_sms`` is less than 1.
    """
    if max_sms is not None and max_sms < 1:
        raise ValueError(f"max_sms is {max_sms}, expected 1 or more")
    if host_share == 0:
        return GatherPlan(ON_DEVICE, 0, 0, 0, 0.0, 0.0)
    table_bytes, num_read = row_bytes * num_rows, num_ids * host_share
    transfer_s = num_read * row_bytes / LINK_BYTES_PER_S
    unordered_s = max(transfer_s, num_read / _random_misses_per_s(table_bytes))
    distinct = _distinct(num_ids, num_rows)
    touched = min(num_read, table_bytes / TRANSLATED_BYTES)
    ordered_s = max(transfer_s * distinct, touched / ORDERED_MISSES_PER_S)
    order = PARTITIONED if distinct >= DISTINCT_SHARE else SORTED
    if not is_sorted and order == PARTITIONED:
        ordered_s += PARTITION_S + num_ids / PARTITIONED_IDS_PER_S
    elif not is_sorted:
        ordered_s += SORT_S + num_ids / SORTED_IDS_PER_S
    if is_sorted or unordered_s <= ordered_s:
        way = AS_REQUESTED
        is_fast_in_torch = row_bytes % VECTOR_BYTES == 0 and (
            not is_sorted or row_bytes >= LONG_ROW_BYTES
        )
        is_plain = is_trusted and max_sms is None and host_share == 1
        if is_plain and (is_fast_in_torch or num_ids <= FEWEST_IDS):
            way = INDEX_SELECT
    else:
        way = order
    max_blocks, spacing = min(num_sms, max_sms or num_sms), table_bytes / num_read
    num_warps = WARPS_PER_BLOCK * num_sms
    if is_sorted or way == order:
        num_warps = num_sms * _warps_per_sm(row_bytes, spacing, host_share)
    num_warps = min(num_warps, WARPS_PER_BLOCK * max_blocks)
    rows_per_ticket = max(1, TICKET_BYTES // row_bytes) if spacing <= TRANSLATED_BYTES else 1
    if order == SORTED:
        # Equal ids that one warp reads one after the other cross the bus once.
        rows_per_ticket *= 4
    rows_per_ticket = max(1, min(rows_per_ticket, num_ids // num_warps))
    num_warps = min(num_warps, -(-num_ids // rows_per_ticket))
    return GatherPlan(way, rows_per_ticket, num_warps, max_blocks, ordered_s, unordered_s)


def _warps_per_sm(row_bytes: int, spacing: float, host_share: float) -> int:
    """Return the warps that read rows in order best, so many bytes apart, for each SM there is."""
    warps = FAR_WARPS_PER_SM if spacing > FAR_BYTES else WARPS_PER_SM
    warps *= -(-row_bytes // WARP_BYTES)
    return math.ceil(warps / host_share) if host_share <= MANY_HITS_SHARE else warps


def _distinct(num_ids: int, num_rows: int) -> float:
    """Estimate the share of distinct ids among ids at random."""
    repeats = num_ids / num_rows
    return 1.0 if repeats < 1e-2 else (1 - (1 - 1 / num_rows) ** num_ids) / repeats


def _random_misses_per_s(table_bytes: int) -> float:
    (_, rate), *larger = RANDOM_MISSES_PER_S
    for at_bytes, slower in larger:
        if table_bytes >= at_bytes * 0.6:
            rate = slower
    return rate
