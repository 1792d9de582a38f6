"""Any graph PyG can hold: layouts, foreign stores, times and weights of stores."""

import pytest
import torch
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.testing import MyFeatureStore, MyGraphStore

from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.sampler.source import StoreSource
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore, from_data
from tests.sampler.graphs import make_data, make_hetero

SEEDS = torch.tensor([3, 0, 11])


def _put_edges(graph_store, edge_index, layout, num_nodes):
    """Put edges in a layout and return them in the order in which ``e_id`` counts them."""
    row, col = edge_index
    if layout == "csc":
        order = torch.argsort(col, stable=True)
        row, col = row[order], col[order]
        put = row, torch.cat([torch.zeros(1).long(), col.bincount(minlength=num_nodes).cumsum(0)])
    elif layout == "csr":
        order = torch.argsort(row, stable=True)
        row, col = row[order], col[order]
        put = torch.cat([torch.zeros(1).long(), row.bincount(minlength=num_nodes).cumsum(0)]), col
    else:
        put = row, col
    graph_store.put_edge_index(put, edge_type=None, layout=layout, size=(num_nodes, num_nodes))
    return torch.stack([row, col])


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
@pytest.mark.parametrize("stores", ["ours", "foreign"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
def test_e_id_counts_edges_as_they_were_put(layout, stores, direction, dtype):
    data = make_data()
    ours = stores == "ours"
    features = DirectFeatureStore("cpu") if ours else MyFeatureStore()
    graph = DirectGraphStore() if ours else MyGraphStore()
    edge_index = _put_edges(graph, data.edge_index.to(dtype), layout, data.num_nodes)
    sampler = DirectNeighborSampler(
        (features, graph), [3, 2], sample_direction=direction, device="cpu"
    )

    out = sampler.sample_from_nodes(NodeSamplerInput(None, SEEDS))

    found = out.node[torch.stack([out.row, out.col])]
    if layout == "csc" or ours:
        assert torch.equal(found, edge_index[:, out.edge].long())
    assert out.edge.numel() > 0
    if layout == "coo":
        assert torch.equal(found, data.edge_index[:, out.edge])


@pytest.mark.parametrize("attribute", ["time", "edge_time", "weight"])
@pytest.mark.parametrize("hetero", [False, True], ids=["homogeneous", "heterogeneous"])
def test_stores_give_the_same_as_data(attribute, hetero):
    data = make_hetero() if hetero else make_data()
    name = "weight_attr" if attribute == "weight" else "time_attr"
    time = None if attribute == "weight" else torch.tensor([4, 12, 19])
    inputs = NodeSamplerInput(None, SEEDS, time, "a" if hetero else None)
    options = {name: attribute, "seed": 1, "device": "cpu"}

    left = DirectNeighborSampler(data, [3, 3], **options).sample_from_nodes(inputs)
    stores = from_data(data, device="cpu")
    right = DirectNeighborSampler(stores, [3, 3], **options).sample_from_nodes(inputs)

    edges = left.edge if hetero else {None: left.edge}
    assert sum(edge.numel() for edge in edges.values()) > 0
    for kind, edge in edges.items():
        assert torch.equal(edge, right.edge[kind] if hetero else right.edge)


def test_foreign_homogeneous_time_is_told_by_its_length():
    data = make_data()
    features, graph = MyFeatureStore(), MyGraphStore()
    _put_edges(graph, data.edge_index, "coo", data.num_nodes)
    features.put_tensor(data.time, group_name=None, attr_name="when", index=None)
    features.put_tensor(data.edge_time, group_name=None, attr_name="time", index=None)

    source = StoreSource(features, graph)

    assert torch.equal(source.node_values(None, "when"), data.time)
    assert source.edge_values(None, "when") is None
    assert torch.equal(source.edge_values(None, "time"), data.edge_time)
    assert source.node_values(None, "time") is None


def test_edges_need_no_order_of_time():
    data = make_data()
    order = torch.randperm(data.num_edges)
    shuffled = data.clone()
    shuffled.edge_index, shuffled.edge_time = data.edge_index[:, order], data.edge_time[order]
    inputs = NodeSamplerInput(None, SEEDS, torch.tensor([4, 12, 19]))

    outs = [
        DirectNeighborSampler(each, [-1], time_attr="edge_time", device="cpu").sample_from_nodes(
            inputs
        )
        for each in (data, shuffled)
    ]

    assert torch.equal(outs[0].node, outs[1].node)
    assert sorted(outs[0].edge.tolist()) == sorted(order[outs[1].edge].tolist())


def test_topology_is_used_in_place():
    data = make_data()
    stores = from_data(data, device="cpu")

    sampler = DirectNeighborSampler(stores, [2], device="cpu")

    relation = sampler._graph.relations[0]
    assert relation.row.data_ptr() == stores[1].topology().row.data_ptr()
    assert relation.colptr.data_ptr() == stores[1].topology().colptr.data_ptr()


def test_sizes_come_from_features_and_edges():
    data = make_hetero()
    sampler = DirectNeighborSampler(from_data(data, device="cpu"), [2], device="cpu")

    assert sampler.num_nodes == {kind: data[kind].num_nodes for kind in data.node_types}
    assert sampler.edge_types == data.edge_types


def test_empty_stores_are_homogeneous():
    sampler = DirectNeighborSampler(
        (DirectFeatureStore("cpu"), DirectGraphStore()), [2], device="cpu"
    )

    assert not sampler.is_hetero
    assert sampler.num_nodes == 0
