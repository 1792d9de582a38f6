import pytest

from pyg_direct.tables import plan_gather

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
    assert plan(row_bytes, 1_000_000, table_gib * GIB).is_sorted


@pytest.mark.parametrize("row_bytes", [64, 512, 4096])
def test_few_ids_are_read_as_they_are(row_bytes):
    assert not plan(row_bytes, 1_000, 8 * GIB).is_sorted


def test_ids_in_order_are_not_sorted_again():
    assert not plan(128, 1_000_000, 8 * GIB, is_sorted=True).is_sorted


def test_a_sparse_request_keeps_few_warps_in_flight():
    sparse, dense = plan(512, 100_000, 32 * GIB), plan(512, 1_000_000, 8 * GIB)

    assert sparse.num_blocks < 40 < dense.num_blocks


@pytest.mark.parametrize("max_sms", [1, 33, 1_000])
def test_max_sms_bounds_the_blocks(max_sms):
    assert plan(512, 1_000_000, 8 * GIB, max_sms=max_sms).num_blocks <= max_sms


def test_max_sms_is_checked():
    with pytest.raises(ValueError, match="max_sms is 0, expected 1 or more"):
        plan(512, 1_000, GIB, max_sms=0)


def test_a_plan_says_why():
    assert "sort, then read in order: translations" in str(plan(128, 1_000_000, 8 * GIB))
    assert "read in the order of the ids: a sort" in str(plan(128, 1_000, 8 * GIB))
