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
from functools import lru_cache
from typing import Any

LINK_BYTES_PER_S = 51e9
# What it costs to bring ids in order, launches included: torch's sort, or a partition by address.
SORT_S, PARTITION_S, ORDERED_IDS_PER_S = 130e-6, 75e-6, 40e9
# A partition counts in 32 bits.
MOST_PARTITIONED = 2**31 - 1
# Of so many bytes each needs a translation. So many a second are made in tables of 1, 8 and 32 GiB:
# for rows in order, for rows at random.
TRANSLATED_BYTES = 2**15
TRANSLATIONS_PER_S = ((2**30, 160e6, 110e6), (2**33, 90e6, 38e6), (2**35, 50e6, 29e6))
# So few ids are gone before a kernel of ours is launched.
FEWEST_IDS = 1_536
WARPS_PER_BLOCK = 32
# So many warps for each multiprocessor of the GPU saturate the link, or the translations, with rows
# in order that are so long at most; longer ones take more.
WARPS_PER_SM, WARP_BYTES = 4, 512
# Fewer read rows that are so far apart in so large a table: the less is in flight, the more hits.
FAR_WARPS_PER_SM, FAR_BYTES, LARGE_BYTES = 2, 2**18, 2**34
# A ticket is so many bytes of rows, or one row where they are further apart than this.
TICKET_BYTES, NEAR_BYTES = 2_048, 2**16
# A warp that reads on the device has no row on the bus: a request of which some rows stand there
# takes all warps, which cost little. But where rows are far apart it takes few, and more only if at
# least half stand on the device: in inverse proportion to the share that does not.
MANY_HITS_SHARE = 0.5
# Beside a model a gather keeps an eleventh of the multiprocessors busy: rows of up to 512 bytes
# take longer then, and the model less. A quarter, where rows are longer, or some are on the device.
SMALL_SHARE, LARGE_SHARE = 11, 4
# torch reads rows of whole words of this size fast, and long ones in any order.
VECTOR_BYTES, LONG_ROW_BYTES = 16, 3_072

# Of a number of ids, a plan that is kept saw the leading bits.
PLANNED_BITS = 6

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
    is_sparse : bool
        Rows are so far apart, in so large a table, that hardly two share a translation.
    ordered_s, unordered_s : float
        Estimated seconds on the bus in order of address, with what the order costs, and in the
        order of the request.
    """

    way: str
    rows_per_ticket: int
    num_warps: int
    max_blocks: int
    is_sparse: bool
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
    is_background: bool = False,
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
    is_background : bool
        A model runs meanwhile, and should have most of the GPU.
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
        return GatherPlan(ON_DEVICE, 0, 0, 0, False, 0.0, 0.0)
    table_bytes, num_read = row_bytes * num_rows, num_ids * host_share
    unordered_s, sorted_s, (ordered_s, order) = _estimate(row_bytes, num_read, num_rows)
    if num_ids > MOST_PARTITIONED:
        ordered_s, order = sorted_s + SORT_S, SORTED
    ordered_s = sorted_s if is_sorted else ordered_s + num_ids / ORDERED_IDS_PER_S
    if is_sorted or unordered_s <= ordered_s:
        way = AS_REQUESTED
        is_fast_in_torch = row_bytes % VECTOR_BYTES == 0 and (
            not is_sorted or row_bytes >= LONG_ROW_BYTES
        )
        is_plain = is_trusted and max_sms is None and not is_background and host_share == 1
        if is_plain and (is_fast_in_torch or num_ids <= FEWEST_IDS):
            way = INDEX_SELECT
    else:
        way = order
    max_blocks, spacing = min(num_sms, max_sms or num_sms), table_bytes / num_read
    if is_background:
        is_small = host_share == 1 and row_bytes <= WARP_BYTES
        share = SMALL_SHARE if is_small else LARGE_SHARE
        max_blocks = max(1, min(max_blocks, num_sms // share))
    is_sparse = spacing > FAR_BYTES and table_bytes > LARGE_BYTES
    num_warps = WARPS_PER_BLOCK * num_sms
    if is_sorted or way == order:
        num_warps = num_sms * _warps_per_sm(row_bytes, is_sparse, host_share)
    num_warps = min(num_warps, WARPS_PER_BLOCK * max_blocks)
    rows_per_ticket = max(1, TICKET_BYTES // row_bytes) if spacing <= NEAR_BYTES else 1
    if order == SORTED:
        # Equal ids cross the bus once if one warp reads them, one after the other.
        rows_per_ticket *= 4
    rows_per_ticket = max(1, min(rows_per_ticket, num_ids // num_warps))
    num_warps = min(num_warps, -(-num_ids // rows_per_ticket))
    return GatherPlan(
        way, rows_per_ticket, num_warps, max_blocks, is_sparse, ordered_s, unordered_s
    )


def plan_about(*, num_ids: int, **options: Any) -> GatherPlan:
    """Return ``plan_gather`` of about so many ids; requests of similar size have one, at hand."""
    rounding = max(0, num_ids.bit_length() - PLANNED_BITS)
    return _plan_once(num_ids=num_ids >> rounding << rounding, **options)


_plan_once = lru_cache(maxsize=4096)(plan_gather)


def _estimate(
    row_bytes: int, num_read: float, num_rows: int
) -> tuple[float, float, tuple[float, str]]:
    """Estimate the seconds of a request.

    Returns
    -------
    unordered_s, sorted_s : float
        As it comes, and of ids that are in order already.
    ordered_s, order : float, str
        With the cheaper way to bring ids in order, and which that is.
    """
    table_bytes, transfer_s = row_bytes * num_rows, num_read * row_bytes / LINK_BYTES_PER_S
    ordered_per_s, unordered_per_s = _translations_per_s(table_bytes)
    translated_s = _distinct(num_read, table_bytes / TRANSLATED_BYTES) / ordered_per_s
    # Where equal ids are neighbours they cross the bus once.
    sorted_s = max(_distinct(num_read, num_rows) / num_read * transfer_s, translated_s)
    partitioned_s = max(transfer_s, translated_s)
    return (
        max(transfer_s, num_read / unordered_per_s),
        sorted_s,
        min((sorted_s + SORT_S, SORTED), (partitioned_s + PARTITION_S, PARTITIONED)),
    )


def _warps_per_sm(row_bytes: int, is_sparse: bool, host_share: float) -> int:
    """Return the warps that read rows in order best, for each multiprocessor that there is."""
    if host_share < 1 and not is_sparse:
        return WARPS_PER_BLOCK
    warps = (FAR_WARPS_PER_SM if is_sparse else WARPS_PER_SM) * -(-row_bytes // WARP_BYTES)
    return math.ceil(warps / host_share) if host_share <= MANY_HITS_SHARE else warps


def _distinct(num_drawn: float, num_places: float) -> float:
    """Estimate how many places are drawn at least once, when they are drawn at random."""
    return -math.expm1(-num_drawn / num_places) * num_places


def _translations_per_s(table_bytes: int) -> tuple[float, float]:
    """Return the rates for rows in order, and at random."""
    (_, *rates), *larger = TRANSLATIONS_PER_S
    for at_bytes, *slower in larger:
        if table_bytes >= at_bytes * 0.6:
            rates = slower
    return rates[0], rates[1]
