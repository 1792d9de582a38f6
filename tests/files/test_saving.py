import json
import os
import random
import signal
import time
import zlib

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from pyg_direct.files import StoredGraphError, load, save
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore, from_data
from tests.files.bars import record_bars
from tests.files.peak import MIB, peak_bytes
from tests.stores.contract import DTYPES, FeatureStoreContract, assert_same_bits, random_rows


def graph(num_nodes=50, value=0.0):
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, num_nodes, (2, 300), generator=generator)
    return Data(
        x=torch.full((num_nodes, 16), value), y=torch.arange(num_nodes), edge_index=edge_index
    )


class TestMappedRows(FeatureStoreContract):
    """Everything but writing by row works as if the rows were in memory."""

    @pytest.fixture
    def store(self, device):
        with DirectFeatureStore(device) as store:
            yield store

    @pytest.fixture
    def place(self, tmp_path):
        def place(tensor):
            folder = tmp_path / str(len([*tmp_path.iterdir()]))
            store = DirectFeatureStore("cpu")
            try:
                store["g", "x", None] = tensor
            except ValueError:
                return tensor
            save((store, DirectGraphStore()), folder)
            return load(folder, "cpu")[0].table("g", "x").rows()

        return place

    @pytest.mark.skip(reason="rows on a file that is mapped for reading")
    def test_update_tensor_replaces_rows(self):
        pass

    @pytest.mark.skip(reason="rows on a file that is mapped for reading")
    def test_update_tensor_keeps_the_last_of_equal_ids(self):
        pass


@pytest.mark.parametrize("shape", [(7,), (7, 3), (0, 3), (7, 0), (7, 2, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_comes_back(tmp_path, device, dtype, shape):
    x = random_rows(dtype, *shape)
    store = DirectFeatureStore("cpu")
    store["paper", "x", None] = x

    save((store, DirectGraphStore()), tmp_path / "graph")

    opened, _ = load(tmp_path / "graph", device, verify=True)
    assert_same_bits(opened["paper", "x", torch.arange(shape[0])], x)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_edges_come_back_as_they_were_put(tmp_path, layout):
    pairs = {
        "coo": (torch.tensor([0, 2, 1]), torch.tensor([1, 0, 0])),
        "csr": (torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2])),
        "csc": (torch.tensor([1, 0, 2]), torch.tensor([0, 1, 3])),
    }
    graph_store = DirectGraphStore()
    graph_store.put_edge_index(
        pairs[layout], edge_type=("a", "to", "b"), layout=layout, size=(3, 3)
    )

    save((DirectFeatureStore("cpu"), graph_store), tmp_path)

    _, opened = load(tmp_path, "cpu")
    before, after = (
        each.get_edge_index(("a", "to", "b"), layout) for each in (graph_store, opened)
    )
    assert all(left.equal(right) for left, right in zip(before, after, strict=True))
    assert opened.get_all_edge_attrs() == graph_store.get_all_edge_attrs()


def test_data_is_saved_as_its_stores(tmp_path, device):
    data = HeteroData()
    data["paper"].x = torch.rand(20, 4, dtype=torch.bfloat16)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 2], [19, 3]])
    data["author"].num_nodes = 3
    data["author", "writes", "paper"].edge_attr = torch.rand(2, 2)

    save(data, tmp_path / "graph", progress=True)

    features, edges = load(tmp_path / "graph", device)
    assert features.groups() == {"paper": ["x"], ("author", "writes", "paper"): ["edge_attr"]}
    assert_same_bits(features["paper", "x", [3, 0]], data["paper"].x[[3, 0]])
    assert edges.num_nodes() == {"author": 3, "paper": 20}


