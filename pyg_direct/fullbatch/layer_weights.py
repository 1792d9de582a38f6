"""The parameters of one layer, or their gradients.

Shape legend: a layer takes ``d_in`` columns and gives ``d_out``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_direct.fullbatch.outer_product import wide_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """Parameters of one layer, or their gradients.

    Attributes
    ----------
    neighbor : tensor, shape (d_out, d_in)
        Weight of the aggregated neighbours.
    root : tensor, shape (d_out, d_in), or None
        Weight of the vertex itself, for ``"sage"``.
    bias : tensor, shape (d_out,), or None
    """

    neighbor: Tensor
    root: Tensor | None = None
    bias: Tensor | None = None

    def to(self, dtype: torch.dtype) -> "LayerWeights":
        """Return the values in ``dtype``, detached; no copy where they have it."""
        return LayerWeights(
            neighbor=self.neighbor.detach().to(dtype),
            root=None if self.root is None else self.root.detach().to(dtype),
            bias=None if self.bias is None else self.bias.detach().to(dtype),
        )

    def new_sums(self) -> "LayerWeights":
        """Return zeros of equal shapes in which gradients are added up, of the wide type."""
        wide = wide_dtype(self.neighbor.dtype)
        return LayerWeights(
            neighbor=torch.zeros_like(self.neighbor, dtype=wide),
            root=None if self.root is None else torch.zeros_like(self.root, dtype=wide),
            bias=None if self.bias is None else torch.zeros_like(self.bias, dtype=wide),
        )
