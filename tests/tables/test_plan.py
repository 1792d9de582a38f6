import pytest

from pyg_direct.tables.plan import AS_REQUESTED, INDEX_SELECT, ON_DEVICE, SORTED, plan_gather

GIB = 2**30


def plan(row_bytes, num_ids, table_bytes, **options):
    return plan_gather(
        row_bytes=row_bytes,
        num_ids=num_ids,
        num_rows=table_bytes // row_bytes,
        num_sms=132,
        **options,
    )


@pytest.mark.parametrize("row_bytes", [64, 128, 400, 512])
@pytest.mark.parametrize("table_gib", [8, 32])
def test_many_ids_over_a_large_table_are_sorted(row_bytes, table_gib):
    assert plan(row_bytes, 1_000_000, table_gib * GIB).way == SORTED


@pytest.mark.parametrize("row_bytes", [64, 512, 1172, 4096])
def test_few_ids_go_to_torch(row_bytes):
    assert plan(row_bytes, 1_000, 8 * GIB).way == INDEX_SELECT


@pytest.mark.parametrize("options", [{"is_trusted": False}, {"max_sms": 33}])
def test_torch_gets_no_ids_that_may_be_wrong_and_keeps_no_limit(options):
    assert plan(512, 1_000, 8 * GIB, **options).way == AS_REQUESTED


def test_ids_in_order_are_not_sorted_again():
    assert plan(128, 1_000_000, 8 * GIB, is_sorted=True).way == AS_REQUESTED


def test_rows_of_odd_words_are_read_by_our_kernel():
    assert plan(2408, 50_000, 8 * GIB).way == AS_REQUESTED
    assert plan(4096, 50_000, 8 * GIB).way == INDEX_SELECT


def test_a_sparse_request_keeps_few_warps_in_flight():
    sparse, dense = plan(128, 100_000, 32 * GIB), plan(512, 1_000_000, 8 * GIB)

    assert sparse.num_warps == 146
    assert dense.num_warps == 33 * 32


def test_short_rows_use_more_multiprocessors_unless_they_are_sparse():
    dense, sparse = plan(128, 1_000_000, 8 * GIB), plan(128, 1_000_000, 32 * GIB)

    assert dense.max_blocks == 132
    assert (sparse.max_blocks, sparse.num_warps) == (33, 256)


def test_ids_in_order_leave_most_of_the_gpu_alone():
    assert plan(512, 1_000_000, 8 * GIB, is_sorted=True).max_blocks == 33


@pytest.mark.parametrize("host_share", [0.01, 0.06, 0.2, 0.38, 0.43, 0.56, 0.97])
@pytest.mark.parametrize("num_ids", [81_120, 1_000_000])
def test_rows_on_the_device_are_read_fast_though_misses_were_expected(num_ids, host_share):
    """A row on the device takes a warp 3.4 us: 1,024 warps read 81,120 of them in 0.27 ms."""
    tiers = plan(512, num_ids, 53 * GIB, is_sorted=True, host_share=host_share)

    assert tiers.num_warps >= 1_024
    assert tiers.max_blocks == 132


@pytest.mark.parametrize("host_share", [0.01, 0.06, 0.2, 0.38, 0.43])
def test_misses_beyond_the_reach_of_translations_take_every_warp(host_share):
    tiers = plan(512, 81_120, 53 * GIB, is_sorted=True, host_share=host_share)

    assert tiers.num_warps == 132 * 32


def test_without_hot_rows_a_sparse_request_still_keeps_few_warps_in_flight():
    assert plan(512, 81_120, 53 * GIB, is_sorted=True).num_warps < 300


def test_hot_rows_alone_are_read_by_torch():
    hot = plan(512, 81_120, 53 * GIB, host_share=0.0, is_trusted=False)

    assert (hot.way, hot.num_warps, hot.unsorted_s) == (ON_DEVICE, 0, 0.0)
    assert str(hot).startswith("torch's index_select on the device: every row is hot")
    assert "\n" not in str(hot)


@pytest.mark.parametrize("max_sms", [1, 33, 1_000])
@pytest.mark.parametrize("num_ids", [1, 1_000_000])
@pytest.mark.parametrize("host_share", [0.01, 0.97, 1.0])
def test_max_sms_bounds_blocks_and_warps(host_share, num_ids, max_sms):
    limited = plan(512, num_ids, 8 * GIB, max_sms=max_sms, host_share=host_share)

    assert 1 <= limited.max_blocks <= min(max_sms, 132)
    assert 1 <= limited.num_warps <= limited.max_blocks * 32


def test_max_sms_is_checked():
    with pytest.raises(ValueError, match="max_sms is 0, expected 1 or more"):
        plan(512, 1_000, GIB, max_sms=0)


def test_a_plan_says_why():
    assert str(plan(128, 1_000_000, 8 * GIB)).startswith("sort, then our kernel: translations")
    assert str(plan(128, 1_000, 8 * GIB)).startswith("torch's index_select")
