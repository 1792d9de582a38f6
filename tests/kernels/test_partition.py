"""Ids come in order of bucket, each with its place, whatever they are."""

import numpy as np
import pytest

from pyg_direct.kernels import reference
from pyg_direct.kernels.partition import (
    MAX_BLOCKS,
    MAX_BUCKETS,
    bucket_shift,
    num_blocks,
    partition_ids,
)


def _partition(kernel_memory, index, num_rows, launches=1):
    ids, places = np.full_like(index, -7), np.full(len(index), -7, np.int64)
    counts = np.zeros(MAX_BUCKETS + 1, np.int64)
    firsts = np.full((num_blocks(len(index)), MAX_BUCKETS), 1 << 30, np.int32)
    with kernel_memory(index, ids, places, counts, firsts) as arrays:
        for _ in range(launches):
            on_index, on_ids, on_places, on_counts, on_firsts = arrays
            partition_ids(on_index, num_rows, on_ids, on_places, counts=on_counts, firsts=on_firsts)
    assert not counts.any()
    return ids, places


def _check(index, num_rows, ids, places):
    assert sorted(places.tolist()) == list(range(len(index)))
    assert (ids == index[places]).all()
    shift = bucket_shift(num_rows)
    expected, _ = np.empty_like(index), np.empty(len(index), np.int64)
    reference.partition_ids(index, shift, MAX_BUCKETS, expected, _)
    buckets = [
        np.clip(each.astype(np.int64) >> shift, 0, MAX_BUCKETS - 1) for each in (ids, expected)
    ]
    assert (buckets[0] == buckets[1]).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("num_ids", [1, 31, 33, 300])
@pytest.mark.parametrize("num_rows", [1, 50, 4097, 1 << 28])
def test_ids_at_random(kernel_memory, dtype, num_ids, num_rows):
    index = np.random.default_rng(num_ids).integers(0, num_rows, num_ids).astype(dtype)

    _check(index, num_rows, *_partition(kernel_memory, index, num_rows))


def test_large_ids(kernel_memory):
    num_rows = 1 << 45
    index = np.random.default_rng(0).integers(0, num_rows, 200)

    _check(index, num_rows, *_partition(kernel_memory, index, num_rows))


@pytest.mark.parametrize("id_", [0, 77_777, 99_999])
def test_equal_ids(kernel_memory, id_):
    index = np.full(150, id_, np.int64)

    _check(index, 100_000, *_partition(kernel_memory, index, 100_000))


def test_wrong_ids_stay_within_the_arrays(kernel_memory):
    index = np.array([5, -1, 3, 1 << 40, -(1 << 62), 99, 100, (1 << 63) - 1] * 9, np.int64)

    _check(index, 100, *_partition(kernel_memory, index, 100))


def test_one_launch_after_another(kernel_memory):
    index = np.random.default_rng(3).integers(0, 5000, 200)

    _check(index, 5000, *_partition(kernel_memory, index, 5000, launches=3))


@pytest.mark.gpu
@pytest.mark.parametrize("num_ids", [2_047, 2_049, 100_003, 1_500_000])
def test_many_ids(kernel_memory, num_ids):
    index = np.random.default_rng(num_ids).integers(0, 1 << 26, num_ids)

    _check(index, 1 << 26, *_partition(kernel_memory, index, 1 << 26))


def test_buckets_are_as_many_as_there_may_be():
    for num_rows in [1, 2, 4096, 4097, 8192, 8193, 10**9, 2**40]:
        num_buckets = -(-num_rows // (1 << bucket_shift(num_rows)))
        assert min(num_rows, MAX_BUCKETS // 2 + 1) <= num_buckets <= MAX_BUCKETS


def test_blocks_are_few():
    assert num_blocks(1) == 1
    assert num_blocks(10**9) == MAX_BLOCKS
