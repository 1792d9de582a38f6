import itertools

import numpy as np
import pytest
from scipy import stats

from pyg_direct.kernels import reference_sampling as reference
from pyg_direct.kernels import weighted
from pyg_direct.kernels.dispatch import launch_shape
from pyg_direct.kernels.random import batch_key

KEY = batch_key(42, 9)


def _problem(fanout, num_nodes=20, is_replaced=False):
    rng = np.random.default_rng(42)
    degree = rng.integers(0, 50, num_nodes)
    degree[:3] = [0, 1, 80]
    start = np.concatenate([[0], degree.cumsum()[:-1]])
    weight = rng.exponential(size=int(degree.sum())) + 1e-9
    num = np.where(degree > 0, fanout, 0) if is_replaced else np.minimum(degree, fanout)
    ends = num.cumsum()
    column, offset = (np.full(int(ends[-1]), -9, np.int64) for _ in range(2))
    return start, degree, weight, ends, column, offset


@pytest.mark.parametrize("item", range(20))
def test_random_exponential_equals_reference(item):
    assert weighted.random_exponential(KEY, 1, 2, item) == reference.random_exponential(
        KEY, 1, 2, item
    )


def test_random_exponential_is_exponential():
    drawn = [weighted.random_exponential(KEY, 0, 0, item) * 2.0**-48 for item in range(20_000)]

    assert stats.kstest(drawn, "expon").pvalue > 1e-3


@pytest.mark.parametrize("fanout", [1, 3, 33])
def test_draw_earliest_cpu_equals_reference(fanout):
    start, degree, weight, ends, column, offset = _problem(fanout)
    expected = column.copy(), offset.copy()

    weighted.draw_earliest_cpu(ends, 20, start, degree, weight, KEY, 3, column, offset)

    reference.draw_earliest(ends, 20, start, degree, weight, KEY, 3, *expected)
    np.testing.assert_array_equal(column, expected[0])
    np.testing.assert_array_equal(offset, expected[1])


@pytest.mark.parametrize("fanout", [1, 3, 33])
def test_list_and_merge_earliest_equal_reference(fanout, kernel_memory):
    start, degree, weight, ends, column, offset = _problem(fanout)
    expected = column.copy(), offset.copy()
    num_lists = 7 * weighted.NUM_LANES
    times = np.empty(num_lists * fanout)
    items, sizes = np.empty(num_lists * fanout, np.int64), np.empty(num_lists, np.int64)

    arrays = start, degree, weight, ends, np.array([KEY]), column, offset, times, items, sizes
    with kernel_memory(*arrays) as (s, d, w, e, k, c, o, t, i, z):
        for first in range(0, 20, 7):
            last = min(first + 7, 20)
            weighted.list_earliest(
                *launch_shape(num_lists), e, first, last, s, d, w, k, 3, fanout, t, i, z
            )
            weighted.merge_earliest(*launch_shape(7), e, first, last, d, fanout, t, i, z, c, o)

    reference.draw_earliest(ends, 20, start, degree, weight, KEY, 3, *expected)
    np.testing.assert_array_equal(column, expected[0])
    np.testing.assert_array_equal(offset, expected[1])


def test_draw_by_sums_equals_reference(kernel_memory):
    start, degree, weight, ends, column, offset = _problem(6, is_replaced=True)
    expected, on_gpu = [column.copy(), offset.copy()], [column.copy(), offset.copy()]
    colptr = np.concatenate([start, [len(weight)]])
    weight_sum, sums = np.empty_like(weight), np.empty_like(weight)
    num_slots = len(column)

    weighted.sum_weights_cpu(colptr, weight, weight_sum)
    weighted.draw_by_sums_cpu(ends, 20, start, degree, weight_sum, KEY, 3, column, offset)
    with kernel_memory(ends, start, degree, weight_sum, np.array([KEY]), *on_gpu) as arrays:
        e, s, d, w, k, c, o = arrays
        weighted.draw_by_sums(*launch_shape(num_slots), e, 20, num_slots, s, d, w, k, 3, c, o)

    reference.sum_weights(colptr, weight, sums)
    np.testing.assert_array_equal(weight_sum, sums)
    reference.draw_by_sums(ends, 20, start, degree, weight_sum, KEY, 3, *expected)
    for result in ([column, offset], on_gpu):
        np.testing.assert_array_equal(result, expected)


def test_draw_by_sums_follows_the_weights():
    num, weight = 20_000, np.array([1.0, 0.5, 4.0, 2.5])
    ends, zeros = np.arange(1, num + 1), np.zeros(num, np.int64)
    column, offset = np.empty(num, np.int64), np.empty(num, np.int64)

    weighted.draw_by_sums_cpu(ends, num, zeros, zeros + 4, weight.cumsum(), KEY, 0, column, offset)

    counts = np.bincount(offset, minlength=4)
    assert stats.chisquare(counts, num * weight / weight.sum()).pvalue > 1e-3


def test_draw_earliest_follows_the_weights():
    num, weight = 30_000, np.array([1.0, 0.5, 4.0, 2.5])
    ends, zeros = 2 * np.arange(1, num + 1), np.zeros(num, np.int64)
    column, offset = np.empty(2 * num, np.int64), np.empty(2 * num, np.int64)

    weighted.draw_earliest_cpu(ends, num, zeros, zeros + 4, weight, KEY, 0, column, offset)

    # Successive draws in proportion to weight, each without the one before.
    pairs = list(itertools.permutations(range(4), 2))
    share = weight / weight.sum()
    expected = [num * share[a] * share[b] / (1 - share[a]) for a, b in pairs]
    codes = offset.reshape(-1, 2) @ [4, 1]
    counts = [np.sum(codes == 4 * a + b) for a, b in pairs]
    assert stats.chisquare(counts, expected).pvalue > 1e-3
