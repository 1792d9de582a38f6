"""The model: PyG's parameters under PyG's names, and its one autograd function.

Shape legend: ``m`` rows of this rank, ``C`` classes.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv

from pyg_direct.fullbatch.adjacency import Normalization
from pyg_direct.fullbatch.architecture import Activation, Architecture, Convolution
from pyg_direct.fullbatch.layer_weights import LayerWeights
from pyg_direct.fullbatch.processes import Ranks
from pyg_direct.fullbatch.propagation import Propagation


class FullBatchGNN(nn.Module):
    """Parameters of a GCN or GraphSAGE whose state dict is that of PyG's model of equal shape.

    ``torch_geometric.nn.GCN`` (and ``GraphSAGE`` with mean aggregation) takes the state dict and
    gives one back. With equal seeds the initial values are equal too.

    Parameters
    ----------
    in_channels, hidden_channels, num_layers, out_channels : int
        As in PyG.
    convolution : {"gcn", "sage"}
    normalization : {"symmetric", "mean"}, optional
        ``"symmetric"`` for ``"gcn"`` (PyG's), ``"mean"`` for ``"sage"``, where not given.
    self_loops : bool, optional
        True for ``"gcn"``, False for ``"sage"``, where not given.
    bias : bool
    dropout : float
    act : {"relu", "leaky_relu"}
    negative_slope : float
        Of leaky ReLU.
    residual : bool
        See ``Architecture``.

    Raises
    ------
    ValueError
        If a value is out of range, or ``"sage"`` is not normalized by the mean.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        convolution: Convolution = "gcn",
        normalization: Normalization | None = None,
        self_loops: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        act: Activation = "relu",
        negative_slope: float = 0.01,
        residual: bool = False,
    ) -> None:
        super().__init__()
        hidden = (hidden_channels,) * (num_layers - 1)
        self.architecture = Architecture(
            widths=(in_channels, *hidden, out_channels),
            convolution=convolution,
            activation=act,
            negative_slope=negative_slope,
            dropout=dropout,
            residual=residual,
        )
        is_gcn = convolution == "gcn"
        default: Normalization = "symmetric" if is_gcn else "mean"
        self.normalization: Normalization = normalization or default
        if not is_gcn and self.normalization != "mean":
            raise ValueError(f"normalization = {normalization!r}, expected 'mean' for 'sage'")
        self.self_loops = is_gcn if self_loops is None else self_loops
        widths = self.architecture.widths
        layer = GCNConv if is_gcn else SAGEConv
        self.convs = nn.ModuleList(layer(*pair, bias=bias) for pair in pairwise(widths))

    def layer_weights(self) -> list[LayerWeights]:
        """Return the parameters of each layer, not copied."""
        # nn.Module types every attribute as Tensor or Module; these are PyG's own layers.
        convs: list[Any] = list(self.convs)
        if self.architecture.convolution == "gcn":
            return [LayerWeights(neighbor=conv.lin.weight, bias=conv.bias) for conv in convs]
        return [
            LayerWeights(neighbor=conv.lin_l.weight, root=conv.lin_r.weight, bias=conv.lin_l.bias)
            for conv in convs
        ]

    def forward(
        self, propagation: Propagation, ranks: Ranks, *, dropout_key: int | None = None
    ) -> Tensor:
        """Return this rank's logits; autograd gives the gradients of the whole graph.

        Every rank must call, and every rank must call ``backward`` if one does. A loss that is a
        mean over the graph must be divided by the number of rows of all ranks.

        Parameters
        ----------
        propagation : Propagation
        ranks : Ranks
        dropout_key : int, optional
            Key of this step's dropout; no dropout without it.

        Returns
        -------
        Tensor
            shape (m, C), a copy.
        """
        parameters = list(flat_parameters(self.layer_weights()))
        apply: Any = _FullBatch.apply
        result: Tensor = apply(self, propagation, ranks, dropout_key, *parameters)
        return result


def flat_parameters(weights: list[LayerWeights]) -> Iterator[Tensor]:
    """Yield neighbor, root and bias of each layer, where there is one."""
    for layer in weights:
        for parameter in (layer.neighbor, layer.root, layer.bias):
            if parameter is not None:
                yield parameter


def unflatten(like: list[LayerWeights], flat: tuple[Tensor, ...]) -> list[LayerWeights]:
    """Return ``flat`` (see ``flat_parameters``) as the weights of layers like those given."""
    values = iter(flat)
    return [
        LayerWeights(
            neighbor=next(values),
            root=None if layer.root is None else next(values),
            bias=None if layer.bias is None else next(values),
        )
        for layer in like
    ]


def sum_over_ranks(gradients: list[LayerWeights], ranks: Ranks) -> list[Tensor]:
    """Return the gradients of all ranks, in the order of ``flat_parameters``, in one message."""
    parts = list(flat_parameters(gradients))
    if ranks.num_ranks == 1:
        return parts
    flat = torch.cat([part.reshape(-1) for part in parts])
    ranks.sum_in_place(flat)
    sizes = [part.numel() for part in parts]
    return [chunk.view(part.shape) for chunk, part in zip(flat.split(sizes), parts, strict=True)]


class _FullBatch(torch.autograd.Function):
    """All layers as one function of the parameters."""

    @staticmethod
    def forward(
        ctx: Any,
        model: FullBatchGNN,
        propagation: Propagation,
        ranks: Ranks,
        dropout_key: int | None,
        *parameters: Tensor,
    ) -> Tensor:
        ctx.context = (model, propagation, ranks, dropout_key)
        ctx.save_for_backward(*parameters)
        weights = [
            layer.to(propagation.logits.dtype)
            for layer in unflatten(model.layer_weights(), parameters)
        ]
        logits = propagation.forward(weights, dropout_key)
        ctx.ticket = propagation.ticket
        return logits.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        model, propagation, ranks, dropout_key = ctx.context
        weights = [
            layer.to(propagation.logits.dtype)
            for layer in unflatten(model.layer_weights(), ctx.saved_tensors)
        ]
        if propagation.ticket != ctx.ticket:
            # Another pass has used the buffers since, e.g. under retain_graph: fill them again.
            propagation.forward(weights, dropout_key)
        propagation.logits.copy_(gradient)
        gradients = propagation.backward(weights, dropout_key)
        return (None, None, None, None, *sum_over_ranks(gradients, ranks))
