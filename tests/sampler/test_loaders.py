"""PyG's own loaders with our sampler."""

import pytest
import torch
from torch_geometric.loader import LinkLoader, NeighborLoader, NodeLoader
from torch_geometric.utils import trim_to_layer

from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.stores import from_data
from tests.sampler.graphs import make_data, make_hetero


def _loader(data, sampler, **options):
    return NeighborLoader(
        data, num_neighbors=[], neighbor_sampler=sampler, filter_per_worker=False, **options
    )


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("source", ["data", "stores"])
def test_neighbor_loader_homogeneous(source, num_workers):
    data = make_data()
    graph = data if source == "data" else from_data(data, device="cpu")
    sampler = DirectNeighborSampler(graph, [3, 2], seed=1, device="cpu")
    loader = _loader(
        graph, sampler, input_nodes=torch.arange(40), batch_size=16, num_workers=num_workers
    )

    seen = []
    for batch in loader:
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
        seen.append(batch.n_id[: batch.batch_size])
    assert torch.cat(seen).tolist() == list(range(40))


def test_neighbor_loader_heterogeneous():
    data = make_hetero()
    stores = from_data(data, device="cpu")
    sampler = DirectNeighborSampler(stores, [3, 2], seed=1, device="cpu")

    for batch in _loader(stores, sampler, input_nodes=("a", torch.arange(20)), batch_size=8):
        assert set(batch.edge_types) == set(data.edge_types)
        for kind in data.edge_types:
            ends = torch.stack(
                [batch[kind[end]].n_id[batch[kind].edge_index[i]] for i, end in ((0, 0), (1, 2))]
            )
            assert torch.equal(data[kind].edge_index[:, batch[kind].e_id], ends)
        for kind in data.node_types:
            assert torch.equal(batch[kind].x, data[kind].x[batch[kind].n_id])


def test_batches_can_be_trimmed_by_layer():
    data = make_data()
    sampler = DirectNeighborSampler(data, [3, 2], seed=1, device="cpu")
    batch = next(iter(_loader(data, sampler, input_nodes=torch.arange(8), batch_size=8)))

    x, edge_index, _ = trim_to_layer(
        1, batch.num_sampled_nodes, batch.num_sampled_edges, batch.x, batch.edge_index
    )

    assert x.shape[0] == sum(batch.num_sampled_nodes[:2])
    assert edge_index.shape[1] == batch.num_sampled_edges[0]
    assert int(edge_index.max()) < x.shape[0]


def test_workers_and_epochs_repeat_no_batch():
    data = make_data(40, 800)
    sampler = DirectNeighborSampler(data, [3], seed=1, device="cpu")
    same_seeds = torch.zeros(4, dtype=torch.int64)
    loader = NodeLoader(
        data, sampler, input_nodes=same_seeds, batch_size=1, num_workers=2, filter_per_worker=False
    )

    edges = [tuple(batch.e_id.tolist()) for _ in range(2) for batch in loader]

    assert len(set(edges)) == len(edges)


def test_manual_seed_repeats_an_epoch_with_workers():
    data = make_data(40, 800)
    epochs = []
    for _ in range(2):
        torch.manual_seed(7)
        sampler = DirectNeighborSampler(data, [3], device="cpu")
        loader = _loader(
            data, sampler, input_nodes=torch.arange(40), batch_size=10, num_workers=2, shuffle=True
        )
        epochs.append([batch.e_id.tolist() for batch in loader])

    assert epochs[0] == epochs[1]


@pytest.mark.parametrize("neg_sampling", [None, "binary", "triplet"])
def test_link_loader(neg_sampling):
    data = make_data()
    stores = from_data(data, device="cpu")
    sampler = DirectNeighborSampler(stores, [3], seed=1, device="cpu")
    loader = LinkLoader(
        stores,
        link_sampler=sampler,
        edge_label_index=(None, data.edge_index[:, :20]),
        neg_sampling=neg_sampling,
        batch_size=10,
        filter_per_worker=False,
    )

    for i, batch in enumerate(loader):
        links = data.edge_index[:, 10 * i : 10 * i + 10]
        if neg_sampling == "triplet":
            found = torch.stack([batch.src_index, batch.dst_pos_index])
        else:
            found = batch.edge_label_index[:, :10]
        assert torch.equal(batch.n_id[found], links)


@pytest.mark.gpu
def test_neighbor_loader_is_wholly_on_the_gpu():
    data = make_data()
    stores = from_data(data, device="cuda")
    sampler = DirectNeighborSampler(stores, [3, 2], seed=1, device="cuda")
    on_cpu = DirectNeighborSampler(data, [3, 2], seed=1, device="cpu")
    options = {"input_nodes": torch.arange(40), "batch_size": 16}

    pairs = zip(_loader(stores, sampler, **options), _loader(data, on_cpu, **options), strict=True)
    for batch, expected in pairs:
        assert batch.x.is_cuda
        for name in ("n_id", "e_id", "edge_index", "x"):
            assert torch.equal(batch[name].cpu(), expected[name]), name


@pytest.mark.gpu
def test_gpu_sampler_refuses_a_worker():
    data = make_data()
    sampler = DirectNeighborSampler(data, [3], device="cuda")
    loader = _loader(data, sampler, input_nodes=torch.arange(4), num_workers=1)

    with pytest.raises(RuntimeError, match="num_workers=0"):
        next(iter(loader))
