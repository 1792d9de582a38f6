"""Which operations of torch run where, when a unified tensor takes part.

Gathers go to the kernels. What asks about a tensor, views it, converts it or changes it runs on the
CPU. Anything else runs on the GPU if an operand is there, or if no operand but numbers and unified
tensors is on the CPU; else on the CPU (PyTorch-Direct, arXiv 2101.07956).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

GETITEM = frozenset({Tensor.__getitem__})
SETITEM = frozenset({Tensor.__setitem__})
INDEX_SELECT = frozenset({torch.index_select, Tensor.index_select})
EMBEDDING = frozenset({functional.embedding})

# Accessors of attributes, questions, conversions, and what belongs to autograd and to pickling.
ON_HOST = frozenset(
    {
        "__get__", "__set__", "__delete__", "__len__", "__repr__", "__format__", "__array__",
        "__array_wrap__", "__bool__", "__int__", "__float__", "__index__", "__complex__",
        "__iter__", "__hash__", "__dir__", "__dlpack__", "__dlpack_device__", "size", "dim",
        "stride", "numel", "nelement", "ndimension", "element_size", "storage", "untyped_storage",
        "storage_offset", "storage_type", "data_ptr", "is_contiguous", "is_floating_point",
        "is_complex", "is_signed", "is_shared", "is_pinned", "is_coalesced", "get_device", "type",
        "tolist", "item", "numpy", "has_names", "result_type", "requires_grad_", "register_hook",
        "register_post_accumulate_grad_hook", "retain_grad", "backward", "detach", "detach_", "to",
        "cuda", "cpu", "pin_memory", "share_memory_", "as_subclass", "_is_view", "is_same_size",
        "is_set_to", "_typed_storage",
    }
)  # fmt: skip
VIEWS = frozenset(
    {
        "view", "view_as", "reshape", "reshape_as", "t", "transpose", "permute", "narrow", "select",
        "unsqueeze", "squeeze", "expand", "expand_as", "flatten", "unflatten", "unbind", "split",
        "split_with_sizes", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit", "swapaxes",
        "swapdims", "movedim", "moveaxis", "adjoint", "diagonal", "as_strided", "unfold", "real",
        "imag", "view_as_real", "view_as_complex", "ravel", "contiguous", "atleast_1d",
        "atleast_2d", "atleast_3d",
    }
)  # fmt: skip


def has_gpu() -> bool:
    """Return whether this process can use a GPU; a forked worker cannot where its parent does."""
    return torch.cuda.is_available() and not torch.cuda._is_in_bad_fork()


def is_on_host(function: Callable[..., Any]) -> bool:
    """Return whether an operation of torch runs on the CPU wherever its operands are."""
    name = getattr(function, "__name__", "")
    return name in ON_HOST or name in VIEWS


def is_in_place(function: Callable[..., Any]) -> bool:
    """Return whether an operation writes to its first argument."""
    name = getattr(function, "__name__", "")
    is_private = name.startswith("__")
    return (name.endswith("_") and not is_private) or (
        is_private and name.startswith("__i") and name[3:-2] in _OPERATORS
    )


_OPERATORS = frozenset(
    {
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
        "rshift", "matmul", "div",
    }
)  # fmt: skip


def tensors_in(arguments: Any) -> Iterator[Tensor]:
    """Yield every tensor in nested lists, tuples and dictionaries."""
    if isinstance(arguments, Tensor):
        yield arguments
    elif isinstance(arguments, list | tuple):
        for each in arguments:
            yield from tensors_in(each)
    elif isinstance(arguments, dict):
        for each in arguments.values():
            yield from tensors_in(each)


def replace_tensors(arguments: Any, replacement: Callable[[Tensor], Any]) -> Any:
    """Return nested lists, tuples and dictionaries with every tensor replaced."""
    if isinstance(arguments, Tensor):
        return replacement(arguments)
    if isinstance(arguments, tuple) and hasattr(arguments, "_fields"):
        return type(arguments)(*(replace_tensors(each, replacement) for each in arguments))
    if isinstance(arguments, list | tuple):
        return type(arguments)(replace_tensors(each, replacement) for each in arguments)
    if isinstance(arguments, dict):
        return {key: replace_tensors(each, replacement) for key, each in arguments.items()}
    return arguments


def is_basic_index(index: Any) -> bool:
    """Return whether indexing gives a view: ints, slices, None and ``...``, or a tuple of them."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None
        or part is Ellipsis
        or isinstance(part, slice)
        or (isinstance(part, int) and not isinstance(part, bool))
        for part in parts
    )
