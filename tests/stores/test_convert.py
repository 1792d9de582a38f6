import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.typing import TensorFrame

from pyg_direct.stores import from_data


def test_from_data_puts_nodes_and_edges_apart():
    data = Data(
        x=torch.rand(4, 3),
        y=torch.arange(4),
        train_mask=torch.tensor([True, False, True, False]),
        edge_index=torch.tensor([[0, 1, 3], [2, 0, 1]]),
        edge_attr=torch.rand(3, 2),
        name="graph",
    )

    feature_store, graph_store = from_data(data, device="cpu")

    assert feature_store.groups() == {
        None: ["x", "y", "train_mask"],
        (None, None): ["edge_attr"],
    }
    assert feature_store[None, "x", None].data_ptr() == data.x.data_ptr()
    row, col = graph_store.get_edge_index(None, "coo")
    assert torch.stack([row, col]).equal(data.edge_index)
    assert graph_store.num_nodes() == {None: 4}


def test_from_data_heterogeneous():
    data = HeteroData()
    data["paper"].x = torch.rand(4, 3)
    data["author"].num_nodes = 6
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [2, 0]])
    data["author", "writes", "paper"].weight = torch.rand(2)

    feature_store, graph_store = from_data(data, device="cpu")

    writes = ("author", "writes", "paper")
    assert feature_store.groups() == {"paper": ["x"], writes: ["weight"]}
    assert graph_store.num_nodes() == {"author": 6, "paper": 4}


def test_from_data_refuses_other_things():
    with pytest.raises(TypeError, match="data is a dict, expected Data or HeteroData"):
        from_data({})
    with pytest.raises(TypeError, match="expected a dense one"):
        from_data(Data(x=torch.eye(3).to_sparse(), num_nodes=3))
    with pytest.raises(TypeError, match="tf is a TensorFrame, expected tensors"):
        from_data(Data(tf=object.__new__(TensorFrame), num_nodes=3))


def test_from_data_takes_arrays_and_memory_maps(tmp_path):
    rows = np.random.default_rng(1).random((4, 3), dtype=np.float32)
    np.save(tmp_path / "x.npy", rows)
    data = Data(
        x=np.load(tmp_path / "x.npy", mmap_mode="r"),
        edge_index=torch.tensor([[0, 1, 3], [2, 0, 1]]),
        edge_attr=rows[:3],
    )

    feature_store, _ = from_data(data, device="cpu")

    assert feature_store.groups() == {None: ["x"], (None, None): ["edge_attr"]}
    assert feature_store[None, "x", [3, 1]].equal(torch.tensor(rows[[3, 1]]))
    assert feature_store[(None, None), "edge_attr", [2]].equal(torch.tensor(rows[[2]]))


def test_from_data_without_edges():
    _, graph_store = from_data(Data(x=torch.rand(4, 3)), device="cpu")

    assert graph_store.num_nodes() == {None: 4}
    assert graph_store.topology(None).num_edges == 0


def test_from_data_keeps_node_types_that_no_edge_names():
    data = HeteroData()
    data["paper"].x = torch.rand(4, 3)
    data["venue"].num_nodes = 6

    _, graph_store = from_data(data, device="cpu")

    assert graph_store.num_nodes() == {"paper": 4, "venue": 6}
