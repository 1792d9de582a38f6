"""C = A B a slice of columns at a time, so that C may overwrite B.

Shape legend: ``m`` rows of this rank, ``w`` columns of B, ``s`` columns of a slice.
A slice of B is copied, which takes 2 m s reads and writes, and the product of the copy overwrites
that slice of C. The copy is what is broadcast, and its rows lie close together: a slice that fits
L2 takes no more of it than its size.
"""

import torch
from torch import Tensor

from pyg_direct.fullbatch.engine import padded_width
from pyg_direct.fullbatch.memory import region
from pyg_direct.fullbatch.staged_product import StagedProduct
from pyg_direct.fullbatch.tiles import Tile

# torch copies rows that lie apart an element at a time: words of 16 bytes, the widest a thread of a
# GPU moves, are four to eight times fewer.
WIDEST_TYPE = torch.complex128


def multiply_slices(
    product: StagedProduct,
    tiles: tuple[Tile, ...],
    operand: Tensor,
    out: Tensor,
    *,
    staging: Tensor,
    slice_width: int,
    accumulate: bool = False,
    bias: Tensor | None = None,
) -> None:
    """Write A B to ``out``, or add it where ``accumulate`` is true; every rank must call.

    On CUDA the call returns at once; the current stream carries the result.

    Parameters
    ----------
    product : StagedProduct
    tiles : tuple of Tile, length P
        Block row of A.
    operand : tensor, shape (m, w)
        This rank's rows of B. Not copied where it is ``staged_operand`` of ``staging``.
    out : tensor, shape (m, w)
        May be ``operand`` itself, unless ``accumulate``.
    staging : tensor, shape (m * padded_width(s),)
        Overwritten.
    slice_width : int
        s, equal on all ranks.
    accumulate : bool
    bias : tensor, shape (w,), optional
        Added to every row.
    """
    num_rows, width = operand.shape
    for first in range(0, width, slice_width):
        part = slice(first, min(first + slice_width, width))
        columns = _padded_region(staging, num_rows, part.stop - first)
        if columns.data_ptr() != operand.data_ptr():
            _copy_rows(operand[:, part], columns[:, : part.stop - first])
        added = None if bias is None else bias[part]
        product.multiply(tiles, columns, out[:, part], accumulate=accumulate, bias=added)


def staged_operand(staging: Tensor, num_rows: int, width: int) -> Tensor:
    """Return a (num_rows, width) view of the start of ``staging``, its rows padded.

    An operand of one slice that is built there needs no copy.
    """
    return _padded_region(staging, num_rows, width)[:, :width]


def _padded_region(staging: Tensor, num_rows: int, width: int) -> Tensor:
    return region(staging, num_rows, padded_width(width, staging.element_size()))


def _copy_rows(source: Tensor, out: Tensor) -> None:
    """Copy ``source`` to ``out``, in words of 16 bytes where both consist of them."""
    if all(_is_aligned(rows) for rows in (source, out)):
        source, out = source.view(WIDEST_TYPE), out.view(WIDEST_TYPE)
    out.copy_(source)


def _is_aligned(rows: Tensor) -> bool:
    sizes = (rows.size(1), rows.stride(0), rows.storage_offset())
    return all(size * rows.element_size() % WIDEST_TYPE.itemsize == 0 for size in sizes)
