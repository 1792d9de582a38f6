"""What a full-batch model looks like, and how wide each of its sparse products is.

Shape legend: ``L`` layers, widths ``d_0`` (features) to ``d_L`` (classes). Layers count from 0.
Assumption: features need no gradient, so that A X is computed once and layer 0 has no product.
"""

from dataclasses import dataclass
from typing import Literal

Convolution = Literal["gcn", "sage"]
Activation = Literal["relu", "leaky_relu"]
# Columns of the shared product that the features pass through at least, when A X is computed.
MIN_FEATURE_BLOCK = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The layers of a GCN or a mean-aggregating GraphSAGE.

    Attributes
    ----------
    widths : tuple of int, length L + 1
    convolution : {"gcn", "sage"}
        ``"sage"`` adds a second weight for the vertex itself.
    activation : {"relu", "leaky_relu"}
        Between layers, not after the last.
    negative_slope : float
        Of leaky ReLU.
    dropout : float
        Probability, after each activation.
    residual : bool
        Add a layer's input to its output before the activation, where both are equally wide.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    widths: tuple[int, ...]
    convolution: Convolution = "gcn"
    activation: Activation = "relu"
    negative_slope: float = 0.01
    dropout: float = 0.0
    residual: bool = False

    def __post_init__(self) -> None:
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise ValueError(f"widths = {self.widths}, expected two or more positive numbers")
        if self.convolution not in ("gcn", "sage"):
            raise ValueError(f"convolution = {self.convolution!r}, expected 'gcn' or 'sage'")
        if self.activation not in ("relu", "leaky_relu"):
            raise ValueError(f"activation = {self.activation!r}, expected 'relu' or 'leaky_relu'")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout = {self.dropout}, expected 0 <= dropout < 1")
        if self.negative_slope < 0.0:
            raise ValueError(f"negative_slope = {self.negative_slope}, expected 0 or more")

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.widths) - 1

    @property
    def table_width(self) -> int:
        """Columns of layer 0's input: A X, and for ``"sage"`` X beside it."""
        return self.widths[0] * (2 if self.convolution == "sage" else 1)

    @property
    def hidden_width(self) -> int:
        """Width of the widest layer output but the last, 0 for one layer."""
        return max(self.widths[1:-1], default=0)

    def projects_first(self, layer: int) -> bool:
        """Tell whether ``A (H W)`` is no wider than ``(A H) W``."""
        return self.widths[layer + 1] <= self.widths[layer]

    def shares_product(self, layer: int) -> bool:
        """Tell whether one product of the gradient serves both dW and dH.

        ``dW = (A' G)' H`` and ``dH = (A' G) W`` share a product as wide as the output. The other
        way costs two products as wide as the input: ``A H`` again, and ``A' (G W)``.
        """
        return self.widths[layer + 1] <= 2 * self.widths[layer]

    def is_residual(self, layer: int) -> bool:
        """Tell whether ``layer`` adds its input to its output."""
        return self.residual and layer > 0 and self.widths[layer] == self.widths[layer + 1]

    @property
    def operand_width(self) -> int:
        """Widest operand of a sparse product, and so of a broadcast."""
        widths = [self.feature_block]
        for layer in range(1, self.num_layers):
            narrow, wide = self.widths[layer], self.widths[layer + 1]
            widths.append(min(narrow, wide))
            widths.append(wide if self.shares_product(layer) else narrow)
        return max(widths)

    @property
    def shared_width(self) -> int:
        """Columns of the one shared product buffer."""
        widths = [min(self.widths[0], self.widths[1], MIN_FEATURE_BLOCK)]
        for layer in range(1, self.num_layers):
            narrow, wide = self.widths[layer], self.widths[layer + 1]
            widths.append(min(narrow, wide))
            widths.append(wide if self.shares_product(layer) else 2 * narrow)
        return max(widths)

    @property
    def feature_block(self) -> int:
        """Columns of X that pass through the buffers at a time when A X is computed."""
        return min(self.widths[0], self.widths[1], self.shared_width)
