import sys
from types import ModuleType

import numpy as np
import pytest
import torch

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
