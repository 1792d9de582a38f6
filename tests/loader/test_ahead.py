"""Batches that a CUDA graph makes whole are those that the CPU makes."""

import gc

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_direct import DirectNeighborSampler, NeighborLoader, from_data
from pyg_direct.loader.ahead import ROOM
from pyg_direct.loader.stages import CudaStages
from tests.loader.graphs import assert_same_batches, make_data

pytestmark = pytest.mark.gpu
NUM_NODES = 600


def _make_data():
    data = make_data(NUM_NODES, 6000)
    del data.edge_attr  # whose rows no graph gathers
    generator = torch.Generator().manual_seed(2)
    data.half = torch.randn(NUM_NODES, 3, generator=generator).half()
    data.pair = torch.randn(NUM_NODES, 2, generator=generator, dtype=torch.complex64)
    return data


def _make_hetero_data():
    generator = torch.Generator().manual_seed(1)
    sizes, data = {"paper": 500, "author": 300, "venue": 7}, HeteroData()
    data["paper"].x = torch.randn(500, 5, generator=generator)
    data["paper"].y = torch.arange(500)
    data["author"].num_nodes = 300
    data["venue"].x = torch.randn(7, 2, generator=generator)
    for source, name, destination in (
        ("author", "writes", "paper"), ("paper", "cites", "paper"), ("venue", "holds", "author"),
        ("paper", "lists", "venue"),
    ):  # fmt: skip
        ends = [
            torch.randint(sizes[kind], (3000,), generator=generator)
            for kind in (source, destination)
        ]
        data[source, name, destination].edge_index = torch.stack(ends)
    return data


@pytest.fixture
def taken(monkeypatch):
    """A list that grows with every batch that came whole."""
    sizes, take = [], CudaStages._take

    def note(self, *arguments):
        product = take(self, *arguments)
        sizes.append(product.batch.num_nodes)
        return product

    monkeypatch.setattr(CudaStages, "_take", note)
    return sizes


def _loaders(data, devices=("cpu", "cuda"), **options):
    options = {"num_neighbors": [4, 3], "batch_size": 30, "seed": 5, "depth": 2, **options}
    return [NeighborLoader(from_data(data, device), **options) for device in devices]


def _epoch(loader, seed=3):
    torch.manual_seed(seed)
    return list(loader)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"shuffle": True}], ids=str)
def test_whole_batches_equal_the_cpu(options, depth, taken):
    data = _make_data()
    on_cpu, on_gpu = _loaders(data, depth=depth, **options)

    for epoch in range(3):
        batches = _epoch(on_gpu, epoch)
        assert_same_batches(_epoch(on_cpu, epoch), batches)
        for batch in (each.cpu() for each in batches):
            for name in ("x", "y", "train_mask", "half", "pair"):
                assert batch[name].equal(data[name][batch.n_id])
            edges = batch.n_id[batch.edge_index]
            assert edges.equal(data.edge_index[:, batch.e_id])
            assert batch.n_id[: batch.batch_size].equal(batch.input_id)

    # All but the first ones of each size and stream.
    assert len(taken) >= 3 * 20 - 2 * (depth + 2)


def test_whole_heterogeneous_batches_equal_the_cpu(taken):
    data = _make_hetero_data()
    options = {"input_nodes": ("paper", torch.arange(500).flip(0)), "num_neighbors": [3, 2, 2]}
    on_cpu, on_gpu = _loaders(data, **options)

    for epoch in range(2):
        batches = _epoch(on_gpu, epoch)
        assert_same_batches(_epoch(on_cpu, epoch), batches)
        for batch in (each.cpu() for each in batches):
            assert batch["venue"].x.equal(data["venue"].x[batch["venue"].n_id])
            assert batch["paper"].y.equal(batch["paper"].n_id)
    assert len(taken) > 20


def test_seeds_that_repeat(taken):
    data = _make_data()
    seeds = torch.tensor([4, 4, 0, 59, 17, 4, 30, 599, 0, 0] * 30)
    on_cpu, on_gpu = _loaders(data, input_nodes=seeds, batch_size=20)

    assert_same_batches(_epoch(on_cpu), _epoch(on_gpu))
    assert len(taken) > 5


