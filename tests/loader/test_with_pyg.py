"""What PyG and its users do with a loader: each works, or refuses and says the way out."""

from types import SimpleNamespace

import pytest
import torch
import torch_geometric.loader
from torch_geometric.loader import CachedLoader, ImbalancedSampler, PrefetchLoader, ZipLoader
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv
from torch_geometric.sampler import BaseSampler, HGTSampler, SamplerOutput, hgt_sampler
from torch_geometric.utils import trim_to_layer

from pyg_direct import DirectNeighborSampler, LinkNeighborLoader, NeighborLoader, from_data
from pyg_direct.loader.batch import DeviceData, DeviceHeteroData
from tests.loader.graphs import (
    assert_batch,
    assert_hetero_batch,
    assert_same_batches,
    make_data,
    make_hetero_data,
)


def test_trim_to_layer(device):
    loader = NeighborLoader(from_data(make_data(), device), [4, 3], batch_size=7)
    model = GraphSAGE(5, 8, num_layers=2, out_channels=3).to(device).eval()

    for batch in loader:
        whole = model(batch.x, batch.edge_index)[: batch.batch_size]
        trimmed = model(
            batch.x, batch.edge_index,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )[: batch.batch_size]  # fmt: skip
        # The same sums, of float32, in another order.
        torch.testing.assert_close(trimmed, whole, rtol=1e-4, atol=1e-5)
        x, edge_index, _ = trim_to_layer(
            1, batch.num_sampled_nodes, batch.num_sampled_edges, batch.x, batch.edge_index
        )
        assert x.shape[0] == sum(batch.num_sampled_nodes[:2])
        assert edge_index.shape[1] == batch.num_sampled_edges[0]


