"""Decide how a GPU reads rows from host memory.

Every read that misses a translation of addresses costs about the same, whatever its size, and ids
at random over a large table miss almost always. Ids in order hit, but a sort takes time. What is in
flight at one time should lie within the reach of the translations, so few warps read a sparse
request. And where neither matters torch's own kernel, which knows nothing of all this, is launched
soonest. The numbers below were measured on one H200 (PCIe Gen5 x16); ``experiments/results`` has
the runs.
"""

import math
from dataclasses import dataclass

LINK_BYTES_PER_S = 51e9
# Launches and radix passes of torch's sort, and its rate.
SORT_S, SORTED_IDS_PER_S = 85e-6, 12e9
# Translations a second, of ids in order and of ids at random in tables of 1, 8 and 32 GiB.
ORDERED_MISSES_PER_S = 45e6
RANDOM_MISSES_PER_S = ((2**30, 113e6), (2**33, 40e6), (2**35, 31e6))
TRANSLATED_BYTES = 2**16
# So few ids at random cost half of that; and these are gone before a kernel of ours is launched.
FEW_IDS, FEWEST_IDS = 16_384, 4_096
WARPS_PER_BLOCK = 32
# So many multiprocessors saturate the link with rows of so many bytes in order; shorter need more.
SATURATING_BLOCKS, SATURATING_ROW_BYTES = 33, 512
# Rows further apart than this each need a translation of their own. Then no more of them than these
# are in flight, nor such as lie further apart than translations reach; a warp has so many bytes in
# flight.
SPARSE_BYTES = 2**14
ROWS_IN_FLIGHT, WINDOW_BYTES = 1_024, 192 * 2**20
WARP_BYTES, FEWEST_WARPS = 512, 128
# A warp that reads on the device has no row on the bus, so a request of which part stands there
# takes warps in inverse proportion to the share that does not. That share is an estimate, and a
# large one costs dearly: 341 warps read 81 k rows of 512 bytes, of which 6 % crossed the bus where
# 38 % were expected, in 0.81 ms, 4,224 warps in 0.26 ms. So it takes more than the estimate says.
SPARE_WARPS = 4
# torch reads rows of whole words of this size fast, and long ones in any order.
VECTOR_BYTES, LONG_ROW_BYTES = 16, 3_072

INDEX_SELECT, AS_REQUESTED, SORTED = "index_select", "as requested", "sorted"
ON_DEVICE = "on device"
REASONS = {
    INDEX_SELECT: "torch's index_select: no order would be faster, and it is launched soonest",
    AS_REQUESTED: "our kernel, in the order of the request: a sort would not pay, or is not due",
    ON_DEVICE: "torch's index_select on the device: every row is hot, and nothing crosses the bus",
    SORTED: "sort, then our kernel: translations that hit save more than the sort costs",
}


@dataclass(frozen=True, slots=True)
class GatherPlan:
    """How one request is read from one table; print it to see why.

    Attributes
    ----------
    way : str
        ``"index_select"``, ``"as requested"``, ``"sorted"`` or ``"on device"``; rows come out in
        the order of the request whatever the way.
    rows_per_ticket : int
        Rows that a warp takes at a time.
    num_warps, max_blocks : int
        Warps of our kernel, and the multiprocessors that they keep busy at most.
    sorted_s, unsorted_s : float
        Estimated seconds on the bus in order of id, the sort included, and in the order of the
        request.
    """

    way: str
    rows_per_ticket: int
    num_warps: int
    max_blocks: int
    sorted_s: float
    unsorted_s: float

    def __str__(self) -> str:
        if self.way == ON_DEVICE:
            return REASONS[self.way]
        return (
            f"{REASONS[self.way]}\n  estimated: {self.sorted_s * 1e6:.0f} us in order of id, sort "
            f"included, {self.unsorted_s * 1e6:.0f} us in the order of the request\n"
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
    table_bytes = row_bytes * num_rows
    num_read = num_ids * host_share
    transfer_s = num_read * row_bytes / LINK_BYTES_PER_S
    unsorted_s = max(transfer_s, num_read / _random_misses_per_s(table_bytes, num_ids))
    distinct = _distinct(num_ids, num_rows)
    touched = min(num_read, table_bytes / TRANSLATED_BYTES)
    sorted_s = max(transfer_s * distinct, touched / ORDERED_MISSES_PER_S)
    if not is_sorted:
        sorted_s += SORT_S + num_ids / SORTED_IDS_PER_S
    if is_sorted or unsorted_s <= sorted_s:
        way = AS_REQUESTED
        is_fast_in_torch = row_bytes % VECTOR_BYTES == 0 and (
            not is_sorted or row_bytes >= LONG_ROW_BYTES
        )
        is_plain = is_trusted and max_sms is None and host_share == 1
        if is_plain and (is_fast_in_torch or num_ids <= FEWEST_IDS):
            way = INDEX_SELECT
    else:
        way = SORTED
    is_in_order = is_sorted or way == SORTED
    max_blocks, num_warps = _launch_shape(
        row_bytes, table_bytes / num_read, min(num_sms, max_sms or num_sms), is_in_order, host_share
    )
    rows_per_ticket = max(1, 1024 // row_bytes)
    if distinct < 0.9:
        # Equal ids that one warp reads one after the other cross the bus once.
        rows_per_ticket *= 4
    rows_per_ticket = max(1, min(rows_per_ticket, num_ids // num_warps))
    num_warps = min(num_warps, -(-num_ids // rows_per_ticket))
    return GatherPlan(way, rows_per_ticket, num_warps, max_blocks, sorted_s, unsorted_s)


def _launch_shape(
    row_bytes: int, spacing_bytes: float, num_sms: int, is_in_order: bool, host_share: float
) -> tuple[int, int]:
    """Return how many multiprocessors to keep busy at most, and with how many warps."""
    if not is_in_order:
        return num_sms, num_sms * WARPS_PER_BLOCK
    spare = 1.0 if host_share == 1 else SPARE_WARPS / host_share
    if spacing_bytes < SPARSE_BYTES:
        blocks = SATURATING_BLOCKS * -(-SATURATING_ROW_BYTES // row_bytes)
        blocks = min(num_sms, math.ceil(blocks * spare))
        return blocks, blocks * WARPS_PER_BLOCK
    blocks = min(num_sms, math.ceil(SATURATING_BLOCKS * spare))
    rows_in_flight = min(ROWS_IN_FLIGHT, int(WINDOW_BYTES / spacing_bytes))
    warps = rows_in_flight * row_bytes // WARP_BYTES
    if warps < FEWEST_WARPS and host_share < 1:
        # So far apart that translations do not reach what is in flight, be it ever so little.
        return blocks, blocks * WARPS_PER_BLOCK
    return blocks, min(blocks * WARPS_PER_BLOCK, math.ceil(max(FEWEST_WARPS, warps) * spare))


def _distinct(num_ids: int, num_rows: int) -> float:
    """Estimate the share of distinct ids among ids at random."""
    repeats = num_ids / num_rows
    return 1.0 if repeats < 1e-2 else (1 - (1 - 1 / num_rows) ** num_ids) / repeats


def _random_misses_per_s(table_bytes: int, num_ids: int) -> float:
    (_, rate), *larger = RANDOM_MISSES_PER_S
    for at_bytes, slower in larger:
        if table_bytes >= at_bytes * 0.6:
            rate = slower
    return rate * 2 if num_ids <= FEW_IDS else rate
