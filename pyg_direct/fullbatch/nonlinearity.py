"""What happens to a layer's output before the next layer reads it: activation and dropout.

Shape legend: ``m`` rows of this rank, ``k`` rows of a chunk.
"""

import torch
from torch import Tensor

from pyg_direct.fullbatch.architecture import Architecture
from pyg_direct.fullbatch.counter_random import drop_in_place, stream_key


class Nonlinearity:
    """Activation and dropout, forward and backward, for any chunk of rows.

    Parameters
    ----------
    architecture : Architecture
    node : int64 tensor, shape (m,), or None
        Vertex of each row in the whole graph; needed for dropout only.

    Raises
    ------
    ValueError
        If there is dropout, but no ``node``.
    """

    def __init__(self, architecture: Architecture, node: Tensor | None = None) -> None:
        if architecture.dropout and node is None:
            raise ValueError("node is None, expected the vertex of each row for dropout > 0")
        self.architecture = architecture
        self.node = node

    def apply(self, layer: int, rows: Tensor, first_row: int, dropout_key: int | None) -> None:
        """Overwrite ``rows``, shape (k, d), of the output of ``layer`` from ``first_row`` on.

        Equal keys drop equal elements; without a key nothing is dropped.
        """
        if self.architecture.activation == "relu":
            rows.relu_()
        else:
            torch.nn.functional.leaky_relu_(rows, self.architecture.negative_slope)
        if dropout_key is not None:
            self._drop(layer, rows, first_row, dropout_key)

    def backward(
        self,
        layer: int,
        gradient: Tensor,
        rows: Tensor,
        first_row: int,
        dropout_key: int | None,
        *,
        out: Tensor,
    ) -> None:
        """Write the gradient before ``apply`` to ``out``, which may be either argument.

        Parameters
        ----------
        gradient : tensor, shape (k, d)
            After ``apply``. Overwritten.
        rows : tensor, shape (k, d)
            What ``apply`` left.
        layer, first_row, dropout_key
            As in ``apply``.
        out : tensor, shape (k, d)
        """
        dropped = dropout_key is not None and self.architecture.dropout > 0.0
        if self.architecture.activation == "relu":
            # A positive output was neither clipped nor dropped: it says all that is needed.
            if dropped:
                gradient.mul_(1.0 / (1.0 - self.architecture.dropout))
            torch.ops.aten.threshold_backward.grad_input(gradient, rows, 0, grad_input=out)
            return
        if dropped and dropout_key is not None:
            self._drop(layer, gradient, first_row, dropout_key)
        slope = self.architecture.negative_slope
        torch.ops.aten.leaky_relu_backward.grad_input(gradient, rows, slope, True, grad_input=out)

    def _drop(self, layer: int, rows: Tensor, first_row: int, key: int) -> None:
        if self.architecture.dropout and self.node is not None:
            node = self.node[first_row : first_row + rows.size(0)]
            probability = self.architecture.dropout
            drop_in_place(rows, node, probability=probability, key=stream_key(key, layer))