def test_trim_to_layer_of_a_heterogeneous_batch(device):
    data = make_hetero_data()
    data["author"].x = torch.randn(30, 4)
    # Every type is a destination, so that a layer returns all of them.
    data["author", "at", "venue"].edge_index = torch.randint(0, 7, (2, 30))
    loader = NeighborLoader(from_data(data, device), [4, 3], "paper", batch_size=8)
    convs = [
        HeteroConv({kind: SAGEConv((-1, -1), 6) for kind in data.edge_types}).to(device)
        for _ in range(2)
    ]

    def embed(batch, is_trimmed):
        x, edges = batch.x_dict, batch.edge_index_dict
        for layer, conv in enumerate(convs):
            if is_trimmed:
                x, edges, _ = trim_to_layer(
                    layer, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, x, edges
                )
            x = conv(x, edges)
        return x["paper"][: batch["paper"].batch_size]

    for batch in loader:
        torch.testing.assert_close(embed(batch, True), embed(batch, False), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
def test_pinning_where_there_is_nothing_to_pin_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    stores = from_data(make_data(), "cpu")
    plain, pinned = (
        NeighborLoader(stores, [4, 3], batch_size=7, seed=1, pin_memory=pin_memory)
        for pin_memory in (False, True)
    )

    assert_same_batches(plain, pinned)


def test_inference_layer_by_layer(device):
    data = make_data()
    loader = NeighborLoader(from_data(data, device), [-1], batch_size=16)
    model = GraphSAGE(5, 8, num_layers=2, out_channels=3).to(device).eval()

    with torch.no_grad():
        expected = model(data.x.to(device), data.edge_index.to(device))
        found = model.inference(loader, device=device, embedding_device=device)

    torch.testing.assert_close(found.to(device), expected, rtol=1e-4, atol=1e-5)


def test_batches_move_and_copy(device):
    batch = next(iter(NeighborLoader(from_data(make_data(), device), [4, 3], batch_size=7)))

    assert batch.to("cpu").x.device.type == "cpu"
    assert batch.to(device).clone().x.equal(batch.x)
    assert {"n_id", "e_id", "input_id", "batch_size"} <= set(batch.keys())


def test_prefetch_loader_on_the_cpu():
    data = make_data()
    loader = NeighborLoader(from_data(data, "cpu"), [4, 3], batch_size=7)

    for batch in PrefetchLoader(loader, device="cpu"):
        batch.seeds = batch.input_id
        assert_batch(batch, data)


@pytest.mark.parametrize("filter_per_worker", [None, True, False])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_zip_loader(device, filter_per_worker, num_workers):
    if device.type == "cuda" and num_workers:
        pytest.skip("its loaders have samplers on the GPU, which workers refuse in words")
    data = make_data()
    stores = from_data(data, device)
    loaders = [NeighborLoader(stores, [4], input_nodes=nodes) for nodes in (range(30), [5, 1, 9])]
    zipped = ZipLoader(
        loaders, filter_per_worker=filter_per_worker, batch_size=2, num_workers=num_workers
    )

    seen = []
    for batches in zipped:
        for batch, nodes in zip(batches, (torch.arange(30), torch.tensor([5, 1, 9])), strict=True):
            batch.seeds = nodes[batch.input_id.cpu()]
            assert_batch(batch, data)
        seen.append([batch.batch_size for batch in batches])
    assert seen == [[2, 2], [1, 1]]


def test_cached_loader(device):
    loader = NeighborLoader(from_data(make_data(), device), [4, 3], batch_size=7)
    cached = CachedLoader(loader, device=device)

    first = list(cached)

    assert_same_batches(first, list(cached))
    assert loader.epoch == 1


def test_imbalanced_sampler(device):
    data = make_data()
    data.y = torch.arange(60) // 50
    sampler = ImbalancedSampler(data)
    loader = NeighborLoader(from_data(data, device), [4], batch_size=10, sampler=sampler)

    share = sum(int(batch.y[: batch.batch_size].sum()) for batch in loader) / 60

    # A sixth of the nodes are of class 1; drawn evenly, half of the seeds are, give or take 0.065.
    assert 0.25 < share < 0.75


def test_stock_link_loader_takes_the_stores(device):
    data = make_data()
    stores = from_data(data, device)
    options = {"batch_size": 40, "neg_sampling": "binary"}
    ours = LinkNeighborLoader(stores, [3], (None, data.edge_index), seed=2, **options)
    stock = torch_geometric.loader.LinkNeighborLoader(
        stores, [3], (None, data.edge_index), filter_per_worker=False,
        neighbor_sampler=DirectNeighborSampler(stores, [3], seed=2, device=device), **options,
    )  # fmt: skip

    for batch, expected in zip(ours, stock, strict=True):
        for name in ("n_id", "e_id", "x", "edge_index", "edge_label_index", "edge_label"):
            assert batch[name].cpu().equal(expected[name].cpu()), name


@pytest.mark.parametrize("cls", [DeviceData, DeviceHeteroData])
def test_batches_on_a_gpu_have_nothing_to_pin(monkeypatch, cls):
    batch, pinned = cls(), []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    if cls is DeviceData:
        batch.x = torch.ones(2)
    else:
        batch["paper"].x = torch.ones(2)

    batch.pin_memory()
    assert len(pinned) == 1
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    assert batch.pin_memory() is batch
    assert len(pinned) == 1
    assert type(batch.clone()) is cls


class _Own(BaseSampler):
    """A sampler of a user's: the seeds, and edge 0 under an id of its own."""

    def __init__(self, num_edges):
        self._perm = torch.arange(num_edges).flip(0)
        self._num_edges = num_edges

    def sample_from_nodes(self, inputs):
        loop = torch.zeros(1, dtype=torch.int64)
        return SamplerOutput(
            inputs.node, loop, loop, torch.tensor([self._num_edges - 1]),
            metadata=(inputs.input_id, inputs.time),
        )  # fmt: skip

    def sample_from_edges(self, inputs, neg_sampling=None):
        raise NotImplementedError

    @property
    def edge_permutation(self):
        return self._perm


@pytest.mark.parametrize("depth", [None, 2])
def test_a_sampler_of_the_users(device, depth):
    data = make_data()
    loader = NeighborLoader(
        from_data(data, device), [], neighbor_sampler=_Own(400), batch_size=9, depth=depth
    )

    assert loader.depth == (depth or 0)
    for batch in loader:
        assert batch.e_id.tolist() == [0]
        assert batch.edge_attr.cpu().equal(data.edge_attr[:1])
        assert batch.x.cpu().equal(data.x[batch.n_id.cpu()])


def _budget_sample(colptr, row, seeds, num_samples, num_hops):
    """Stands for torch-sparse's operation: one hop, all edges into the seeds."""
    (seed_type,) = seeds
    nodes, rows, cols, edges = {kind: [] for kind in num_samples}, {}, {}, {}
    nodes[seed_type] = seeds[seed_type].tolist()
    for kind, ids in row.items():
        source, _, destination = kind.split("__")
        rows[kind], cols[kind], edges[kind] = [], [], []
        if destination == seed_type:
            for col, seed in enumerate(seeds[seed_type].tolist()):
                for edge in range(int(colptr[kind][seed]), int(colptr[kind][seed + 1])):
                    if int(ids[edge]) not in nodes[source]:
                        nodes[source].append(int(ids[edge]))
                    rows[kind].append(nodes[source].index(int(ids[edge])))
                    cols[kind].append(col)
                    edges[kind].append(edge)
    return tuple(
        {kind: torch.tensor(ids, dtype=torch.int64) for kind, ids in each.items()}
        for each in (nodes, rows, cols, edges)
    )


class TestBudgetSampling:
    """PyG's HGT sampler draws nodes by type, not neighbours by node, which ours does not do."""

    @pytest.mark.parametrize(
        ("is_installed", "error"), [(False, ImportError), (True, NotImplementedError)]
    )
    def test_pygs_loader_refuses_stores_and_says_why(self, monkeypatch, is_installed, error):
        monkeypatch.setattr(hgt_sampler, "WITH_TORCH_SPARSE", is_installed)

        with pytest.raises(error, match="torch-sparse|does not support a data object of type"):
            torch_geometric.loader.HGTLoader(from_data(make_hetero_data(), "cpu"), [4], "paper")

    @pytest.mark.parametrize("depth", [0, 2])
    def test_pygs_sampler_in_our_loader_is_the_way_out(self, monkeypatch, device, depth):
        monkeypatch.setattr(hgt_sampler, "WITH_TORCH_SPARSE", True)
        operations = SimpleNamespace(hgt_sample=_budget_sample)
        monkeypatch.setattr(torch.ops, "torch_sparse", operations, raising=False)
        data = make_hetero_data()
        loader = NeighborLoader(
            from_data(data, device), [], "paper", neighbor_sampler=HGTSampler(data, [4]),
            batch_size=8, depth=depth,
        )  # fmt: skip

        for batch in loader:
            assert_hetero_batch(batch, data)
            assert batch["paper"].n_id[:8].equal(batch["paper"].input_id)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"is_sorted": True}, "is_sorted is True, but a graph store"),
        ({"batch_size": None}, "batch_size is None"),
        ({"depth": 1.5}, "depth is 1.5"),
        ({"input_time": torch.arange(3), "time_attr": "time"}, "input_time has 3 entries"),
    ],
    ids=["is_sorted", "batch_size", "depth", "input_time"],
)
def test_arguments_without_meaning_are_refused(options, message):
    data = make_data()
    data.time = torch.arange(60)

    with pytest.raises(ValueError, match=message):
        NeighborLoader(from_data(data, "cpu"), [2], **options)


