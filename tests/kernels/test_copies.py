"""Copies of several arrays by one launch."""

import numpy as np
import pytest

from pyg_direct.kernels.copies import MAX_PARTS, Copies
from pyg_direct.kernels.launch import span_of


@pytest.mark.parametrize(
    "sizes", [[], [0], [3], [1, 0, 700, 5], range(MAX_PARTS), range(2 * MAX_PARTS + 1)], ids=str
)
def test_copies(kernel_memory, sizes):
    sources = [np.arange(size + 1) + 1000 * place for place, size in enumerate(sizes)]
    targets = [np.full(size + 1, -1, np.int64) for size in sizes]
    copies = Copies()

    with kernel_memory(*sources, *targets) as arrays:
        addresses = [span_of(array).address for array in arrays]
        for place, size in enumerate(sizes):
            copies.add(addresses[place], addresses[len(sizes) + place], size)
        copies.launch(0)

    for size, source, target in zip(sizes, sources, targets, strict=True):
        assert target.tolist() == [*source[:size].tolist(), -1]


def test_copies_are_made_once(kernel_memory):
    source, target, copies = np.arange(4), np.zeros(4, np.int64), Copies()

    with kernel_memory(source, target) as arrays:
        copies.add(*(span_of(array).address for array in arrays), 4)
        copies.launch(0)
    source += 1
    copies.launch(0)

    assert target.tolist() == [0, 1, 2, 3]