@pytest.mark.parametrize("num_hot", [0, 100, NUM_NODES])
def test_hot_rows(num_hot, taken):
    data = _make_data()
    on_cpu, on_gpu = _loaders(data)
    on_gpu.data[0].set_hot(None, "x", torch.arange(NUM_NODES).flip(0)[:num_hot])

    for _ in range(2):
        assert_same_batches(_epoch(on_cpu), _epoch(on_gpu))
    assert len(taken) > 25
    stats = on_gpu.stats()[-1]
    on_host = stats.num_host_rows - stats.num_hot_rows
    assert (on_host == 4 * stats.num_host_rows / 5) == (num_hot == NUM_NODES)
    assert (stats.num_hot_rows == 0) == (num_hot == 0)


def test_hot_rows_that_change_in_an_epoch(taken):
    data = _make_data()
    on_cpu, on_gpu = _loaders(data)
    _epoch(on_gpu)
    batches = []

    for number, batch in enumerate(on_gpu):
        if number in (6, 12):
            on_gpu.data[0].set_hot(None, "x", torch.randperm(NUM_NODES)[: 40 * number])
        batches.append(batch)

    _epoch(on_cpu)
    assert_same_batches(_epoch(on_cpu), batches)
    num_taken = len(taken)
    assert_same_batches(_epoch(on_cpu), _epoch(on_gpu))
    assert len(taken) > num_taken + 10


def test_rows_of_the_gpu(taken):
    data = _make_data()
    (on_cpu,) = _loaders(data, ["cpu"])
    stores = from_data(data.clone().to("cuda"), "cuda")
    on_gpu = NeighborLoader(stores, [4, 3], batch_size=30, seed=5, depth=2)

    for _ in range(2):
        assert_same_batches(_epoch(on_cpu), _epoch(on_gpu))
    assert len(taken) > 25
    assert on_gpu.stats()[-1].host_bytes == 0


def test_a_closed_table_is_refused_and_the_gpu_unharmed():
    _, on_gpu = _loaders(_make_data())
    _epoch(on_gpu)
    batches = iter(on_gpu)
    next(batches)

    on_gpu.data[0].table(None, "x").close()

    with pytest.raises(ValueError, match="is closed; put the tensor again"):
        list(batches)
    torch.cuda.synchronize()
    assert torch.ones(3, device="cuda").sum().item() == 3


def test_a_tensor_that_is_put_again(taken):
    data = _make_data()
    _, on_gpu = _loaders(data)
    _epoch(on_gpu)
    x = data.x * 2

    on_gpu.data[0][None, "x", None] = x

    for batch in _epoch(on_gpu):
        assert batch.x.cpu().equal(x[batch.n_id.cpu()])
    num_taken = len(taken)
    _epoch(on_gpu)
    assert len(taken) == num_taken + 20


def test_a_write_in_the_loop_reaches_the_batches_behind_those_on_their_way():
    data = _make_data()
    _, on_gpu = _loaders(data, depth=2)
    _epoch(on_gpu)

    for number, batch in enumerate(on_gpu):
        if number == 5:
            on_gpu.data[0][None, "x", None] = data.x * 2
            on_gpu.data[0][None, "late", None] = data.y + 1
        expected = data.x[batch.n_id.cpu()]
        assert batch.x.cpu().equal(expected * (1 if number <= 5 else 2)) or 5 < number <= 5 + 4
        assert ("late" in batch) == (number > 5) or 5 < number <= 5 + 4


def test_no_whole_batch_holds_half_a_write(taken):
    stores = from_data(_make_data(), "cuda")
    stores[0][None, "x", None] = torch.zeros(NUM_NODES, 256)
    loader = NeighborLoader(stores, [4, 3], batch_size=20, seed=2, depth=2)
    list(loader)

    seen = []
    for number, batch in enumerate(loader):
        seen.append(batch.x.unique().tolist())
        rows = torch.full((NUM_NODES, 256), 1.0 + number)
        stores[0].update_tensor(rows, None, "x", index=torch.arange(NUM_NODES))

    assert [len(values) for values in seen] == [1] * len(loader)
    assert len({values[0] for values in seen}) > len(loader) - 5
    assert len(taken) > 50


def test_batches_with_more_nodes_than_there_is_room_for(taken):
    # A ring: each seed reaches itself alone, but those behind it reach ten others.
    ring, star = torch.arange(300), torch.arange(300, 600)
    sources = (star.view(-1, 1) + torch.arange(1, 11)) % 300
    edge_index = torch.cat(
        [torch.stack([ring, ring]), torch.stack([sources.flatten(), star.repeat_interleave(10)])], 1
    )
    data = Data(x=torch.randn(600, 5), edge_index=edge_index)
    on_cpu, on_gpu = _loaders(data, num_neighbors=[5])

    followers = []
    for _ in range(4):
        assert_same_batches(_epoch(on_cpu), _epoch(on_gpu))
        followers.append(on_gpu._rows_ahead)

    assert max(taken) > ROOM * 30 > min(taken)
    # The second one has room for what came, and the graphs of the first one are gone.
    assert followers[0] is not followers[1] is followers[3]
    captures = on_gpu.node_sampler._workplace._captures._captured
    assert {key.follower for key in captures} == {followers[3]}