@pytest.mark.parametrize("order", ["rows", "columns"])
def test_data_is_never_twice_in_memory(tmp_path, order):
    shape = "1 << 16, 256" if order == "rows" else "256, 1 << 16"

    peak = peak_bytes(
        f"""
import pyg_direct.files.arrays as arrays
arrays.PIECE_BYTES = 1 << 20
x = torch.ones({shape})
data = Data(x=x if len(x) > 256 else x.T, edge_index=torch.tensor([[0, 1], [1, 0]]))
pyg_direct.save(Data(x=data.x[:9], edge_index=data.edge_index), {str(tmp_path)!r})
""",
        f"pyg_direct.save(data, {str(tmp_path)!r})",
    )

    # 64 MiB of features in pieces of one.
    assert peak < 16 * MIB
    rows = load(tmp_path, "cpu")[0].table(None, "x").rows()
    assert rows.shape == (1 << 16, 256)
    assert bool((rows == 1).all())


def test_edge_types_are_compressed_one_at_a_time(tmp_path, monkeypatch):
    data = HeteroData()
    data["a"].num_nodes = 3
    for name in ("first", "second"):
        data["a", name, "a"].edge_index = torch.tensor([[0, 1], [2, 0]])
    sizes = []
    put = DirectGraphStore.put_edge_index
    monkeypatch.setattr(
        DirectGraphStore,
        "put_edge_index",
        lambda store, *args, **kwargs: (
            put(store, *args, **kwargs),
            sizes.append(len(store.topologies())),
        )[0],
    )

    save(data, tmp_path)

    assert sizes == [1, 1]
    assert load(tmp_path, "cpu")[1].edge_types() == data.edge_types


@pytest.mark.parametrize("is_ascending", [False, True], ids=["shuffled", "ascending"])
def test_progress_ends_where_it_said(tmp_path, monkeypatch, is_ascending):
    data = graph()
    if is_ascending:
        data.edge_index = data.edge_index[:, data.edge_index[1].argsort()]
    bars = record_bars(monkeypatch)

    save(data, tmp_path, progress=True)
    save(load(tmp_path, "cpu"), tmp_path, progress=True)

    assert len(bars) == 2
    assert all(bar.n == bar.total > 50 * 16 * 4 for bar in bars)


def test_a_failure_leaves_the_old_graph_alone(tmp_path):
    save(graph(value=1.0), tmp_path)
    before = sorted(tmp_path.iterdir())
    data = graph(value=2.0)
    data.bad = torch.zeros(50, dtype=torch.uint16)

    with pytest.raises(TypeError, match="uint16"):
        save(data, tmp_path)

    assert sorted(tmp_path.iterdir()) == before


def test_rows_are_mapped_from_a_page_on(tmp_path):
    save(graph(), tmp_path)

    features, _ = load(tmp_path, "cpu")

    rows = features.table(None, "x").rows()
    assert rows.data_ptr() % 4096 == 0
    assert not features.table(None, "x").array.is_writable
    (file,) = [path for path in tmp_path.glob("*.npy") if np.load(path).shape == (50, 16)]
    assert np.load(file, allow_pickle=False).sum() == 0


def test_stores_may_be_saved_where_they_were_opened(tmp_path):
    save(graph(value=1.0), tmp_path)
    features, edges = load(tmp_path, "cpu")
    features.update_tensor(features[None, "x", :] + 1, None, "x", None)

    save((features, edges), tmp_path)

    assert load(tmp_path, "cpu")[0][None, "x", [3]].unique().tolist() == [2.0]
    assert len([*tmp_path.glob("*.npy")]) == 5
    assert features[None, "y", [3]].tolist() == [3]


def test_save_rejects(tmp_path):
    (tmp_path / "thesis.tex").write_text("my only copy")

    with pytest.raises(ValueError, match=r"holds \['thesis.tex'\], which pyg_direct did not write"):
        save(graph(), tmp_path)
    with pytest.raises(TypeError, match="stores is a list, expected"):
        save([1, 2], tmp_path / "graph")
    assert (tmp_path / "thesis.tex").exists()


def _manifest(folder, **changes):
    head = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(head | changes))


def _content(folder, change):
    head = json.loads((folder / "manifest.json").read_text())
    content = json.loads(head["content"])
    change(content)
    text = json.dumps(content)
    _manifest(folder, content=text, checksum=zlib.crc32(text.encode()))


def _array(folder, shape=(50, 16)):
    return next(each for each in folder.glob("*.npy") if np.load(each).shape == shape)


def _flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


