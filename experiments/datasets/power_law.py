"""Power-law graphs of any size: R-MAT (Chakrabarti et al. 2004, section 3).

Each edge picks, bit by bit, a quadrant of the adjacency matrix. Nodes that agree in their first
bits are joined more often; a class is such a range of nodes, so that neighbours tell something
about it. Ids are then scattered, since real graphs do not keep their hubs side by side in memory.

Assumption: memory holds the finished graph; beside it, only one piece at a time is needed.
"""

from collections.abc import Iterator
from math import gcd

import torch
from torch import Tensor
from torch_geometric.data import Data

from experiments.datasets.splits import split_at_random
from experiments.device import choose_device

EDGES_PER_PIECE = 1 << 22
VALUES_PER_PIECE = 1 << 24


def rmat(
    *,
    num_nodes: int,
    num_edges: int,
    num_features: int,
    num_classes: int,
    quadrants: list[float],
    noise: float,
    seed: int,
    drawn_on: str = "cpu",
) -> Data:
    """Generate the graph in host memory; the same arguments give the same graph.

    Parameters
    ----------
    num_nodes, num_edges, num_features, num_classes : int
        Sizes; edges are directed and may repeat.
    quadrants : list of float
        Probabilities of the four quadrants, row by row; their sum is 1.
    noise : float
        Standard deviation of the features about the centre of their class; centres have unit
        length in expectation.
    seed : int
        Of the generators; each piece has its own.
    drawn_on : str
        Device on which pieces are drawn; see ``choose_device``.

    Raises
    ------
    ValueError
        If ``quadrants`` are not four numbers whose sum is 1, or the device is not there.
    """
    if len(quadrants) != 4 or abs(sum(quadrants) - 1) > 1e-6:
        raise ValueError(f"quadrants ({quadrants}) must be 4 probabilities whose sum is 1")
    device = choose_device(drawn_on)
    edge_index = torch.empty(2, num_edges, dtype=torch.int64)
    for begin, end, generator in _pieces(num_edges, EDGES_PER_PIECE, seed, device):
        edge_index[:, begin:end] = _draw_edges(end - begin, num_nodes, quadrants, generator)
    ranges = torch.arange(num_nodes) * num_classes // num_nodes
    y = torch.empty_like(ranges)
    y[_scatter_ids(torch.arange(num_nodes), num_nodes)] = ranges
    x = _draw_features(y, num_features, num_classes, noise, seed + 1, device)
    return split_at_random(
        Data(x=x, y=y, edge_index=edge_index), torch.Generator().manual_seed(seed)
    )


def _draw_edges(
    num_edges: int, num_nodes: int, quadrants: list[float], generator: torch.Generator
) -> Tensor:
    device = generator.device
    num_bits = max(num_nodes - 1, 1).bit_length()
    bounds = torch.tensor(quadrants, device=device).cumsum(0)[:3]
    edges = torch.zeros(2, num_edges, dtype=torch.int64, device=device)
    for _ in range(num_bits):
        draw = torch.rand(num_edges, generator=generator, device=device)
        quadrant = torch.bucketize(draw, bounds, right=True)
        edges.mul_(2).add_(torch.stack([quadrant // 2, quadrant % 2]))
    return _scatter_ids((edges * num_nodes) >> num_bits, num_nodes)


def _scatter_ids(nodes: Tensor, num_nodes: int) -> Tensor:
    """Map ids one to one to ids that lie far apart."""
    factor = max(int(num_nodes * 0.618), 1)
    while gcd(factor, num_nodes) > 1:
        factor += 1
    return nodes * factor % num_nodes


def _draw_features(
    y: Tensor, num_features: int, num_classes: int, noise: float, seed: int, device: torch.device
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_classes, num_features, generator=generator) / num_features**0.5
    centres = centres.to(device)
    x = torch.empty(len(y), num_features)
    for begin, end, piece in _pieces(len(y), VALUES_PER_PIECE // num_features, seed, device):
        rows = torch.randn(end - begin, num_features, generator=piece, device=device)
        x[begin:end] = rows.mul_(noise).add_(centres[y[begin:end].to(device)])
    return x


def _pieces(
    size: int, piece: int, seed: int, device: torch.device
) -> Iterator[tuple[int, int, torch.Generator]]:
    """Yield begin, end and a generator of its own for each piece."""
    for number, begin in enumerate(range(0, size, max(piece, 1))):
        generator = torch.Generator(device).manual_seed(seed * 1_000_003 + number + 1)
        yield begin, min(begin + max(piece, 1), size), generator
