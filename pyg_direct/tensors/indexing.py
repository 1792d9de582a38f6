"""Tell which calls of torch ask a unified tensor for whole rows, and for which.

Shape legend: ``R`` rows of a tensor, ``N`` requested rows.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pyg_direct.tensors import operations

_EMBEDDING = inspect.signature(functional.embedding)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWanted:
    """A gather in torch's words.

    Attributes
    ----------
    x : unified tensor, shape (R, ...)
        Contiguous.
    ids : int32 or int64 tensor, any shape
        Not counted from the end.
    is_sparse : bool
        Whether a gradient is to be sparse.
    padding_id : int or None
        A row that gets no gradient.
    """

    x: Tensor
    ids: Tensor
    is_sparse: bool = False
    padding_id: int | None = None


def gather_arguments(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> RowsWanted | None:
    """Return what a call gathers; None if it is no gather of whole rows of a unified tensor.

    Raises
    ------
    ValueError
        If an embedding asks for what changes its weight, or scales its gradient.
    """
    if func in operations.GETITEM:
        x, index = args
        ids = row_ids(x, plain(index)) if isinstance(index, Tensor) else None
        return None if ids is None else RowsWanted(x=x, ids=ids)
    if func in operations.INDEX_SELECT and "out" not in kwargs:
        x, dim, index = (*args, *(kwargs[key] for key in ("input", "dim", "index")[len(args) :]))
        if _has_rows(x) and dim in (0, -x.dim()):
            return RowsWanted(x=x, ids=plain(index).reshape(-1))
    if func in operations.EMBEDDING:
        return _embedding_arguments(args, kwargs)
    return None


def _embedding_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> RowsWanted | None:
    bound = _EMBEDDING.bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    x, padding_id = given["weight"], given["padding_idx"]
    if not _has_rows(x):
        return None
    if given["max_norm"] is not None or given["scale_grad_by_freq"]:
        raise ValueError(
            f"max_norm is {given['max_norm']} and scale_grad_by_freq "
            f"{given['scale_grad_by_freq']}, expected neither for a unified weight; use "
            "weight.cpu()"
        )
    if padding_id is not None and padding_id < 0:
        padding_id += x.shape[0]
    return RowsWanted(
        x=x, ids=plain(given["input"]), is_sparse=given["sparse"], padding_id=padding_id
    )


def row_ids(x: Any, index: Tensor) -> Tensor | None:
    """Return what ``x[index]`` names as ids from 0, or None if it names no whole rows.

    Parameters
    ----------
    x : Any
        Rows may be gathered only of a contiguous unified tensor.
    index : tensor
        Integers, from the end where negative, of any shape; or a mask over the rows.
    """
    if not _has_rows(x):
        return None
    if index.dtype == torch.bool:
        return index.nonzero().view(-1) if index.shape == x.shape[:1] else None
    if index.dtype == torch.uint8 or index.is_floating_point() or index.is_complex():
        return None
    index = index.long()
    return torch.where(index < 0, index + x.shape[0], index)


def plain(tensor: Tensor) -> Tensor:
    """Return a tensor of torch's own class on the same memory."""
    return tensor if type(tensor) is Tensor else tensor.as_subclass(Tensor)


def _has_rows(x: Any) -> bool:
    return getattr(x, "is_unified", False) and x.dim() > 0 and x.is_contiguous()
