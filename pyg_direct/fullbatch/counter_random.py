"""Random numbers that depend on a counter alone, so that they are the same for every P.

Shape legend: ``m`` rows of this rank, ``F`` features.
The mixing is splitmix64 (Steele, Lea, Flood 2014, OOPSLA, section 5), on int64 tensors whose
products wrap around.
"""

import torch
from torch import Tensor

# The odd constants of splitmix64, as the signed numbers that int64 holds.
GOLDEN = -7046029254386353131
FIRST_FACTOR = -4658895280553007687
SECOND_FACTOR = -7723592293110705685
RANDOM_BITS = 24
CHUNK_ELEMENTS = 1 << 20


def mix64_in_place(x: Tensor) -> Tensor:
    """Scatter the bits of ``x`` (int64, any shape, any device) in place; return ``x``."""
    for shift, factor in ((30, FIRST_FACTOR), (27, SECOND_FACTOR), (31, 1)):
        # The shift of int64 drags the sign along; the mask makes it a logical one.
        x ^= (x >> shift) & ((1 << (64 - shift)) - 1)
        x *= factor
    return x


def stream_key(*counters: int) -> int:
    """Return one signed 64-bit key of several counters, e.g. (seed, step, layer)."""
    key = torch.zeros(1, dtype=torch.int64)
    for counter in counters:
        key += GOLDEN
        key ^= counter
        mix64_in_place(key)
    return int(key)


def drop_in_place(rows: Tensor, node: Tensor, *, probability: float, key: int) -> None:
    """Set each element to zero with ``probability`` and scale the others by 1 / (1 - probability).

    Parameters
    ----------
    rows : float tensor, shape (m, F)
        Overwritten.
    node : int64 tensor, shape (m,)
        Number of each row's vertex in the whole graph; on the device of ``rows``.
    probability : float
        In ``[0, 1)``.
    key : int
        From ``stream_key``. Equal keys drop equal elements of a vertex, on every device.
    """
    num_features = rows.size(1)
    column = torch.arange(num_features, device=rows.device) * GOLDEN
    threshold = round(probability * (1 << RANDOM_BITS))
    scale = 1.0 / (1.0 - probability)
    chunk_rows = max(1, CHUNK_ELEMENTS // max(1, num_features))
    for start in range(0, rows.size(0), chunk_rows):
        part = rows[start : start + chunk_rows]
        row_key = mix64_in_place(node[start : start + chunk_rows] * GOLDEN + key)
        bits = mix64_in_place(row_key[:, None] + column)
        bits >>= 64 - RANDOM_BITS
        bits &= (1 << RANDOM_BITS) - 1
        part.mul_(bits >= threshold).mul_(scale)


def drop_bytes(num_rows: int, num_features: int) -> int:
    """Return the bytes that ``drop_in_place`` holds at its peak beside its arguments."""
    chunk = min(CHUNK_ELEMENTS, num_rows * num_features)
    # Bits, their shifted copy, its mask: three int64 arrays.
    return 3 * 8 * chunk
