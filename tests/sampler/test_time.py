"""No edge from the future, ever; the latest edges are the latest."""

import pytest
import torch
from scipy import stats
from torch_geometric.data import Data
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

from pyg_direct.sampler import DirectNeighborSampler
from tests.sampler.graphs import make_data, make_hetero

NODE_TIME = {"time_attr": "time"}
EDGE_TIME = {"time_attr": "edge_time"}


@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced"])
@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("time", [NODE_TIME, EDGE_TIME], ids=["node", "edge"])
def test_no_edge_is_from_the_future(time, strategy, subgraph_type):
    data = make_data(60, 600)
    sampler = DirectNeighborSampler(
        data, [4, 3, -1], temporal_strategy=strategy, subgraph_type=subgraph_type, device="cpu",
        seed=1, **time,
    )  # fmt: skip
    seeds, seed_time = torch.arange(30), torch.arange(30) - 2

    out = sampler.sample_from_nodes(NodeSamplerInput(None, seeds, seed_time))

    times = data.time[data.edge_index[0]] if time is NODE_TIME else data.edge_time
    assert out.edge.numel() > 0
    assert (times[out.edge] <= seed_time[out.batch[out.col]]).all()
    assert torch.equal(out.batch[out.row], out.batch[out.col])


def test_hetero_types_without_time_are_not_bounded():
    data = make_hetero()
    del data["b__c"].time
    sampler = DirectNeighborSampler(data, [-1], time_attr="time", device="cpu")

    out = sampler.sample_from_nodes(
        NodeSamplerInput(None, torch.arange(20), torch.full((20,), 5), "a")
    )

    young = data["a"].time[out.node["a"][out.row["a", "a", "a"]]]
    assert (young <= 5).all()
    kept = data["b__c", "a"].edge_index.shape[1]
    assert out.row["b__c", "rev_to__b", "a"].numel() == kept


def test_last_takes_the_latest_edges():
    time = torch.randperm(50)
    data = Data(
        edge_index=torch.stack([torch.arange(1, 51), torch.zeros(50, dtype=torch.int64)]),
        num_nodes=51, edge_time=time,
    )  # fmt: skip
    sampler = DirectNeighborSampler(
        data, [5], time_attr="edge_time", temporal_strategy="last", device="cpu"
    )

    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([0]), torch.tensor([30])))

    assert time[out.edge].tolist() == [26, 27, 28, 29, 30]


def test_uniform_draws_among_past_edges_equally():
    data = Data(
        edge_index=torch.stack([torch.arange(1, 11), torch.zeros(10, dtype=torch.int64)]),
        num_nodes=11, edge_time=torch.arange(10),
    )  # fmt: skip
    sampler = DirectNeighborSampler(data, [2], time_attr="edge_time", device="cpu", seed=1)
    num = 3000

    out = sampler.sample_from_nodes(
        NodeSamplerInput(None, torch.zeros(num, dtype=torch.int64), torch.full((num,), 5))
    )

    counts = out.edge.bincount(minlength=10)
    assert counts[6:].sum() == 0
    assert stats.chisquare(counts[:6].numpy()).pvalue > 1e-3


def test_node_time_is_the_seeds_own_where_none_is_given():
    data = make_data()
    sampler = DirectNeighborSampler(data, [3, 3], device="cpu", seed=1, **NODE_TIME)
    seeds = torch.arange(20)

    own = sampler.sample_from_nodes(NodeSamplerInput(None, seeds), batch=0)
    given = sampler.sample_from_nodes(NodeSamplerInput(None, seeds, data.time[:20]), batch=0)

    assert torch.equal(own.edge, given.edge)


@pytest.mark.parametrize("mode", ["binary", "triplet"])
@pytest.mark.parametrize("weighted", [False, True], ids=["uniform", "weighted"])
def test_negatives_are_never_from_the_future(mode, weighted):
    data = make_data(60, 300)
    weight = torch.rand(60) if weighted else None
    sampler = DirectNeighborSampler(data, [2], device="cpu", seed=1, **NODE_TIME)
    time = torch.randint(int(data.time.min()), 20, (100,))
    row, col = data.edge_index[:, :100]
    negative = NegativeSampling(mode, 3, src_weight=weight, dst_weight=weight)

    out = sampler.sample_from_edges(EdgeSamplerInput(None, row, col, time=time), negative)

    if mode == "binary":
        nodes = out.node[out.metadata[1][:, 100:]]
        assert (data.time[nodes] <= time.repeat(3)).all()
    else:
        nodes = out.node[out.metadata[3]]
        assert (data.time[nodes] <= time[:, None]).all()


def test_link_older_than_every_node():
    data = make_data()
    sampler = DirectNeighborSampler(data, [2], device="cpu", **NODE_TIME)
    row, col = data.edge_index[:, :2]
    inputs = EdgeSamplerInput(None, row, col, time=torch.tensor([5, -7]))

    with pytest.raises(ValueError, match="time -7 is older than every node"):
        sampler.sample_from_edges(inputs, NegativeSampling("binary"))
