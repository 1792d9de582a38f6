"""Whole batches follow the distribution that was asked for."""

import torch
from scipy import stats
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from pyg_direct.sampler import DirectNeighborSampler


def _star(num_leaves, **attributes):
    edge_index = torch.stack([torch.arange(1, num_leaves + 1), torch.zeros(num_leaves).long()])
    return Data(edge_index=edge_index, num_nodes=num_leaves + 1, **attributes)


def _counts(sampler, num_leaves, num_batches=40, num_seeds=100):
    seeds = NodeSamplerInput(None, torch.zeros(num_seeds, dtype=torch.int64))
    edges = [sampler.sample_from_nodes(seeds).edge for _ in range(num_batches)]
    return torch.cat(edges).bincount(minlength=num_leaves).double()


def test_uniform_over_batches_and_positions():
    sampler = DirectNeighborSampler(_star(12), [3], seed=42, device="cpu")

    assert stats.chisquare(_counts(sampler, 12).numpy()).pvalue > 1e-3


def test_replaced_repeats_a_neighbour_as_often_as_it_should():
    sampler = DirectNeighborSampler(_star(4), [2], replace=True, seed=42, device="cpu")
    seeds = NodeSamplerInput(None, torch.zeros(4000, dtype=torch.int64))

    edge = sampler.sample_from_nodes(seeds).edge.view(-1, 2)

    repeats = int((edge[:, 0] == edge[:, 1]).sum())
    assert stats.binomtest(repeats, 4000, 1 / 4).pvalue > 1e-3


def test_weighted_single_draws_follow_the_weights():
    weight = torch.tensor([1.0, 2.0, 0.0, 4.0, 0.5], dtype=torch.float64)
    sampler = DirectNeighborSampler(
        _star(5, weight=weight), [1], weight_attr="weight", seed=42, device="cpu"
    )

    counts = _counts(sampler, 5)

    assert counts[2] == 0
    kept = weight > 0
    expected = (weight / weight.sum() * counts.sum())[kept]
    assert stats.chisquare(counts[kept].numpy(), expected.numpy()).pvalue > 1e-3