def test_the_consumer_may_change_its_stream():
    data = _make_data()
    on_cpu, on_gpu = _loaders(data)
    _epoch(on_gpu)
    streams, doubled = [torch.cuda.Stream() for _ in range(2)], []

    batches = iter(on_gpu)
    for number in range(20):
        with torch.cuda.stream(streams[number % 2]):
            torch.cuda._sleep(1_000_000)
            batch = next(batches)
            doubled.append(batch.x * 2)
            del batch

    torch.cuda.synchronize()
    _epoch(on_cpu)
    for one, batch in zip(doubled, _epoch(on_cpu), strict=True):
        assert one.cpu().equal(batch.x * 2)


def test_epochs_left_early_and_at_the_same_time():
    data = _make_data()
    on_cpu, on_gpu = _loaders(data)

    for _ in range(4):
        for number, _batch in enumerate(on_gpu):
            if number == 7:
                break
    on_cpu.epoch = on_gpu.epoch
    first, second = iter(on_gpu), iter(on_gpu)
    pairs = [(next(first), next(second)) for _ in range(20)]

    assert_same_batches(_epoch(on_cpu), [one for one, _ in pairs])
    assert_same_batches(_epoch(on_cpu), [other for _, other in pairs])


def test_graphs_of_loaders_that_are_gone_do_not_pile_up(taken):
    stores = from_data(_make_data(), "cuda")
    sampler = DirectNeighborSampler(stores, [4, 3], device="cuda", seed=5)

    for _ in range(4):
        list(NeighborLoader(stores, [4, 3], batch_size=30, neighbor_sampler=sampler, depth=2))
        gc.collect()

    captures = sampler._workplace._captures._captured
    assert len({key.follower for key in captures}) == 1
    assert len(taken) > 50


def test_a_custom_sampler_of_batches(taken):
    data = _make_data()
    order = torch.randperm(NUM_NODES).view(-1, 20).tolist()
    options = {"batch_size": 1, "batch_sampler": order}
    on_cpu, on_gpu = _loaders(data, **options)

    for _ in range(2):
        assert_same_batches(_epoch(on_cpu), _epoch(on_gpu))
    assert len(taken) > 40


@pytest.mark.parametrize(
    "options",
    [
        {"disjoint": True},
        {"subgraph_type": "induced"},
        {"subgraph_type": "bidirectional"},
        {"transform_sampler_output": lambda out: out},
        {"depth": 0},
        {"num_neighbors": [-1]},
    ],
    ids=str,
)
def test_what_no_graph_makes_whole(options, taken):
    on_cpu, on_gpu = _loaders(_make_data(), **options)

    assert_same_batches(_epoch(on_cpu), _epoch(on_gpu))
    assert not taken


def test_rows_of_edges_are_gathered_apart(taken):
    on_cpu, on_gpu = _loaders(make_data(NUM_NODES, 6000))

    assert_same_batches(_epoch(on_cpu), _epoch(on_gpu))
    assert not taken


def test_counted_hits_are_those_of_the_batches(taken):
    _, on_gpu = _loaders(_make_data())
    on_gpu.data[0].set_hot(None, "x", torch.arange(100))
    table = on_gpu.data[0].table(None, "x")
    table.count_hits()

    num_rows = sum(batch.num_nodes for batch in _epoch(on_gpu))

    assert table.hits.num_rows == num_rows
    assert not taken


def test_a_sampler_of_the_users_own_class(taken):
    class Reversed(DirectNeighborSampler):
        def sample_from_nodes(self, inputs, *, batch=None):
            return super().sample_from_nodes(inputs, batch=batch)

    data = _make_data()
    stores = from_data(data, "cuda")
    sampler = Reversed(stores, [4, 3], device="cuda", seed=5)
    loader = NeighborLoader(stores, [4, 3], batch_size=30, neighbor_sampler=sampler, depth=2)
    (on_cpu,) = _loaders(data, ["cpu"])

    assert_same_batches(_epoch(on_cpu), _epoch(loader))
    assert not taken
