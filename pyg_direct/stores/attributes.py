"""The key of a tensor in a store: PyG's ``TensorAttr``, made safe for arrays as an index."""

import copy
import dataclasses
from typing import Any

import torch
import torch_geometric.data
from torch import Tensor
from torch_geometric.data.feature_store import _FieldStatus

# PyG's own distributed stores name the edges of a homogeneous graph so.
HOMOGENEOUS_EDGES = (None, None)


@dataclasses.dataclass(eq=False)
class TensorAttr(torch_geometric.data.TensorAttr):  # type: ignore[misc]
    """PyG's attribute, which compares with ``!=`` what may be an array; this one uses ``is``."""

    def is_set(self, key: str) -> bool:  # docstring inherited
        return getattr(self, key) is not _FieldStatus.UNSET

    @classmethod
    def cast(cls, *args: Any, **kwargs: Any) -> Any:
        """Build an attribute from a tuple, a dictionary, arguments, or PyG's own attribute."""
        attr = super().cast(*args, **kwargs)
        if type(attr) is torch_geometric.data.TensorAttr:
            attr = cls(attr.group_name, attr.attr_name, attr.index)
        return attr

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, torch_geometric.data.TensorAttr):
            return NotImplemented
        return all(
            _is_equal(getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
        )

    __hash__ = None  # type: ignore[assignment]


def without_index(attr: Any) -> Any:
    """Return a fresh copy of an attribute, of the same class, whose index is not set."""
    attr = copy.copy(attr)
    attr.index = _FieldStatus.UNSET
    return attr


def _is_equal(left: Any, right: Any) -> bool:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left is right or torch.equal(left, right)
    if hasattr(left, "__array__") or hasattr(right, "__array__"):
        return type(left) is type(right) and bool((left == right).all())
    return bool(left == right)
