"""The product of one tile piece, by torch's library or by a kernel of our own.

Shape legend: ``m`` rows, ``k`` columns of the piece, ``w`` columns of the operand.
"""

import torch
from torch import Tensor

from pyg_direct.fullbatch.engine import KERNEL_TYPES, Engine
from pyg_direct.fullbatch.tiles import TilePiece
from pyg_direct.kernels.launch import Span
from pyg_direct.kernels.multiply import multiply_csr

WIDEST_SLICE = 256


def add_product(
    piece: TilePiece,
    rows: Tensor,
    out: Tensor,
    *,
    engine: Engine,
    column_block: int | None,
    overwrite: bool,
    bias: Tensor | None = None,
) -> None:
    """Set ``out`` to the piece times ``rows``, or add it where ``overwrite`` is false.

    On CUDA the call does not wait; the current stream carries it.

    Parameters
    ----------
    piece : TilePiece
    rows : tensor, shape (k, w) or wider
        Contiguous. Columns beyond w are padding that does not count.
    out : tensor, shape (m, w)
        Row-major; may be some columns of a wider tensor. bfloat16 is accumulated in float32 and
        rounded once a call.
    engine : {"library", "kernel"}
        torch's CSR product (cuSPARSE, MKL), or ``multiply_csr``.
    column_block : int or None
        Columns taken at a time, so that the part of ``rows`` in use fits a GPU's L2 cache.
    overwrite : bool
        Ignore what ``out`` holds.
    bias : tensor, shape (w,), optional
        Added to every row.
    """
    if engine == "kernel":
        _multiply_by_kernel(piece, rows, out, column_block or WIDEST_SLICE, overwrite, bias)
        return
    width = out.size(1)
    block = column_block or width
    for first in range(0, width, block):
        part = slice(first, min(first + block, width))
        _multiply_by_library(piece.matrix, rows[:, part], out[:, part], 0.0 if overwrite else 1.0)
    if bias is not None:
        out.add_(bias)


def _multiply_by_library(matrix: Tensor, rows: Tensor, out: Tensor, beta: float) -> None:
    if out.dtype == torch.bfloat16 and out.device.type == "cpu":
        wide = torch.mm(matrix, rows.float())
        out.copy_(wide if beta == 0.0 else wide.add_(out))
        return
    torch.addmm(out, matrix, rows, beta=beta, out=out)


def _multiply_by_kernel(
    piece: TilePiece,
    rows: Tensor,
    out: Tensor,
    slice_columns: int,
    overwrite: bool,
    bias: Tensor | None,
) -> None:
    matrix = piece.matrix
    stream = torch.cuda.current_stream(out.device).cuda_stream if out.is_cuda else 0
    multiply_csr(
        matrix.crow_indices(),
        matrix.col_indices(),
        matrix.values(),
        piece.long_row,
        rows,
        _span_of_rows(out),
        num_rows=out.size(0),
        num_long_rows=piece.long_row.numel(),
        num_columns=out.size(1),
        number_type=KERNEL_TYPES[out.dtype],
        accumulate=not overwrite,
        bias=bias,
        operand_stride=rows.size(1),
        out_stride=out.stride(0),
        slice_columns=slice_columns,
        stream=stream,
    )


def _span_of_rows(rows: Tensor) -> Span:
    num_elements = (rows.size(0) - 1) * rows.stride(0) + rows.size(1) if rows.numel() else 0
    return Span(rows.data_ptr(), num_elements * rows.element_size())
