"""The input of each layer beyond the first, chunk by chunk.

Shape legend: ``m`` rows of this rank, ``k`` rows of a chunk, widths ``d_0`` to ``d_L``.
Layer 0 has no product with A: a row of its output depends on one row of A X alone. So the output
is never stored; who needs it computes it again, which costs one product with a weight of d_0 x d_1
and saves a buffer of m x d_1 (recomputation as in Chen et al. 2016, arXiv 1604.06174).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_direct.fullbatch.input_rows import ResidentRows, StreamedRows
from pyg_direct.fullbatch.layer_weights import LayerWeights
from pyg_direct.fullbatch.memory import Buffers, chunk_rows, region
from pyg_direct.fullbatch.nonlinearity import Nonlinearity


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenChunk:
    """Some rows of a layer's input; they last until the next chunk is asked for.

    Attributes
    ----------
    part : slice
        Which rows.
    rows : tensor, shape (k, d)
        After activation and dropout.
    inputs : tensor, shape (k, table width), or None
        The rows of A X that layer 1's input was computed from.
    """

    part: slice
    rows: Tensor
    inputs: Tensor | None = None


class HiddenRows:
    """Gives the input of layers 1 to L - 1.

    Parameters
    ----------
    nonlinearity : Nonlinearity
    inputs : ResidentRows or StreamedRows
    buffers : Buffers
        Both borrowed.
    """

    def __init__(
        self, nonlinearity: Nonlinearity, *, inputs: ResidentRows | StreamedRows, buffers: Buffers
    ) -> None:
        self.nonlinearity = nonlinearity
        self.inputs = inputs
        self.buffers = buffers

    def finished(
        self, layer: int, weights: Sequence[LayerWeights], dropout_key: int | None
    ) -> Iterator[HiddenChunk]:
        """Yield the input of ``layer``: the output before, to which the activation comes now.

        Once a forward pass.
        """
        if layer == 1:
            yield from self._recomputed(weights[0], dropout_key)
            return
        for chunk in self._stored(layer):
            self.nonlinearity.apply(layer - 1, chunk.rows, chunk.part.start, dropout_key)
            yield chunk

    def again(
        self, layer: int, weights: Sequence[LayerWeights], dropout_key: int | None
    ) -> Iterator[HiddenChunk]:
        """Yield what ``finished`` yielded, as often as needed."""
        if layer == 1:
            return self._recomputed(weights[0], dropout_key)
        return self._stored(layer)

    def _stored(self, layer: int) -> Iterator[HiddenChunk]:
        rows = self.buffers.output_of(layer - 1)
        for part in self._parts(rows.size(0)):
            yield HiddenChunk(part=part, rows=rows[part])

    def _recomputed(self, weight: LayerWeights, dropout_key: int | None) -> Iterator[HiddenChunk]:
        matrix = input_matrix(weight)
        for first, table in self.inputs.pieces():
            for inner in self._parts(table.size(0)):
                part = slice(first + inner.start, first + inner.stop)
                rows = region(self.buffers.hidden, part.stop - part.start, matrix.size(1))
                project(table[inner], matrix, weight.bias, out=rows)
                self.nonlinearity.apply(0, rows, part.start, dropout_key)
                yield HiddenChunk(part=part, rows=rows, inputs=table[inner])

    def _parts(self, num_rows: int) -> Iterator[slice]:
        all_rows = self.buffers.outputs[-1].size(0)
        step = chunk_rows(all_rows, self.nonlinearity.architecture.widest_output)
        for start in range(0, num_rows, step):
            yield slice(start, min(start + step, num_rows))


def input_matrix(weight: LayerWeights) -> Tensor:
    """Return layer 0's weight, shape (table width, d_1): that of A X, and for ``"sage"`` of X."""
    parts = [weight.neighbor] if weight.root is None else [weight.neighbor, weight.root]
    return torch.cat(parts, dim=1).t()


def project(rows: Tensor, matrix: Tensor, bias: Tensor | None, *, out: Tensor) -> None:
    """Write ``rows @ matrix``, plus ``bias`` where there is one, to ``out``."""
    if bias is None:
        torch.mm(rows, matrix, out=out)
    else:
        torch.addmm(bias, rows, matrix, out=out)
