"""Undirected power-law graphs, compressed, generated on the device that will train on them.

Endpoints are drawn independently with weights that fall as (rank)^-1/2 (Chung, Lu 2002), which
gives degrees a power law of exponent 3; each edge is kept once and stored in both directions.
Features and labels are computed when they are read, from the number of the vertex alone, so that
a process needs memory only for what it asks for.

Assumption: the device holds a few arrays of 8 bytes an edge while the graph is sorted.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import TensorAttr

from pyg_direct.fullbatch.counter_random import mix64_in_place, stream_key

# Draws beyond the wanted edges, for those that coincide.
OVERSAMPLING = 1.1
RANDOM_BITS = 24


@dataclass(slots=True, kw_only=True)
class UndirectedGraph:
    """A graph behind as much of PyG's FeatureStore and GraphStore as ``GraphSource`` reads.

    Attributes
    ----------
    row, colptr : int64 tensors, shapes (E,) and (n + 1,)
        Compressed by destination; E counts both directions.
    num_features, num_classes, seed : int
        Of features (float32, uniform, variance 1) and labels (int64).
    """

    row: Tensor
    colptr: Tensor
    num_features: int
    num_classes: int
    seed: int

    @property
    def num_nodes(self) -> int:
        """Number of vertices."""
        return self.colptr.numel() - 1

    def csc(self) -> tuple[Tensor, Tensor, None]:
        """Return ``(row, colptr, None)``, not copied."""
        return self.row, self.colptr, None

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Name the tensors."""
        return [TensorAttr(None, name) for name in ("x", "y")]

    def get_tensor_size(self, *, attr_name: str, **_: Any) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        shapes = {"x": (self.num_nodes, self.num_features), "y": (self.num_nodes,)}
        return shapes[attr_name]

    def get_tensor(self, *, attr_name: str, index: Tensor | slice | None, **_: Any) -> Tensor:
        """Compute rows of a tensor on the device of the edges."""
        device = self.row.device
        if not isinstance(index, Tensor):
            bounds = (slice(None) if index is None else index).indices(self.num_nodes)
            index = torch.arange(*bounds, device=device)
        compute = {"x": self.features, "y": self.labels}[attr_name]
        return compute(index.to(device))

    def features(self, node: Tensor) -> Tensor:
        """Compute the features of ``node``: float32, shape (N, F)."""
        bits = self._bits(node, self.num_features)
        unit = bits.float().mul_(2.0 / (1 << RANDOM_BITS)).sub_(1.0)
        return unit.mul_(3.0**0.5)

    def labels(self, node: Tensor) -> Tensor:
        """Compute the labels of ``node``: int64, shape (N,)."""
        return self._bits(node, 1)[:, 0] % self.num_classes

    def _bits(self, node: Tensor, num_columns: int) -> Tensor:
        key = stream_key(self.seed, num_columns)
        column = torch.arange(num_columns, device=node.device)
        bits = mix64_in_place(node[:, None] * num_columns + column + key)
        return (bits >> (64 - RANDOM_BITS)).bitwise_and_((1 << RANDOM_BITS) - 1)


def power_law_undirected(
    *,
    num_nodes: int,
    num_edges: int,
    num_features: int,
    num_classes: int,
    seed: int = 0,
    device: torch.device,
) -> UndirectedGraph:
    """Generate a graph; equal arguments on equal devices give equal graphs.

    Parameters
    ----------
    num_nodes, num_features, num_classes : int
    num_edges : int
        Of both directions together, nearly: fewer come where too many draws coincide.
    seed : int
    device : torch.device
        Where edges are generated and stay.
    """
    generator = torch.Generator(device).manual_seed(seed)
    key = _draw_edges(num_nodes, num_edges // 2, generator)
    low, high = key // num_nodes, key % num_nodes
    del key
    both = torch.cat([low * num_nodes + high, high * num_nodes + low])
    del low, high
    both = both.sort().values
    colptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
    torch.cumsum(torch.bincount(both // num_nodes, minlength=num_nodes), 0, out=colptr[1:])
    return UndirectedGraph(
        row=both.remainder_(num_nodes),
        colptr=colptr,
        num_features=num_features,
        num_classes=num_classes,
        seed=seed,
    )


def _draw_edges(num_nodes: int, wanted: int, generator: torch.Generator) -> Tensor:
    """Return ``low * n + high`` of distinct pairs, about ``wanted`` at most, without loops."""
    relabel = torch.randperm(num_nodes, generator=generator, device=generator.device)
    num_draws = int(wanted * OVERSAMPLING)
    first = _draw_ends(num_draws, relabel, generator)
    second = _draw_ends(num_draws, relabel, generator)
    key = torch.minimum(first, second).mul_(num_nodes).add_(torch.maximum(first, second))
    key = key[first != second]
    del first, second
    distinct: Tensor = key.unique()
    if distinct.numel() <= wanted:
        return distinct
    chosen = torch.rand(distinct.numel(), generator=generator, device=distinct.device)
    return distinct[chosen < wanted / distinct.numel()]


def _draw_ends(num_draws: int, relabel: Tensor, generator: torch.Generator) -> Tensor:
    # float32 cannot tell 50 million vertices apart.
    draw = torch.rand(num_draws, generator=generator, device=relabel.device, dtype=torch.float64)
    rank = draw.square_().mul_(relabel.numel()).long().clamp_(max=relabel.numel() - 1)
    return relabel[rank]
