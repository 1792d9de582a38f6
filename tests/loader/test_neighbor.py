import numpy as np
import pytest
import torch
import torch_geometric.loader
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import pyg_direct
from pyg_direct import DirectNeighborSampler, NeighborLoader, from_data
from tests.loader.graphs import (
    assert_batch,
    assert_hetero_batch,
    assert_same_batches,
    make_data,
    make_hetero_data,
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"replace": True},
        {"disjoint": True},
        {"subgraph_type": "bidirectional"},
        {"directed": 0},
    ],
    ids=str,
)
def test_batches_are_what_their_ids_say(device, options):
    data = make_data()
    seeds = torch.tensor([4, 4, 0, 59, 17, 4, 30])
    loader = NeighborLoader(
        from_data(data, device), [4, 3], input_nodes=seeds, batch_size=3, seed=7, **options
    )

    batches = list(loader)

    assert [batch.batch_size for batch in batches] == [3, 3, 1]
    for batch, expected in zip(batches, seeds.split(3), strict=True):
        assert all(
            value.device.type == device.type
            for _, value in batch
            if isinstance(value, torch.Tensor)
        )
        batch.seeds = expected
        assert_batch(batch, data, options.get("subgraph_type") == "bidirectional")


def test_heterogeneous_batches_are_what_their_ids_say(device):
    data = make_hetero_data()
    loader = NeighborLoader(from_data(data, device), [4, 3], input_nodes="paper", batch_size=8)

    for number, batch in enumerate(loader):
        assert_hetero_batch(batch, data)
        assert batch["paper"].n_id[:8].tolist() == list(range(8 * number, 8 * number + 8))
        assert batch["paper"].batch_size == 8


def test_pygs_stock_loader_gives_the_same_batches(device):
    data = make_data()
    stores = from_data(data, device)
    ours = NeighborLoader(stores, [4, 3], input_nodes=data.train_mask, batch_size=5, seed=3)
    stock = torch_geometric.loader.NeighborLoader(
        stores,
        [4, 3],
        input_nodes=data.train_mask,
        batch_size=5,
        neighbor_sampler=DirectNeighborSampler(stores, [4, 3], seed=3, device=device),
        filter_per_worker=False,
    )

    for batch, expected in zip(ours, stock, strict=True):
        for name in ("n_id", "e_id", "edge_index", "x", "y", "input_id"):
            assert batch[name].cpu().equal(expected[name].cpu()), name
        assert batch.batch_size == expected.batch_size


@pytest.mark.gpu
@pytest.mark.parametrize("make", [make_data, make_hetero_data])
def test_cpu_and_gpu_give_the_same_hundred_batches(make):
    data = make()
    nodes = torch.arange(40).repeat(20)
    input_nodes = nodes if make is make_data else ("paper", nodes)
    loaders = [
        NeighborLoader(
            from_data(data, device), [4, 3], input_nodes=input_nodes, batch_size=8, seed=5
        )
        for device in ("cpu", "cuda")
    ]

    assert_same_batches(*loaders)
    assert len(loaders[0]) == 100


@pytest.mark.parametrize(
    "input_nodes",
    [None, [3, 1], range(5), torch.tensor([3, 1]), np.array([3, 1]), torch.arange(60) % 7 == 0],
    ids=["all", "list", "range", "tensor", "numpy", "mask"],
)
def test_input_nodes_take_every_form(input_nodes):
    loader = NeighborLoader(from_data(make_data(), "cpu"), [2], input_nodes, batch_size=60)

    (batch,) = loader

    expected = torch.arange(60) if input_nodes is None else torch.as_tensor(input_nodes)
    expected = expected.nonzero().view(-1) if expected.dtype == torch.bool else expected
    assert batch.n_id[: batch.batch_size].equal(expected)


@pytest.mark.parametrize(
    "input_nodes",
    ["author", ("author", None), ("author", [3, 1]), ("author", torch.arange(30) == 2)],
    ids=["type", "type and None", "list", "mask"],
)
def test_input_nodes_of_a_type_without_features(input_nodes):
    loader = NeighborLoader(from_data(make_hetero_data(), "cpu"), [2], input_nodes, batch_size=30)

    (batch,) = loader

    assert batch["author"].batch_size in (30, 2, 1)


@pytest.mark.parametrize(
    ("input_nodes", "error", "message"),
    [
        (torch.tensor([60]), IndexError, r"input_nodes holds 60, expected ids in \[0, 60\)"),
        (torch.tensor([-1]), IndexError, r"input_nodes holds -1"),
        (torch.ones(3, dtype=torch.bool), IndexError, r"mask of 3 entries, expected 60"),
        (torch.rand(3), TypeError, r"input_nodes is tensor"),
        ("paper", ValueError, r"node type 'paper', which neither store holds"),
    ],
    ids=["id", "negative", "mask", "float", "type"],
)
def test_input_nodes_are_checked(input_nodes, error, message):
    with pytest.raises(error, match=message):
        NeighborLoader(from_data(make_data(), "cpu"), [2], input_nodes)


