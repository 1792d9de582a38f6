import gzip
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

import pyg_direct
from experiments.datasets import ogbn


class FakeDataset:
    """Answers as ``ogb.nodeproppred.NodePropPredDataset`` does."""

    def __init__(self, *, name, root):
        labels = np.array(
            [[0.0], [1.0], [np.nan], [1.0]] if "papers" in name else [[0], [1], [0], [1]]
        )
        graph = {
            "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
            "node_feat": np.arange(8, dtype=np.float32).reshape(4, 2),
            "num_nodes": 4,
        }
        self._item = (graph, labels)

    def __getitem__(self, number):
        return self._item

    def get_idx_split(self):
        return {"train": np.array([0]), "valid": np.array([1]), "test": np.array([3])}


@pytest.fixture
def fake_ogb(monkeypatch):
    package, module = ModuleType("ogb"), ModuleType("ogb.nodeproppred")
    module.NodePropPredDataset = FakeDataset
    monkeypatch.setitem(sys.modules, "ogb", package)
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", module)


@pytest.mark.usefixtures("fake_ogb")
@pytest.mark.parametrize("undirected", [False, True], ids=["directed", "undirected"])
def test_ogbn_loads_a_graph(undirected):
    data = ogbn(name="ogbn-arxiv", root="nowhere", undirected=undirected)

    assert data.num_edges == (6 if undirected else 3)
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.x.dtype == torch.float32
    assert data.test_mask.tolist() == [False, False, False, True]


@pytest.mark.usefixtures("fake_ogb")
def test_ogbn_marks_nodes_without_a_class():
    data = ogbn(name="ogbn-papers100M", root="nowhere", undirected=False)

    assert data.y.tolist() == [0, 1, -1, 1]


def test_ogbn_names_the_extra_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.delitem(sys.modules, "ogb.nodeproppred", raising=False)

    with pytest.raises(ImportError, match=r"pip install 'pyg_direct\[ogb\]'"):
        ogbn(name="ogbn-arxiv", root="nowhere", undirected=True)


def test_ogbn_rejects_unknown_names():
    with pytest.raises(ValueError, match="expected one of ogbn-arxiv"):
        ogbn(name="ogbn-mag", root="nowhere", undirected=False)


def _write_raw_files(folder):
    """Write a graph of four nodes as the server of ogb packs it."""
    for name in ("raw", "processed", "split/time"):
        (folder / name).mkdir(parents=True)
    (folder / "RELEASE_v1.txt").touch()
    tables = {
        "raw/edge": "0,1\n1,2\n2,3",
        "raw/node-feat": "0,1\n2,3\n4,5\n6,7",
        "raw/num-node-list": "4",
        "raw/num-edge-list": "3",
        "raw/node-label": "0\n1\n0\n1",
        "raw/node_year": "2000\n2000\n2000\n2000",
        "split/time/train": "0\n1",
        "split/time/valid": "2",
        "split/time/test": "3",
    }
    for name, text in tables.items():
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize("undirected", [False, True], ids=["directed", "undirected"])
def test_ogbn_opens_a_converted_graph(tmp_path, monkeypatch, undirected):
    monkeypatch.setitem(sys.modules, "ogb", None)
    _write_raw_files(tmp_path / "ogbn_arxiv")
    table = tmp_path / "ogbn_arxiv/raw/node-label.csv.gz"
    table.write_bytes(gzip.compress(b"0\n1\nnan\n1"))
    pyg_direct.convert_ogb(tmp_path / "ogbn_arxiv", tmp_path / "graph")

    data = ogbn(name="ogbn-arxiv", root=tmp_path / "graph", undirected=undirected)

    assert data.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert data.y.tolist() == [0, 1, -1, 1]
    assert data.num_edges == (6 if undirected else 3)
    assert data.train_mask.tolist() == [True, True, False, False]
    stores = pyg_direct.from_data(data, "cpu")
    assert stores[0][None, "x", [3]].tolist() == [[6, 7]]


# The package itself warns at its import, and of nothing that matters here.
@pytest.mark.filterwarnings("default")
def test_ogbn_reads_what_ogb_reads(tmp_path):
    pytest.importorskip("ogb.nodeproppred", reason="needs the extra ogb")
    _write_raw_files(tmp_path / "ogbn_arxiv")

    graphs = [ogbn(name="ogbn-arxiv", root=tmp_path, undirected=True) for _ in range(2)]

    # The first call reads raw files and saves what it made of them; the second reads that.
    for data in graphs:
        assert data.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert data.x.is_contiguous()
        assert data.num_edges == 6
        assert data.train_mask.tolist() == [True, True, False, False]