@pytest.mark.parametrize(
    "option",
    [
        {"replace": True},
        {"disjoint": True},
        {"subgraph_type": "induced"},
        {"temporal_strategy": "last"},
        {"weight_attr": "weight"},
        {"directed": False},
        {"seed": 3},
    ],
    ids=str,
)
def test_options_beside_a_sampler_are_refused(option):
    stores = from_data(make_data(), "cpu")
    sampler = DirectNeighborSampler(stores, [2], device="cpu")

    with pytest.raises(ValueError, match=f"{next(iter(option))} is .*give it to the sampler"):
        NeighborLoader(stores, [2], neighbor_sampler=sampler, **option)


def test_sorted_edges_of_a_graph_in_memory():
    data = make_data()
    order = data.edge_index[1].argsort()
    data.edge_index, data.edge_attr = data.edge_index[:, order], data.edge_attr[order]

    loader = NeighborLoader(data, [4], is_sorted=True, batch_size=20)

    assert loader.data[1].topology(None).perm is None
    for batch in loader:
        batch.seeds = batch.input_id.cpu()
        assert_batch(batch, data)


def test_time_and_input_time(device):
    data = make_data()
    data.time = torch.arange(60)
    loader = NeighborLoader(
        from_data(data, device), [5, 5], [50, 40, 30], input_time=torch.tensor([20, 45, 35]),
        time_attr="time", batch_size=3,
    )  # fmt: skip

    (batch,) = loader

    batch = batch.cpu()
    assert batch.seed_time.tolist() == [20, 45, 35]
    is_neighbor = torch.arange(batch.num_nodes) >= 3
    assert (batch.time <= batch.seed_time[batch.batch])[is_neighbor].all()


