"""What a full-batch model looks like, and how wide each of its sparse products is.

Shape legend: ``L`` layers, widths ``d_0`` (features) to ``d_L`` (classes). Layers count from 0.
Assumption: features need no gradient, so that A X is computed once and layer 0 has no product; its
output is computed again where it is needed and stored only where it is the last.
"""

from dataclasses import dataclass
from operator import mul
from typing import Literal

Convolution = Literal["gcn", "sage"]
Activation = Literal["relu", "leaky_relu"]


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
    def stored_widths(self) -> tuple[int, ...]:
        """Widths of the layer outputs that are kept: all but layer 0's, unless it is the last."""
        return self.widths[2:] or self.widths[1:]

    @property
    def hidden_width(self) -> int:
        """Width of layer 0's output where it is not stored, 0 where it is."""
        return self.widths[1] if self.num_layers > 1 else 0

    @property
    def widest_output(self) -> int:
        """Width of the widest layer output."""
        return max(self.widths[1:])

    @property
    def largest_weight(self) -> int:
        """Elements of the largest weight; layer 0 counts all of its input's columns."""
        first: int = self.table_width * self.widths[1]
        others: list[int] = list(map(mul, self.widths[1:], self.widths[2:]))
        return max([first, *others])

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

    def adds_input(self, layer: int) -> bool:
        """Tell whether ``layer`` adds its own input, by a weight or as it is, to the product."""
        return self.convolution == "sage" or self.is_residual(layer)

    @property
    def operand_width(self) -> int:
        """Widest operand of a sparse product."""
        widths = [min(self.widths[0], self.stored_widths[0])]
        for layer in range(1, self.num_layers):
            narrow, wide = self.widths[layer], self.widths[layer + 1]
            widths.append(min(narrow, wide))
            widths.append(wide if self.shares_product(layer) else narrow)
        return max(widths)

    @property
    def spare_width(self) -> int:
        """Columns of a buffer for products that may overwrite neither operand nor output.

        None are needed where every layer narrows and adds nothing of its input, as in a plain GCN.
        """
        widths = [0]
        for layer in range(1, self.num_layers):
            narrow, wide = self.widths[layer], self.widths[layer + 1]
            if not self.projects_first(layer):
                widths.append(narrow)
            if self.shares_product(layer) and self.adds_input(layer):
                widths.append(wide)
        return max(widths)

    def slice_width(self, column_block: int | None) -> int:
        """Return how many columns a sparse product takes at a time: all without a block."""
        return min(self.operand_width, column_block or self.operand_width)

    def feature_block(self, slice_width: int) -> int:
        """Return the columns of X that pass through the buffers at a time when A X is computed."""
        return min(self.widths[0], slice_width, max(*self.stored_widths, self.spare_width))
