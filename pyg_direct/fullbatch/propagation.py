"""Forward and backward of all layers by hand, in buffers that are allocated once.

Shape legend: ``m`` rows of this rank, ``L`` layers, widths ``d_0`` to ``d_L``; layers from 0.
``H_l`` is the input of layer l, ``G`` the gradient of its output, ``A'`` is A transposed.
Assumption: one backward follows each forward, because gradients overwrite the layer outputs.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pyg_direct.fullbatch.adjacency import Adjacency
from pyg_direct.fullbatch.architecture import Architecture
from pyg_direct.fullbatch.hidden_rows import HiddenChunk, HiddenRows, input_matrix, project
from pyg_direct.fullbatch.input_rows import ResidentRows, StreamedRows
from pyg_direct.fullbatch.layer_weights import LayerWeights
from pyg_direct.fullbatch.memory import Buffers, region
from pyg_direct.fullbatch.nonlinearity import Nonlinearity
from pyg_direct.fullbatch.outer_product import outer_product
from pyg_direct.fullbatch.sliced_product import multiply_slices, staged_operand
from pyg_direct.fullbatch.staged_product import StagedProduct
from pyg_direct.fullbatch.tiles import Tile


class Propagation:
    """All layers on one rank. Every rank must make the same calls.

    Parameters
    ----------
    architecture : Architecture
    adjacency : Adjacency
    product : StagedProduct
    slice_width : int
        Columns that a product takes at a time; equal on all ranks.
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
        slice_width: int,
        inputs: ResidentRows | StreamedRows,
        buffers: Buffers,
        node: Tensor | None = None,
    ) -> None:
        self.architecture = architecture
        self.adjacency = adjacency
        self.product = product
        self.slice_width = slice_width
        self.inputs = inputs
        self.buffers = buffers
        self.nonlinearity = Nonlinearity(architecture, node)
        self.hidden = HiddenRows(self.nonlinearity, inputs=inputs, buffers=buffers)
        self.num_rows = self.logits.size(0)
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
        num_features = self.architecture.widths[0]
        block = self.architecture.feature_block(self.slice_width)
        first = self.architecture.table_width - num_features
        largest = max((*self.buffers.outputs, self.buffers.spare), key=Tensor.numel).view(-1)
        for column in range(0, num_features, block):
            width = min(block, num_features - column)
            operand = staged_operand(self.buffers.slice, self.num_rows, width)
            out = region(largest, self.num_rows, width)
            self.inputs.read(first + column, operand)
            self._multiply(self.adjacency.tiles, operand, out)
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
        for layer in range(1, len(weights)):
            self._convolve(layer, weights, dropout_key)
        if len(weights) == 1:
            self._multiply_inputs(weights[0])
        return self.logits

    def _multiply_inputs(self, weight: LayerWeights) -> None:
        matrix = input_matrix(weight)
        for start, rows in self.inputs.pieces():
            project(rows, matrix, weight.bias, out=self.logits[start : start + rows.size(0)])

    def _convolve(
        self, layer: int, weights: Sequence[LayerWeights], dropout_key: int | None
    ) -> None:
        """Compute the output of ``layer``, with its bias, without its activation."""
        weight, out = weights[layer], self.buffers.output_of(layer)
        d_out, d_in = weight.neighbor.shape
        adds = self.architecture.adds_input(layer)
        if not self.architecture.projects_first(layer):
            source = self._spare(d_in)
            for chunk in self.hidden.finished(layer, weights, dropout_key):
                source[chunk.part].copy_(chunk.rows)
                self._start_output(layer, weight, chunk)
            self._multiply(self.adjacency.tiles, source, source)
            if adds:
                out.addmm_(source, weight.neighbor.t())
                if weight.bias is not None:
                    out.add_(weight.bias)
            else:
                project(source, weight.neighbor.t(), weight.bias, out=out)
            return
        source = self._operand(d_out, self._spare(d_out) if adds else out)
        for chunk in self.hidden.finished(layer, weights, dropout_key):
            torch.mm(chunk.rows, weight.neighbor.t(), out=source[chunk.part])
            self._start_output(layer, weight, chunk)
        self._multiply(self.adjacency.tiles, source, out, accumulate=adds, bias=weight.bias)

    def _start_output(self, layer: int, weight: LayerWeights, chunk: HiddenChunk) -> None:
        """Write what the layer adds of its own input, if anything, to its output."""
        out = self.buffers.output_of(layer)[chunk.part]
        if weight.root is not None:
            torch.mm(chunk.rows, weight.root.t(), out=out)
            if self.architecture.is_residual(layer):
                out.add_(chunk.rows)
        elif self.architecture.is_residual(layer):
            out.copy_(chunk.rows)

    def _operand(self, width: int, otherwise: Tensor) -> Tensor:
        """Return where to build an operand: in the slice, if it is one slice, or ``otherwise``."""
        if width > self.slice_width:
            return otherwise
        return staged_operand(self.buffers.slice, self.num_rows, width)

    def _spare(self, width: int) -> Tensor:
        return region(self.buffers.spare, self.num_rows, width)

    def _multiply(
        self,
        tiles: tuple[Tile, ...],
        operand: Tensor,
        out: Tensor,
        *,
        accumulate: bool = False,
        bias: Tensor | None = None,
    ) -> None:
        multiply_slices(
            self.product,
            tiles,
            operand,
            out,
            staging=self.buffers.slice,
            slice_width=self.slice_width,
            accumulate=accumulate,
            bias=bias,
        )

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
        sums = [weight.new_sums() for weight in weights]
        _add_bias(sums[-1], self.logits)
        for layer in range(len(weights) - 1, 0, -1):
            self._backward_layer(layer, weights, dropout_key, sums)
        if len(weights) == 1:
            for start, rows in self.inputs.pieces():
                self._add_inputs(sums[0], self.logits[start : start + rows.size(0)], rows)
        return sums

    def _backward_layer(
        self,
        layer: int,
        weights: Sequence[LayerWeights],
        dropout_key: int | None,
        sums: list[LayerWeights],
    ) -> None:
        """Add the gradients of this layer's weights, and of the bias before; pass the rest on.

        The gradient of the layer's input overwrites that input, chunk by chunk. For layer 1 it goes
        into the weights of layer 0 at once.
        """
        if self.architecture.shares_product(layer):
            aggregated = self._aggregate_gradient(layer)
        else:
            aggregated = self._backward_narrow(layer, weights, dropout_key, sums[layer])
        for chunk in self.hidden.again(layer, weights, dropout_key):
            gradient = region(self.buffers.gradient, *chunk.rows.shape)
            self._gradient_of_chunk(layer, weights[layer], aggregated, chunk, sums[layer], gradient)
            out = gradient if layer == 1 else chunk.rows
            self.nonlinearity.backward(
                layer - 1, gradient, chunk.rows, chunk.part.start, dropout_key, out=out
            )
            _add_bias(sums[layer - 1], out)
            if chunk.inputs is not None:
                self._add_inputs(sums[0], out, chunk.inputs)

    def _aggregate_gradient(self, layer: int) -> Tensor:
        """Return ``A' G``, which overwrites ``G`` where nothing else needs it."""
        gradient = self.buffers.output_of(layer)
        keeps = self.architecture.adds_input(layer)
        out = self._spare(gradient.size(1)) if keeps else gradient
        self._multiply(self.adjacency.transposed, gradient, out)
        return out

    def _backward_narrow(
        self,
        layer: int,
        weights: Sequence[LayerWeights],
        dropout_key: int | None,
        total: LayerWeights,
    ) -> Tensor:
        """Return ``A' (G W)``; add ``G' (A H)``: two products as wide as the narrow input."""
        gradient, weight = self.buffers.output_of(layer), weights[layer].neighbor
        aggregated = self._spare(weight.size(1))
        for chunk in self.hidden.again(layer, weights, dropout_key):
            aggregated[chunk.part].copy_(chunk.rows)
        self._multiply(self.adjacency.tiles, aggregated, aggregated)
        total.neighbor.add_(outer_product(gradient, aggregated, self.buffers.scratch))
        torch.mm(gradient, weight, out=aggregated)
        self._multiply(self.adjacency.transposed, aggregated, aggregated)
        return aggregated

    def _gradient_of_chunk(
        self,
        layer: int,
        weight: LayerWeights,
        aggregated: Tensor,
        chunk: HiddenChunk,
        total: LayerWeights,
        out: Tensor,
    ) -> None:
        """Write the gradient of a chunk of the layer's input to ``out``; add those of weights."""
        part, scratch = chunk.part, self.buffers.scratch
        gradient = self.buffers.output_of(layer)[part]
        if self.architecture.shares_product(layer):
            total.neighbor.add_(outer_product(aggregated[part], chunk.rows, scratch))
            torch.mm(aggregated[part], weight.neighbor, out=out)
        else:
            out.copy_(aggregated[part])
        if weight.root is not None and total.root is not None:
            total.root.add_(outer_product(gradient, chunk.rows, scratch))
            out.addmm_(gradient, weight.root)
        if self.architecture.is_residual(layer):
            out.add_(gradient)

    def _add_inputs(self, total: LayerWeights, gradient: Tensor, rows: Tensor) -> None:
        """Add the gradients of layer 0's weights from some rows of its output and its input."""
        added = outer_product(gradient, rows, self.buffers.scratch)
        num_features = self.architecture.widths[0]
        total.neighbor.add_(added[:, :num_features])
        if total.root is not None:
            total.root.add_(added[:, num_features:])


def _add_bias(total: LayerWeights, gradient: Tensor) -> None:
    if total.bias is not None:
        total.bias.add_(gradient.sum(dim=0, dtype=total.bias.dtype))
