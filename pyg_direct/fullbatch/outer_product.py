"""The gradient of a weight: a product over very many rows with a small result.

Shape legend: ``m`` rows, ``a`` and ``b`` columns.
"""

import torch
from torch import Tensor

# A result of 256 x 256 alone is too few blocks for a GPU: the rows are shared out over this many
# pieces, so that the multiprocessors of a large one hold two blocks each.
NUM_PIECES = 64
MIN_PIECE_ROWS = 512


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which sums are kept: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def scratch_elements(num_rows: int, result_elements: int) -> int:
    """Return the size of the scratch that ``outer_product`` makes use of."""
    return min(NUM_PIECES, num_rows // MIN_PIECE_ROWS) * result_elements


def outer_product(left: Tensor, right: Tensor, scratch: Tensor) -> Tensor:
    """Return ``left.T @ right``.

    Parameters
    ----------
    left : tensor, shape (m, a)
        Contiguous.
    right : tensor, shape (m, b)
        Contiguous, of the same type.
    scratch : tensor, one-dimensional
        Of the same type; overwritten. The rows are multiplied in pieces side by side, as many as
        there are ``a * b`` elements here and ``MIN_PIECE_ROWS`` rows, at most ``NUM_PIECES``.

    Returns
    -------
    Tensor
        shape (a, b), of the wide type: pieces are added up in it.
    """
    wide, size = wide_dtype(left.dtype), left.size(1) * right.size(1)
    num_pieces = min(NUM_PIECES, left.size(0) // MIN_PIECE_ROWS, scratch.numel() // max(1, size))
    if num_pieces < 2:
        return torch.mm(left.t(), right).to(wide)
    piece_rows = left.size(0) // num_pieces
    whole = piece_rows * num_pieces
    pieces = scratch[: num_pieces * size].view(num_pieces, left.size(1), right.size(1))
    torch.bmm(
        left[:whole].view(num_pieces, piece_rows, -1).transpose(1, 2),
        right[:whole].view(num_pieces, piece_rows, -1),
        out=pieces,
    )
    total = pieces.sum(dim=0, dtype=wide)
    if whole < left.size(0):
        total += torch.mm(left[whole:].t(), right[whole:])
    return total
