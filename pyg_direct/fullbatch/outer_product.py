"""The gradient of a weight: a product over very many rows with a small result.

Shape legend: ``m`` rows, ``a`` and ``b`` columns.
"""

import torch
from torch import Tensor

# A result of 256 x 256 alone is too few blocks for a GPU: the rows are shared out over this many.
NUM_PIECES = 64
MIN_PIECE_ROWS = 1024


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which sums are kept: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def outer_product(left: Tensor, right: Tensor, scratch: Tensor) -> Tensor:
    """Return ``left.T @ right``.

    Parameters
    ----------
    left : tensor, shape (m, a)
        Contiguous.
    right : tensor, shape (m, b)
        Contiguous, of the same type.
    scratch : tensor, one-dimensional
        Of the same type; overwritten. Where it holds ``NUM_PIECES * a * b`` elements and there are
        rows enough, the rows are multiplied in pieces side by side.

    Returns
    -------
    Tensor
        shape (a, b), of the wide type: pieces are added up in it.
    """
    wide = wide_dtype(left.dtype)
    piece_rows = left.size(0) // NUM_PIECES
    shape = (NUM_PIECES, left.size(1), right.size(1))
    if piece_rows < MIN_PIECE_ROWS or scratch.numel() < shape[0] * shape[1] * shape[2]:
        return torch.mm(left.t(), right).to(wide)
    whole = piece_rows * NUM_PIECES
    pieces = scratch[: shape[0] * shape[1] * shape[2]].view(shape)
    torch.bmm(
        left[:whole].view(NUM_PIECES, piece_rows, -1).transpose(1, 2),
        right[:whole].view(NUM_PIECES, piece_rows, -1),
        out=pieces,
    )
    total = pieces.sum(dim=0, dtype=wide)
    if whole < left.size(0):
        total += torch.mm(left[whole:].t(), right[whole:])
    return total