def test_input_id(device):
    loader = NeighborLoader(
        from_data(make_hetero_data(), device), [2], ("paper", [3, 1]),
        input_id=torch.tensor([7, 9]), batch_size=2,
    )  # fmt: skip

    (batch,) = loader

    assert batch["paper"].input_id.tolist() == [7, 9]
    assert batch["paper"].n_id[:2].tolist() == [3, 1]


def _rss_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


@pytest.mark.slow
@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (NeighborLoader, {"batch_size": 30}),
        (LinkNeighborLoader, {"batch_size": 200, "neg_sampling": "triplet"}),
    ],
    ids=["nodes", "links"],
)
def test_a_thousand_epochs_keep_memory_flat(device, cls, options, depth):
    loader = cls(from_data(make_data(), device), [4, 3], depth=depth, shuffle=True, **options)
    sizes = []
    for _ in range(5):
        for _ in range(200):
            for batch in loader:
                assert batch.num_nodes > 0
        sizes.append((_rss_mb(), torch.cuda.memory_reserved() if device.type == "cuda" else 0))

    assert sizes[-1][0] - sizes[1][0] < 8
    assert sizes[-1][1] == sizes[1][1]


@pytest.mark.gpu
class TestOnGpu:
    @pytest.mark.parametrize("depth", [0, 2])
    @pytest.mark.parametrize("make", [make_data, make_hetero_data])
    def test_prefetch_loader_passes_on_what_is_on_the_gpu(self, make, depth):
        nodes = "paper" if make is make_hetero_data else None
        loader = NeighborLoader(
            from_data(make(), "cuda"), [4], nodes, batch_size=7, seed=1, depth=depth
        )

        batches = list(PrefetchLoader(loader))

        loader.epoch = 0
        assert_same_batches(batches, loader)
        assert batches[0].is_cuda
        pinned = batches[0].cpu().pin_memory()
        assert (pinned["paper"] if nodes else pinned).x.is_pinned()

    def test_pinned_batches_of_a_store_on_the_cpu(self):
        data = make_data()
        loader = NeighborLoader(from_data(data, "cpu"), [4], batch_size=7, pin_memory=True)

        for batch in PrefetchLoader(loader):
            assert batch.x.is_cuda
            assert batch.x.cpu().equal(data.x[batch.n_id.cpu()])
        assert all(batch.x.is_pinned() for batch in loader)

    def test_cpu_sampler_feeds_a_store_on_the_gpu(self):
        data = make_data()
        stores = from_data(data, "cuda")
        sampler = DirectNeighborSampler(stores, [4, 3], device="cpu")
        loader = NeighborLoader(stores, [4, 3], neighbor_sampler=sampler, batch_size=7)

        for batch in loader:
            assert batch.edge_index.is_cuda
            batch.seeds = batch.input_id.cpu()
            assert_batch(batch, data)
