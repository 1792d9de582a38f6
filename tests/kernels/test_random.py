import numpy as np
import pytest
from scipy import stats

from pyg_direct.kernels import random, reference_sampling
from pyg_direct.kernels.random import batch_key, philox, random_fraction, random_index

# From the known-answer file of the Random123 library (philox 4x32 10).
KNOWN_ANSWERS = [
    ([0] * 6, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ([0xFFFFFFFF] * 6, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0],
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("words", "expected"), KNOWN_ANSWERS, ids=["zeros", "ones", "pi"])
@pytest.mark.parametrize("version", [philox, philox.py_func], ids=["compiled", "numpy"])
def test_philox_gives_known_answers(version, words, expected):
    result = version(*(np.uint64(word) for word in words))

    assert " ".join(f"{int(word):08x}" for word in result) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 1000, 2**31 + 7, 2**32 - 1])
def test_random_index_equals_reference(size):
    key = batch_key(3, 4)

    drawn = [random_index(key, 2, 5, draw, size) for draw in range(100)]

    expected = reference_sampling.random_index(key, 2, 5, np.arange(100), size)
    np.testing.assert_array_equal(drawn, expected)
    assert 0 <= min(drawn) <= max(drawn) < size


def test_random_index_is_uniform():
    key = batch_key(42, 0)

    drawn = reference_sampling.random_index(key, 0, 0, np.arange(70_000), 7)

    assert stats.chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-3


def test_random_fraction_is_uniform():
    key = batch_key(42, 1)

    drawn = [random_fraction(key, 0, node, draw) for node in range(100) for draw in range(50)]

    assert stats.kstest(drawn, "uniform").pvalue > 1e-3


def test_batch_key_differs_by_each_part():
    parts = [(1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 0), (1 + 2**40, 2, 3), (1, 2, 3 + 2**40)]

    keys = [batch_key(*each) for each in parts]

    assert len(set(keys)) == len(parts)
    assert all(0 <= key < 2**63 for key in keys)


def test_scale_words_covers_the_range():
    ones = np.uint64(0xFFFFFFFF)

    assert random.scale_words(ones, ones, np.uint64(10)) == 9
    assert random.scale_words(np.uint64(0), np.uint64(0), np.uint64(10)) == 0


@pytest.mark.parametrize("batch", [-1, 2**63])
def test_batch_key_rejects_a_wrong_number(batch):
    with pytest.raises(ValueError, match=f"batch is {batch}"):
        batch_key(0, batch)
