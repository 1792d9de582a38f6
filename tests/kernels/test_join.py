"""Parts whose sizes only the GPU knows come to stand one after another."""

import numpy as np
import pytest

from pyg_direct.kernels.dispatch import launch_shape
from pyg_direct.kernels.join import MAX_ARRAYS, join_part

SIZES = [5, 0, 300, 1]
BOUNDS = [8, 3, 300, 64]


@pytest.mark.parametrize("num_arrays", range(1, MAX_ARRAYS + 1))
@pytest.mark.parametrize("is_level", [False, True])
def test_join_part(kernel_memory, num_arrays, is_level):
    # Of levels, where each begins; of edges, how many each hop has; both behind other numbers.
    first = 2
    numbers = np.cumsum([0, *SIZES]) if is_level else SIZES
    totals = np.array([7, 9, *numbers], np.int64)
    parts = [
        [np.arange(bound) + 1000 * array + 10_000 * part for array in range(MAX_ARRAYS)]
        for part, bound in enumerate(BOUNDS)
    ]
    length = sum(BOUNDS)
    out = np.full((num_arrays, length), -1, np.int64)

    for part, (arrays, bound) in enumerate(zip(parts, BOUNDS, strict=True)):
        with kernel_memory(totals, *arrays, out) as (on_totals, *on_arrays, on_out):
            join_part(
                *launch_shape(bound), on_totals, -1 if is_level else first, first + part, bound,
                *on_arrays, num_arrays, on_out, length,
            )  # fmt: skip

    for array in range(num_arrays):
        expected = [arrays[array][:size] for arrays, size in zip(parts, SIZES, strict=True)]
        assert out[array, : sum(SIZES)].tolist() == np.concatenate(expected).tolist()
        assert (out[array, sum(SIZES) :] == -1).all()


def test_a_part_never_leaves_its_bound(kernel_memory):
    totals, part = np.array([0, 900], np.int64), np.arange(4)
    out = np.full((1, 6), -1, np.int64)

    with kernel_memory(totals, part, out) as (on_totals, on_part, on_out):
        join_part(*launch_shape(4), on_totals, -1, 0, 4, on_part, on_part, on_part, 1, on_out, 6)

    assert out.tolist() == [[0, 1, 2, 3, -1, -1]]
