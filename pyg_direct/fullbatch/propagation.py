"""Forward and backward of all layers by hand, in buffers that are allocated once.

Shape legend: ``m`` rows of this rank, ``L`` layers, widths ``d_0`` to ``d_L``; layers from 0.
``H_l`` is the input of layer l, ``G`` the gradient of its output, ``A'`` is A transposed.
Assumption: one backward follows each forward, because gradients overwrite the layer outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_direct.fullbatch.adjacency import Adjacency
from pyg_direct.fullbatch.architecture import Architecture
from pyg_direct.fullbatch.counter_random import drop_in_place, stream_key
from pyg_direct.fullbatch.input_rows import ResidentRows, StreamedRows
from pyg_direct.fullbatch.memory import Buffers, region
from pyg_direct.fullbatch.outer_product import outer_product, wide_dtype
from pyg_direct.fullbatch.staged_product import StagedProduct


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


class Propagation:
    """All layers on one rank. Every rank must make the same calls.

    Parameters
    ----------
    architecture : Architecture
    adjacency : Adjacency
    product : StagedProduct
    inputs : ResidentRows or StreamedRows
        Holds X in its last d_0 columns until ``aggregate_features``. Borrowed.
    buffers : Buffers
        Borrowed.
    node : int64 tensor, shape (m,), or None
        Vertex of each row in the whole graph; needed for dropout only.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        adjacency: Adjacency,
        product: StagedProduct,
        inputs: ResidentRows | StreamedRows,
        buffers: Buffers,
        node: Tensor | None = None,
    ) -> None:
        if architecture.dropout and node is None:
            raise ValueError("node is None, expected the vertex of each row for dropout > 0")
        self.architecture = architecture
        self.adjacency = adjacency
        self.product = product
        self.inputs = inputs
        self.buffers = buffers
        self.node = node
        self.num_rows = buffers.outputs[0].size(0)
        # Counts the passes, so that a backward can tell whether the buffers are still its own.
        self.ticket = 0

    @property
    def logits(self) -> Tensor:
        """The buffer of the last layer's output, shape (m, d_L)."""
        return self.buffers.outputs[-1]

    def close(self) -> None:
        """Free input and buffers; harmless twice. No other call may follow."""
        self.inputs.close()
        self.product.close()
        self.buffers.close()

    def aggregate_features(self) -> None:
        """Replace the first d_0 columns of the input by A X, a block of columns at a time."""
        num_features, block = self.architecture.widths[0], self.architecture.feature_block
        first = self.architecture.table_width - num_features
        for column in range(0, num_features, block):
            width = min(block, num_features - column)
            operand = region(self.buffers.shared, self.num_rows, width)
            out = region(self.buffers.outputs[0].view(-1), self.num_rows, width)
            self.inputs.read(first + column, operand)
            self.product.multiply(self.adjacency.tiles, operand, out)
            self.inputs.write(0, column, out)

    def forward(self, weights: Sequence[LayerWeights], dropout_key: int | None = None) -> Tensor:
        """Compute the logits.

        Parameters
        ----------
        weights : sequence of LayerWeights, length L
            In the type and on the device of the buffers.
        dropout_key : int, optional
            Key of this step's dropout; no dropout without it.

        Returns
        -------
        Tensor
            shape (m, d_L): the buffer itself, overwritten by ``backward``.
        """
        self.ticket += 1
        for layer, weight in enumerate(weights):
            out = self.buffers.outputs[layer]
            if layer == 0:
                self._multiply_inputs(weight, out)
            else:
                self._convolve(layer, weight, self.buffers.outputs[layer - 1], out)
            if weight.bias is not None:
                out.add_(weight.bias)
            if layer + 1 < len(weights):
                self._activate(layer, out, dropout_key)
        return self.logits

    def _multiply_inputs(self, weight: LayerWeights, out: Tensor) -> None:
        parts = [weight.neighbor] if weight.root is None else [weight.neighbor, weight.root]
        matrix = torch.cat(parts, dim=1).t()
        for start, rows in self.inputs.pieces():
            torch.mm(rows, matrix, out=out[start : start + rows.size(0)])

    def _convolve(self, layer: int, weight: LayerWeights, rows: Tensor, out: Tensor) -> None:
        tiles = self.adjacency.tiles
        if self.architecture.projects_first(layer):
            operand = region(self.buffers.shared, self.num_rows, out.size(1))
            torch.mm(rows, weight.neighbor.t(), out=operand)
            self.product.multiply(tiles, operand, out)
        else:
            aggregated = region(self.buffers.shared, self.num_rows, rows.size(1))
            self.product.multiply(tiles, rows, aggregated)
            torch.mm(aggregated, weight.neighbor.t(), out=out)
        if weight.root is not None:
            out.addmm_(rows, weight.root.t())
        if self.architecture.is_residual(layer):
            out.add_(rows)

    def _activate(self, layer: int, out: Tensor, dropout_key: int | None) -> None:
        if self.architecture.activation == "relu":
            out.relu_()
        else:
            torch.nn.functional.leaky_relu_(out, self.architecture.negative_slope)
        if dropout_key is not None:
            self._drop(layer, out, dropout_key)

    def _drop(self, layer: int, rows: Tensor, key: int, first_row: int = 0) -> None:
        if self.architecture.dropout and self.node is not None:
            node = self.node[first_row : first_row + rows.size(0)]
            probability = self.architecture.dropout
            drop_in_place(rows, node, probability=probability, key=stream_key(key, layer))

    def backward(
        self, weights: Sequence[LayerWeights], dropout_key: int | None = None
    ) -> list[LayerWeights]:
        """Turn the gradient in the buffer of the logits into the gradients of the weights.

        Parameters
        ----------
        weights, dropout_key
            Those of the ``forward`` before, which must be the last one.

        Returns
        -------
        list of LayerWeights, length L
            float32 (float64 in float64 buffers): this rank's share, to be summed over the ranks.
        """
        self.ticket += 1
        gradients: list[LayerWeights] = []
        for layer in range(len(weights) - 1, 0, -1):
            gradients.append(self._backward_layer(layer, weights[layer], dropout_key))
        gradients.append(self._backward_inputs(weights[0]))
        return gradients[::-1]

    def _backward_inputs(self, weight: LayerWeights) -> LayerWeights:
        gradient = self.buffers.outputs[0]
        total = torch.zeros(
            gradient.size(1),
            self.architecture.table_width,
            device=gradient.device,
            dtype=wide_dtype(gradient.dtype),
        )
        for start, rows in self.inputs.pieces():
            part = gradient[start : start + rows.size(0)]
            total += outer_product(part, rows, self.buffers.chunk)
        num_features = self.architecture.widths[0]
        return LayerWeights(
            neighbor=total[:, :num_features],
            root=None if weight.root is None else total[:, num_features:],
            bias=_column_sum(weight.bias, gradient),
        )

    def _backward_layer(
        self, layer: int, weight: LayerWeights, dropout_key: int | None
    ) -> LayerWeights:
        gradient, rows = self.buffers.outputs[layer], self.buffers.outputs[layer - 1]
        root = None if weight.root is None else outer_product(gradient, rows, self.buffers.chunk)
        bias = _column_sum(weight.bias, gradient)
        if self.architecture.shares_product(layer):
            aggregated = region(self.buffers.shared, self.num_rows, gradient.size(1))
            self.product.multiply(self.adjacency.transposed, gradient, aggregated)
            neighbor = outer_product(aggregated, rows, self.buffers.chunk)
            self._gradient_of_rows(layer, weight, aggregated, dropout_key)
        else:
            neighbor = self._backward_narrow(layer, weight, dropout_key)
        return LayerWeights(neighbor=neighbor, root=root, bias=bias)

    def _gradient_of_rows(
        self, layer: int, weight: LayerWeights, aggregated: Tensor, dropout_key: int | None
    ) -> None:
        """Overwrite the layer's input, chunk by chunk, by the gradient before its activation."""
        gradient, rows = self.buffers.outputs[layer], self.buffers.outputs[layer - 1]
        step = self.buffers.chunk.numel() // self.architecture.hidden_width
        for start in range(0, self.num_rows, step):
            part = slice(start, min(start + step, self.num_rows))
            chunk = region(self.buffers.chunk, part.stop - start, rows.size(1))
            torch.mm(aggregated[part], weight.neighbor, out=chunk)
            if weight.root is not None:
                chunk.addmm_(gradient[part], weight.root)
            if self.architecture.is_residual(layer):
                chunk.add_(gradient[part])
            self._backward_activation(layer - 1, chunk, rows[part], start, dropout_key)

    def _backward_narrow(self, layer: int, weight: LayerWeights, dropout_key: int | None) -> Tensor:
        """Two products as wide as the input, where the output is more than twice as wide."""
        gradient, rows = self.buffers.outputs[layer], self.buffers.outputs[layer - 1]
        width = rows.size(1)
        operand = region(self.buffers.shared, self.num_rows, width)
        second = region(self.buffers.shared, self.num_rows, width, start=operand.numel())
        self.product.multiply(self.adjacency.tiles, rows, operand)
        neighbor = outer_product(gradient, operand, self.buffers.chunk)
        torch.mm(gradient, weight.neighbor, out=operand)
        self.product.multiply(self.adjacency.transposed, operand, second)
        if weight.root is not None:
            second.addmm_(gradient, weight.root)
        self._backward_activation(layer - 1, second, rows, 0, dropout_key)
        return neighbor

    def _backward_activation(
        self, layer: int, gradient: Tensor, rows: Tensor, first_row: int, dropout_key: int | None
    ) -> None:
        """Overwrite the output ``rows`` of ``layer`` by the gradient before its activation."""
        dropped = dropout_key is not None and self.architecture.dropout > 0.0
        if self.architecture.activation == "relu":
            # A positive output was neither clipped nor dropped: it says all that is needed.
            if dropped:
                gradient.mul_(1.0 / (1.0 - self.architecture.dropout))
            torch.ops.aten.threshold_backward.grad_input(gradient, rows, 0, grad_input=rows)
            return
        if dropped and dropout_key is not None:
            self._drop(layer, gradient, dropout_key, first_row)
        slope = self.architecture.negative_slope
        torch.ops.aten.leaky_relu_backward.grad_input(gradient, rows, slope, True, grad_input=rows)


def _column_sum(bias: Tensor | None, gradient: Tensor) -> Tensor | None:
    return None if bias is None else gradient.sum(dim=0, dtype=wide_dtype(gradient.dtype))