def test_input_nodes_need_a_type_if_heterogeneous():
    with pytest.raises(ValueError, match="the graph is heterogeneous"):
        NeighborLoader(from_data(make_hetero_data(), "cpu"), [2])


def test_takes_data_itself():
    data = make_data()
    (batch,) = NeighborLoader(data, [2], input_nodes=[3, 1], batch_size=2)

    assert batch.x.cpu().equal(data.x[batch.n_id.cpu()])


def test_rejects_other_stores():
    with pytest.raises(TypeError, match="for stores of your own use PyG's NeighborLoader"):
        NeighborLoader((1, 2), [2])


def test_empty_seeds_make_no_batch(device):
    data = make_data()
    loader = NeighborLoader(from_data(data, device), [2], input_nodes=[], batch_size=2)

    assert list(loader) == []


def test_transform_and_transform_sampler_output():
    calls = []
    loader = NeighborLoader(
        from_data(make_data(), "cpu"),
        [2],
        input_nodes=[3],
        transform_sampler_output=lambda out: calls.append(type(out).__name__) or out,
        transform=lambda batch: (calls.append(batch.num_nodes > 0), batch)[1],
    )

    next(iter(loader))

    assert calls == ["SamplerOutput", True]


def test_workers_sample_and_the_main_process_gathers(device):
    data = make_data()
    loader = NeighborLoader(
        from_data(data, device), [4, 3], input_nodes=data.train_mask, batch_size=4, num_workers=2
    )

    batches = list(loader)

    assert sum(batch.batch_size for batch in batches) == 20
    for batch in batches:
        assert batch.x.device.type == device.type
        batch.seeds = batch.input_id.cpu()
        assert_batch(batch, data)


@pytest.mark.gpu
class TestOnGpu:
    def test_workers_that_gather_are_refused(self):
        stores = from_data(make_data(), "cuda")

        with pytest.raises(ValueError, match="filter_per_worker is True"):
            NeighborLoader(stores, [2], filter_per_worker=True)

    def test_stock_loader_with_gathering_workers_names_the_way_out(self):
        stores = from_data(make_data(), "cuda")
        loader = torch_geometric.loader.NeighborLoader(
            stores,
            [2],
            input_nodes=torch.arange(4),
            neighbor_sampler=DirectNeighborSampler(stores, [2], device="cpu"),
            num_workers=1,
        )

        with pytest.raises(RuntimeError, match="filter_per_worker=False"):
            next(iter(loader))

    def test_pinning_is_refused(self):
        with pytest.raises(ValueError, match="pin_memory is True"):
            NeighborLoader(from_data(make_data(), "cuda"), [2], pin_memory=True)

    def test_gpu_sampler_in_workers_is_refused(self):
        stores = from_data(make_data(), "cuda")
        sampler = DirectNeighborSampler(stores, [2], device="cuda")

        with pytest.raises(ValueError, match="neighbor_sampler runs on the GPU"):
            NeighborLoader(stores, [2], neighbor_sampler=sampler, num_workers=1)


def test_a_wrong_id_leaves_the_process_in_order(device):
    data = make_data()
    feature_store, graph_store = from_data(data, device)

    with pytest.raises(IndexError, match="id 60 is outside tensor 'x', which has 60 rows"):
        feature_store[None, "x", torch.tensor([1, 60], device=device)]

    batch = next(iter(NeighborLoader((feature_store, graph_store), [2], batch_size=60)))
    assert batch.x.cpu().equal(data.x[batch.n_id.cpu()])


def test_trains(device):
    data = make_data()
    feature_store, graph_store = from_data(data, device)
    loader = NeighborLoader((feature_store, graph_store), [5, 5], batch_size=20, shuffle=True)
    model = GraphSAGE(5, 16, num_layers=2, out_channels=60).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    losses = []
    for _ in range(15):
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    assert losses[-1] < 0.8 * losses[0]


def test_all_is_sorted_and_complete():
    assert pyg_direct.__all__ == sorted(pyg_direct.__all__)
    assert all(hasattr(pyg_direct, name) for name in pyg_direct.__all__)


def test_a_graph_without_edges(device):
    data = Data(x=torch.randn(9, 3))

    (batch,) = NeighborLoader(from_data(data, device), [2, 2], [5, 1], batch_size=2)

    assert batch.n_id.tolist() == [5, 1]
    assert batch.x.cpu().equal(data.x[[5, 1]])
    assert batch.edge_index.shape == (2, 0)


def test_node_types_that_no_edge_names(device):
    data = make_hetero_data()
    data["topic"].num_nodes = 4

    (batch,) = NeighborLoader(from_data(data, device), [2], ("topic", [3, 1]), batch_size=2)
    (papers,) = NeighborLoader(from_data(data, device), [2], "paper", batch_size=40)

    assert batch["topic"].n_id.tolist() == [3, 1]
    assert batch["paper"].num_nodes == 0
    assert_hetero_batch(papers, data)