DAMAGES = {
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "has no manifest.json"),
    "cut manifest": (lambda f: (f / "manifest.json").write_text('{"a'), "manifest.json is damaged"),
    "foreign": (lambda f: (f / "manifest.json").write_text("{}"), "not of pyg_direct"),
    "newer": (lambda f: _manifest(f, version=2), "has version 2, expected 1 or less"),
    "altered": (lambda f: _manifest(f, content="{}"), "checksum differs"),
    "lacking": (lambda f: _content(f, lambda c: c.pop("edges")), "KeyError"),
    "leading out": (
        lambda f: _content(f, lambda c: c["tensors"][0]["array"].update(file="../x.npy")),
        "x.npy",
    ),
    "no array": (lambda f: _array(f).unlink(), "cannot be mapped"),
    "cut array": (lambda f: os.truncate(_array(f), 5000), "cannot be mapped"),
    "cut header": (lambda f: os.truncate(_array(f), 50), "cannot be mapped"),
    "pickle": (
        lambda f: np.save(_array(f), np.array([{}] * 50, dtype=object), allow_pickle=True),
        "cannot be mapped",
    ),
    "other array": (lambda f: np.save(_array(f), np.zeros((50, 15), np.float32)), "expected"),
    "flipped bit": (lambda f: _flip(_array(f), 6000), "is damaged: its checksum differs"),
    "wrong size": (lambda f: _content(f, lambda c: c["edges"][0].update(size=[9, 9])), "pointers"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES.keys())
def test_load_refuses(tmp_path, damage, message):
    save(graph(), tmp_path)
    load(tmp_path, "cpu", verify=True)

    damage(tmp_path)

    with pytest.raises((StoredGraphError, FileNotFoundError), match=message):
        load(tmp_path, "cpu")


def test_large_arrays_are_verified_on_demand(tmp_path, monkeypatch):
    monkeypatch.setattr("pyg_direct.files.opening.ALWAYS_VERIFIED_BYTES", 100)
    save(graph(), tmp_path)
    _flip(_array(tmp_path), 6000)

    load(tmp_path, "cpu")
    with pytest.raises(StoredGraphError, match="checksum differs"):
        load(tmp_path, "cpu", verify=True)


def _save_for_ever(folder):
    graphs = [from_data(graph(2000, value), "cpu") for value in (1.0, 2.0)]
    while True:
        for stores in graphs:
            save(stores, folder)


def _kill_while_saving(folder, num_kills):
    save(graph(2000, 1.0), folder)
    dice = random.Random(42)
    for _ in range(num_kills):
        child = os.fork()
        if child == 0:
            try:
                _save_for_ever(folder)
            finally:
                os._exit(1)
        time.sleep(dice.uniform(0.005, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        features, edges = load(folder, "cpu", verify=True)
        assert features[None, "x", [0, 1999]].unique().tolist() in ([1.0], [2.0])
        assert edges.topology(None).num_edges == 300


# Python warns of forks beside threads; the child only writes files.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(
    "num_kills", [30, pytest.param(100, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_kill_leaves_the_old_or_the_new(tmp_path, num_kills):
    _kill_while_saving(tmp_path / "graph", num_kills)

    save(graph(2000, 3.0), tmp_path / "graph")

    assert len([*(tmp_path / "graph").iterdir()]) == 6
    assert load(tmp_path / "graph", "cpu")[0][None, "x", [5]].unique().tolist() == [3.0]


@pytest.mark.parametrize("convert", [lambda data: data, from_data], ids=["data", "stores"])
def test_arrays_and_nodes_that_no_edge_names_are_kept(tmp_path, convert):
    data = HeteroData()
    data["paper"].x = np.arange(6, dtype=np.float32).reshape(3, 2)
    data["paper"].x.setflags(write=False)
    data["lonely"].num_nodes = 5
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])

    save(convert(data), tmp_path)
    feature_store, graph_store = load(tmp_path, "cpu")

    assert feature_store["paper", "x", None].numpy().tolist() == data["paper"].x.tolist()
    assert graph_store.num_nodes() == {"paper": 3, "lonely": 5}
