import pytest

from pyg_direct.tables.plan import (
    AS_REQUESTED,
    INDEX_SELECT,
    ON_DEVICE,
    PARTITIONED,
    SORTED,
    plan_gather,
)

GIB = 2**30


def plan(row_bytes, num_ids, table_bytes, **options):
    return plan_gather(
        row_bytes=row_bytes,
        num_ids=num_ids,
        num_rows=table_bytes // row_bytes,
        **{"num_sms": 132, **options},
    )


@pytest.mark.parametrize("row_bytes", [64, 128, 400, 512])
@pytest.mark.parametrize("table_gib", [8, 32])
def test_many_ids_over_a_large_table_are_partitioned(row_bytes, table_gib):
    assert plan(row_bytes, 100_000, table_gib * GIB).way == PARTITIONED
    assert plan(row_bytes, 10_000, table_gib * GIB).way == PARTITIONED


def test_ids_that_repeat_are_sorted():
    distinct, repeating = plan(128, 500_000, 2 * GIB), plan(128, 3_000_000, 2 * GIB)

    assert (distinct.way, repeating.way) == (PARTITIONED, SORTED)
    assert repeating.rows_per_ticket == 4 * distinct.rows_per_ticket
    # The longer the rows, the sooner a sort saves more than it costs.
    assert plan(1024, 1_000_000, 32 * GIB).way == SORTED


@pytest.mark.parametrize("row_bytes", [64, 512, 1172, 4096])
def test_few_ids_go_to_torch(row_bytes):
    assert plan(row_bytes, 1_000, 8 * GIB).way == INDEX_SELECT


@pytest.mark.parametrize(
    "options", [{"is_trusted": False}, {"max_sms": 33}, {"is_background": True}]
)
def test_torch_gets_no_ids_that_may_be_wrong_and_keeps_no_limit(options):
    assert plan(512, 1_000, 8 * GIB, **options).way == AS_REQUESTED


def test_ids_in_order_are_not_sorted_again():
    assert plan(128, 1_000_000, 8 * GIB, is_sorted=True).way == AS_REQUESTED


def test_rows_of_odd_words_are_read_by_our_kernel():
    assert plan(2408, 50_000, 8 * GIB).way == AS_REQUESTED
    assert plan(4096, 50_000, 8 * GIB).way == INDEX_SELECT


def test_more_ids_than_32_bits_count_are_sorted():
    ways = [plan(64, num_ids, 2**50).way for num_ids in (2**31 - 1, 2**31)]

    assert ways == [PARTITIONED, SORTED]


def test_the_further_rows_are_apart_the_fewer_warps_read_them():
    dense, sparse = plan(128, 500_000, 2 * GIB), plan(128, 10**5, 8 * GIB)
    far = plan(128, 10**5, 32 * GIB)

    assert [each.num_warps for each in (dense, sparse, far)] == [4 * 132, 4 * 132, 2 * 132]
    assert [each.rows_per_ticket for each in (dense, sparse, far)] == [16, 1, 1]
    assert [each.is_sparse for each in (dense, sparse, far)] == [False, False, True]
    assert plan(1024, 100_000, 32 * GIB).num_warps == 4 * 132


def test_a_limit_gathers_the_same_warps_on_fewer_multiprocessors():
    assert plan(512, 1_000_000, 8 * GIB, is_sorted=True).max_blocks == 132
    limited = plan(512, 1_000_000, 8 * GIB, is_sorted=True, max_sms=33)
    assert (limited.max_blocks, limited.num_warps) == (33, 4 * 132)


@pytest.mark.parametrize("host_share", [0.01, 0.06, 0.2, 0.38, 0.43, 0.5])
@pytest.mark.parametrize("num_ids", [81_120, 1_000_000])
def test_the_fewer_misses_the_more_warps(num_ids, host_share):
    """A row on the device takes a warp 3.4 us, and holds nobody up on the bus."""
    tiers = plan(512, num_ids, 53 * GIB, is_sorted=True, host_share=host_share)

    assert tiers.num_warps >= min(132 * 32, 2 * 132 / host_share)
    assert tiers.max_blocks == 132


@pytest.mark.parametrize("host_share", [0.01, 0.56, 0.97])
def test_rows_close_together_of_which_some_are_hot_take_every_warp(host_share):
    assert (
        plan(512, 1_000_000, 8 * GIB, is_sorted=True, host_share=host_share).num_warps == 132 * 32
    )


@pytest.mark.parametrize("host_share", [0.56, 0.97, 1.0])
def test_few_hits_leave_a_sparse_request_its_few_warps(host_share):
    tiers = plan(512, 81_120, 53 * GIB, is_sorted=True, host_share=host_share)

    assert tiers.num_warps == 2 * 132


def test_hot_rows_alone_are_read_by_torch():
    hot = plan(512, 81_120, 53 * GIB, host_share=0.0, is_trusted=False)

    assert (hot.way, hot.num_warps, hot.unordered_s) == (ON_DEVICE, 0, 0.0)
    assert str(hot).startswith("torch's index_select on the device: every row is hot")
    assert "\n" not in str(hot)


@pytest.mark.parametrize("max_sms", [1, 33, 1_000])
@pytest.mark.parametrize("num_ids", [1, 1_000_000])
@pytest.mark.parametrize("host_share", [0.01, 0.97, 1.0])
def test_max_sms_bounds_blocks_and_warps(host_share, num_ids, max_sms):
    limited = plan(512, num_ids, 8 * GIB, max_sms=max_sms, host_share=host_share)

    assert 1 <= limited.max_blocks <= min(max_sms, 132)
    assert 1 <= limited.num_warps <= limited.max_blocks * 32


@pytest.mark.parametrize(
    ("row_bytes", "host_share", "blocks"),
    [(8, 1.0, 12), (512, 1.0, 12), (516, 1.0, 33), (512, 0.97, 33), (512, 0.05, 33)],
)
@pytest.mark.parametrize("max_sms", [None, 8])
def test_in_the_background_most_multiprocessors_stay_free(row_bytes, host_share, blocks, max_sms):
    options = {"is_sorted": True, "host_share": host_share, "max_sms": max_sms}

    free = plan(row_bytes, 1_000_000, 8 * GIB, **options)
    behind = plan(row_bytes, 1_000_000, 8 * GIB, is_background=True, **options)

    assert behind.max_blocks == min(blocks, max_sms or blocks)
    assert behind.num_warps == min(free.num_warps, 32 * behind.max_blocks)


def test_in_the_background_of_a_small_gpu_one_multiprocessor_works():
    assert plan(512, 1_000_000, 8 * GIB, num_sms=4, is_background=True).max_blocks == 1


def test_max_sms_is_checked():
    with pytest.raises(ValueError, match="max_sms is 0, expected 1 or more"):
        plan(512, 1_000, GIB, max_sms=0)


def test_a_plan_says_why():
    assert str(plan(128, 1_000_000, 8 * GIB)).startswith("partition by address, then our kernel")
    assert str(plan(128, 3_000_000, GIB)).startswith("sort, then our kernel: translations")
    assert str(plan(128, 1_000, 8 * GIB)).startswith("torch's index_select")
