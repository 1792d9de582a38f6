"""Gradients of what a GPU read from host memory: they come back to where the memory is.

Shape legend: ``R`` rows of a tensor, ``N`` requested rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pyg_direct.tables import Request, Table


class GatherRows(torch.autograd.Function):
    """Rows of a table; the gradient is dense, or sparse as ``torch.nn.Embedding`` has it."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, table: Table, ids: Tensor, is_sparse: bool, padding_id: int | None
    ) -> Tensor:
        """Return ``table[ids]``, shape (N, ...).

        Parameters
        ----------
        ctx : torch.autograd.function.FunctionCtx
            Of autograd.
        x : tensor, shape (R, ...)
            What the table stands on, and gets the gradient; on the CPU.
        table : Table
            Where the rows are read.
        ids : int32 or int64 tensor, shape (N,)
            Nonnegative, on any device.
        is_sparse : bool
            Whether the gradient is a sparse tensor.
        padding_id : int or None
            A row that gets no gradient.
        """
        ctx.save_for_backward(ids)
        ctx.shape, ctx.is_sparse, ctx.padding_id = x.shape, is_sparse, padding_id
        return table.gather(Request(ids))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Return the gradient of ``x``, on the CPU; waits for the GPU."""
        (ids,) = ctx.saved_tensors
        ids, gradient = ids.to("cpu", torch.int64), gradients[0].cpu()
        if ctx.padding_id is not None:
            kept = (ids != ctx.padding_id).nonzero().view(-1)
            ids, gradient = ids[kept], gradient[kept]
        if ctx.is_sparse:
            # Ids were checked when the rows were read.
            with torch.sparse.check_sparse_tensor_invariants(False):
                rows = torch.sparse_coo_tensor(ids[None], gradient, ctx.shape)
        else:
            rows = gradient.new_zeros(ctx.shape).index_add_(0, ids, gradient)
        return rows, None, None, None, None


class ReadInPlace(torch.autograd.Function):
    """An alias of host memory on a GPU, whose gradient is copied back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alias: Tensor) -> Tensor:
        """Return ``alias``, a CUDA tensor over the memory of ``x``."""
        return alias.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Return the gradient of ``x``, on the CPU; waits for the GPU."""
        return gradients[0].cpu(), None
