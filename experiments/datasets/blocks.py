"""A small graph whose classes can be learned: the stochastic block model with noisy features.

Features alone tell a class badly; neighbours, most of them of a node's own class, average the noise
away.
"""

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from experiments.datasets.splits import split_at_random


def stochastic_blocks(
    *,
    num_nodes: int,
    num_classes: int,
    num_features: int,
    mean_degree: int,
    same_class: float,
    noise: float,
    seed: int,
) -> Data:
    """Generate the graph; the same arguments give the same graph.

    Parameters
    ----------
    num_nodes, num_classes, num_features : int
        Sizes.
    mean_degree : int
        Mean number of neighbours, before repeated edges are dropped.
    same_class : float
        Share of the edges that are drawn within one class; the rest joins any two nodes.
    noise : float
        Standard deviation of the features about the centre of their class; centres have unit
        length in expectation.
    seed : int
        Of the generator.
    """
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(num_nodes) % num_classes
    source = torch.randint(num_nodes, (num_nodes * mean_degree // 2,), generator=generator)
    anywhere = torch.randint(num_nodes, source.shape, generator=generator)
    is_within = torch.rand(source.shape, generator=generator) < same_class
    target = torch.where(
        is_within, _into_class(anywhere, y[source], num_nodes, num_classes), anywhere
    )
    is_edge = source != target
    edge_index = to_undirected(coalesce(torch.stack([source, target])[:, is_edge]))
    centres = torch.randn(num_classes, num_features, generator=generator) / num_features**0.5
    x = centres[y] + noise * torch.randn(num_nodes, num_features, generator=generator)
    return split_at_random(Data(x=x, y=y, edge_index=edge_index), generator)


def _into_class(nodes: Tensor, classes: Tensor, num_nodes: int, num_classes: int) -> Tensor:
    """Move each node to the one of the given class beside it: classes alternate with the ids."""
    moved = nodes - nodes % num_classes + classes
    return torch.where(moved < num_nodes, moved, moved - num_classes)
