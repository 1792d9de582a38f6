"""Graphs for loaders, and what a batch of them must hold."""

import torch
from torch_geometric.data import Data, HeteroData


def make_data(num_nodes=60, num_edges=400):
    generator = torch.Generator().manual_seed(1)
    return Data(
        x=torch.randn(num_nodes, 5, generator=generator),
        y=torch.arange(num_nodes),
        edge_index=torch.randint(0, num_nodes, (2, num_edges), generator=generator),
        edge_attr=torch.randn(num_edges, 3, generator=generator),
        train_mask=torch.arange(num_nodes) % 3 == 0,
    )


def make_hetero_data():
    generator = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["paper"].x = torch.randn(40, 5, generator=generator)
    data["author"].num_nodes = 30  # no features at all
    data["venue"].x = torch.randn(7, 2, generator=generator)
    sizes = {"paper": 40, "author": 30, "venue": 7}

    def edges(source, destination, num_edges):
        row = torch.randint(0, sizes[source], (num_edges,), generator=generator)
        col = torch.randint(0, sizes[destination], (num_edges,), generator=generator)
        return torch.stack([row, col])

    data["author", "writes", "paper"].edge_index = edges("author", "paper", 150)
    data["author", "writes", "paper"].weight = torch.rand(150, generator=generator)
    data["paper", "cites", "paper"].edge_index = edges("paper", "paper", 200)
    data["venue", "holds", "author"].edge_index = edges("venue", "author", 0)
    return data


def assert_batch(batch, data, is_bidirectional=False):
    """What PyG's own tests miss: each row and each edge is the one its id names."""
    batch = batch.cpu()
    assert batch.x.equal(data.x[batch.n_id])
    assert batch.y.equal(data.y[batch.n_id])
    assert batch.train_mask.equal(data.train_mask[batch.n_id])
    assert batch.edge_attr.equal(data.edge_attr[batch.e_id])
    edges, expected = batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id]
    # A bidirectional batch holds some edges turned round, under the id of the edge that they are.
    is_turned = (edges != expected).any(dim=0)
    assert edges[:, is_turned].flip(0).equal(expected[:, is_turned])
    assert is_bidirectional or not is_turned.any()
    assert batch.n_id[: batch.batch_size].equal(batch.seeds)
    assert batch.num_nodes == batch.n_id.numel()


def assert_hetero_batch(batch, data):
    batch = batch.cpu()
    assert set(batch.node_types) == set(data.node_types)
    assert set(batch.edge_types) == set(data.edge_types)
    for node_type in ("paper", "venue"):
        assert batch[node_type].x.equal(data[node_type].x[batch[node_type].n_id])
    assert batch["author"].num_nodes == batch["author"].n_id.numel()
    for source, relation, destination in data.edge_types:
        edges = batch[source, relation, destination]
        row, col = edges.edge_index
        expected = data[source, relation, destination].edge_index[:, edges.e_id]
        assert expected.equal(torch.stack([batch[source].n_id[row], batch[destination].n_id[col]]))
    writes = ("author", "writes", "paper")
    assert batch[writes].weight.equal(data[writes].weight[batch[writes].e_id])


def assert_same_batch(left, right):
    """Two batches hold the same under the same names, wherever they are."""
    for one, other in zip(left.stores, right.stores, strict=True):
        assert list(one.keys()) == list(other.keys())
        for name in one:
            if isinstance(one[name], torch.Tensor):
                assert one[name].cpu().equal(other[name].cpu()), name
            else:
                assert one[name] == other[name], name


def assert_same_batches(left, right):
    """Two loops give the same batches."""
    for one, other in zip(left, right, strict=True):
        assert_same_batch(one, other)
