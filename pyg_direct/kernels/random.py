"""Counter-based random numbers: the same on the CPU, on the GPU and in NumPy.

Philox4x32 with ten rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2,
3", 2011). A number depends on a key and on where it is used, never on who computes it or when. A
uniform integer is a 64-bit product of which the high half is kept (Lemire, 2019), in two steps of
32 bits.

Words are 32-bit values in uint64, so that no product overflows, in any of the three languages.
"""

import numpy as np
from numba import njit

NUM_ROUNDS = 10
WORD_MASK = np.uint64(0xFFFFFFFF)
WORD_BITS = np.uint64(32)
MULTIPLIER_0 = np.uint64(0xD2511F53)
MULTIPLIER_1 = np.uint64(0xCD9E8D57)
WEYL_0 = np.uint64(0x9E3779B9)
WEYL_1 = np.uint64(0xBB67AE85)
FRACTION_SHIFT = np.uint64(11)
FRACTION_UNIT = 2.0**-53


@njit(cache=True)
def philox(word_0, word_1, word_2, word_3, key_0, key_1):
    """Return four random words for a counter of four words and a key of two.

    Parameters
    ----------
    word_0, word_1, word_2, word_3, key_0, key_1 : uint64, or uint64 arrays of one shape
        Each below ``2**32``.
    """
    for _ in range(NUM_ROUNDS):
        product_0 = MULTIPLIER_0 * word_0
        product_1 = MULTIPLIER_1 * word_2
        word_0 = (product_1 >> WORD_BITS) ^ word_1 ^ key_0
        word_2 = (product_0 >> WORD_BITS) ^ word_3 ^ key_1
        word_1 = product_1 & WORD_MASK
        word_3 = product_0 & WORD_MASK
        key_0 = (key_0 + WEYL_0) & WORD_MASK
        key_1 = (key_1 + WEYL_1) & WORD_MASK
    return word_0, word_1, word_2, word_3


@njit(cache=True)
def scale_words(high, low, size):
    """Map 64 random bits to an integer in ``[0, size)``.

    Parameters
    ----------
    high, low : uint64, or uint64 arrays
        Random words.
    size : uint64, or uint64 array
        More than 0 and below ``2**32``: the bias is below ``size / 2**64``.
    """
    return (high * size + ((low * size) >> WORD_BITS)) >> WORD_BITS


@njit(cache=True)
def random_words(key, stream, position, draw, turn):
    """Return the four words of one use: draw ``draw`` of node ``position`` in a stream of a key.

    Parameters
    ----------
    key : int64
        Not negative.
    stream, position, draw, turn : int64
        Each in ``[0, 2**32)``.
    """
    return philox(
        np.uint64(position),
        np.uint64(draw),
        np.uint64(stream),
        np.uint64(turn),
        np.uint64(key) & WORD_MASK,
        np.uint64(key) >> WORD_BITS,
    )


@njit(cache=True)
def random_index(key, stream, position, draw, size):
    """Return a uniform int64 in ``[0, size)``; arguments as those of ``random_words``."""
    high, low, _, _ = random_words(key, stream, position, draw, 0)
    return np.int64(scale_words(high, low, np.uint64(size)))


@njit(cache=True)
def random_fraction(key, stream, position, draw):
    """Return a uniform float64 in ``[0, 1)``, a multiple of ``2**-53``."""
    high, low, _, _ = random_words(key, stream, position, draw, 0)
    return np.float64(np.int64(((high << WORD_BITS) | low) >> FRACTION_SHIFT)) * FRACTION_UNIT


def batch_key(seed: int, batch: int, source: int = 0) -> int:
    """Return the key of all random numbers of one batch.

    Parameters
    ----------
    seed : int
        In ``[0, 2**63)``.
    batch : int
        Batch number, in ``[0, 2**63)``.
    source : int
        Who numbers the batches, in ``[0, 2**64)``: 0 for the user and the main process, else the
        seed of a worker.

    Returns
    -------
    int
        In ``[0, 2**63)``.

    Raises
    ------
    ValueError
        If ``batch`` is not in its range.
    """
    if not 0 <= batch < 1 << 63:
        raise ValueError(f"batch is {batch}, expected a number in [0, 2**63)")
    low, high = _mix(np.uint64(seed), np.uint64(batch), np.uint64(source))
    return int(low) | (int(high) & 0x7FFFFFFF) << 32


def batch_keys(seed: int, first: int, num_batches: int) -> np.ndarray:
    """Return ``batch_key(seed, batch)`` of consecutive batches from ``first`` on, int64."""
    keys = np.empty(num_batches, np.int64)
    _mix_all(np.uint64(seed), np.uint64(first), keys)
    return keys


@njit(cache=True, nogil=True)
def _mix_all(seed, first, keys):
    for place in range(len(keys)):
        low, high = _mix(seed, first + np.uint64(place), np.uint64(0))
        keys[place] = np.int64(low | (high & np.uint64(0x7FFFFFFF)) << np.uint64(32))


@njit(cache=True)
def _mix(seed, batch, source):
    """Return two random words of three numbers, uint64 each."""
    low, high, _, _ = philox(
        batch & WORD_MASK,
        batch >> WORD_BITS,
        source & WORD_MASK,
        source >> WORD_BITS,
        seed & WORD_MASK,
        seed >> WORD_BITS,
    )
    return low, high
