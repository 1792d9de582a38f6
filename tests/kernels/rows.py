"""Rows for the tests of kernels that move them."""

import numpy as np


def random_bytes(num_rows, row_bytes, offset=0):
    """Rows of random bytes whose first lies ``offset`` bytes after a line of 128."""
    rng = np.random.default_rng([num_rows, row_bytes, offset])
    memory = rng.integers(0, 256, num_rows * row_bytes + 256, dtype=np.uint8)
    start = -memory.ctypes.data % 128 + offset
    return memory[start : start + num_rows * row_bytes].reshape(num_rows, row_bytes)
