import pytest
import torch
from torch_geometric.data import Data, HeteroData

import pyg_direct
from pyg_direct.stores import from_data, place
from tests.stores.contract import FeatureStoreContract

NUM_NODES = 50


def graph():
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, NUM_NODES, (2, 400), generator=generator) ** 2 // NUM_NODES
    x = torch.rand(NUM_NODES, 16, generator=generator)
    return Data(x=x, y=torch.arange(NUM_NODES), edge_index=edge_index)


class TestTieredRows(FeatureStoreContract):
    @pytest.fixture
    def store(self, device):
        with _StoreWithHotRows(device) as store:
            yield store


class _StoreWithHotRows(pyg_direct.DirectFeatureStore):
    """Every third row of whatever is put is hot."""

    def _make_table(self, rows, key):
        self._tables[key] = super()._make_table(rows, key)
        self.set_hot(*key, torch.arange(0, rows.shape[0], 3))
        return self._tables[key]


@pytest.mark.parametrize("budget_bytes", [0, 100, 1000, 2400, 10_000, 10**6])
@pytest.mark.parametrize("score", ["degree", "reverse_pagerank"])
def test_place_keeps_rows_and_budget(device, score, budget_bytes):
    data = graph()
    feature_store, graph_store = from_data(data, device)

    plan = place(feature_store, graph_store, budget_bytes, score=score)

    assert plan is feature_store.placement
    assert plan.device_bytes <= budget_bytes
    assert graph_store.placement == plan.topology
    index = torch.tensor([3, 49, 0, 3])
    assert feature_store[None, "x", index].cpu().equal(data.x[index])
    assert feature_store[None, "y", index].cpu().equal(data.y[index])
    hot = {each.name: each.num_hot for each in plan.tensors if each.key}
    assert hot == {
        "tensor 'x'": getattr(feature_store.table(None, "x"), "num_hot", 0),
        "tensor 'y'": getattr(feature_store.table(None, "y"), "num_hot", 0),
    }


def test_place_prefers_what_is_read_more(device):
    data = graph()
    feature_store, graph_store = from_data(data, device)
    scores = torch.arange(NUM_NODES).float()
    topology_bytes = 8 * 51 + 16 * 400 if device.type == "cuda" else 0

    plan = place(feature_store, graph_store, topology_bytes + 400 + 200 + 640, score=scores)

    *_, x, y = plan.tensors
    assert (y.num_hot, x.num_hot) == (50, 10)
    assert x.device_share == pytest.approx(sum(range(40, 50)) / sum(range(50)))
    assert feature_store.table(None, "x")._tier.ids.tolist() == [*range(40, 50)]


def test_explain_is_a_table(device):
    feature_store, graph_store = from_data(graph(), device)

    text = place(feature_store, graph_store, 10_000).explain()

    lines = text.splitlines()
    assert lines[0].startswith("what")
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "pointers", "edges", "tensor 'x'", "tensor 'y'", "all",
    ]  # fmt: skip
    assert "budget 10,000" in lines[-1]
    assert "100.0%" in lines[4]


def test_place_of_types(device):
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.rand(20, 4), torch.rand(10, 8)
    data["author", "writes", "paper"].edge_index = torch.stack(
        [torch.arange(20) % 3, torch.arange(20)]
    )
    data["author", "writes", "paper"].edge_attr = torch.rand(20, 2)
    feature_store, _ = from_data(
        data, device, budget_bytes=10**6, score="weighted_reverse_pagerank",
        seeds={"paper": torch.arange(20) < 5},
    )  # fmt: skip

    *_, paper, author, edges = feature_store.placement.tensors
    assert (paper.num_hot, author.num_hot) == (20, 10)
    assert (edges.num_hot, edges.device_share) == (0, None)
    assert feature_store["author", "x", [9, 0]].cpu().equal(data["author"].x[[9, 0]])


def test_place_again_gives_up_the_first(device):
    feature_store, graph_store = from_data(graph(), device, budget_bytes=10**6)

    place(feature_store, graph_store, 0)

    assert feature_store.table(None, "x").num_hot == 0
    assert graph_store.placement == "mapped"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget_bytes": -1}, "budget_bytes is -1, expected 0 or more, or 'auto'"),
        ({"budget_bytes": "all"}, "budget_bytes is 'all'"),
        ({"score": "best"}, "score is 'best' and seeds are not given"),
        ({"score": "weighted_reverse_pagerank"}, "seeds are not given"),
        ({"score": "degree", "seeds": [0]}, "seeds are given"),
        ({"score": torch.ones(3)}, "there are 3 scores of None, expected 50"),
    ],
)
def test_place_rejects(device, options, message):
    feature_store, graph_store = from_data(graph(), device)

    with pytest.raises(ValueError, match=message):
        place(feature_store, graph_store, **options)


def test_auto_leaves_a_reserve(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (3000, 10_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 400)
    feature_store, graph_store = from_data(graph(), device)

    plan = place(feature_store, graph_store, reserve_bytes=1000)

    assert plan.budget_bytes == (2100 if device.type == "cuda" else 0)


def test_out_of_memory_shrinks_the_plan(device, monkeypatch):
    data = graph()
    feature_store, graph_store = from_data(data, device)
    set_hot = feature_store.set_hot

    def refuse(group, name, ids, **options):
        if ids.numel() > 20:
            raise torch.OutOfMemoryError("no")
        set_hot(group, name, ids, **options)

    monkeypatch.setattr(feature_store, "set_hot", refuse)
    with pytest.warns(UserWarning, match="device memory ran out: 12 instead of 50 rows of tensor"):
        plan = place(feature_store, graph_store, 10**6)

    *_, x, y = plan.tensors
    assert (x.num_hot, y.num_hot) == (12, 12)
    assert feature_store[None, "x", torch.arange(50)].cpu().equal(data.x)


@pytest.mark.gpu
def test_out_of_memory_for_topology_shrinks_it(monkeypatch):
    feature_store, graph_store = from_data(graph(), "cuda")
    empty = torch.empty

    def refuse(*size, **options):
        if options.get("dtype") == torch.uint8 and size[0] > 1000:
            raise torch.OutOfMemoryError("no")
        return empty(*size, **options)

    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.warns(UserWarning, match="topology is 'colptr'"):
        plan = place(feature_store, graph_store, 10**6)

    assert (plan.topology, graph_store.placement) == ("colptr", "colptr")
    assert plan.tensors[1].device_bytes == 0


def test_batches_are_the_same_with_and_without(device):
    batches = []
    for budget_bytes in (None, 1000, 10**6):
        loader = pyg_direct.NeighborLoader(
            from_data(graph(), device, budget_bytes=budget_bytes), [4, 3], batch_size=25, seed=1
        )
        batches.append([*loader])

    for plain, few, everything in zip(*batches, strict=True):
        assert plain.x.equal(few.x)
        assert plain.x.equal(everything.x)
        assert plain.edge_index.equal(everything.edge_index)


def test_rows_on_the_device_have_no_hot_ones(device):
    feature_store, _ = from_data(graph(), device)

    if device.type == "cuda":
        feature_store[None, "z", None] = torch.rand(50, 2, device=device)
        with pytest.raises(ValueError, match="'z' stands on cuda:0, expected host memory"):
            feature_store.set_hot(None, "z", torch.tensor([1]))
    with pytest.raises(KeyError, match="no tensor .*nothing"):
        feature_store.set_hot(None, "nothing", torch.tensor([1]))
