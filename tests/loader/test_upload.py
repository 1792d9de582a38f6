import pytest
import torch
from torch_geometric.sampler import HeteroSamplerOutput

from pyg_direct.loader.upload import upload


def _output(device="cpu"):
    return HeteroSamplerOutput(
        node={"a": torch.arange(5, device=device)},
        row={("a", "to", "a"): torch.tensor([1])},
        col={("a", "to", "a"): torch.tensor([0])},
        edge=None,
        num_sampled_nodes={"a": [2, 3]},
        metadata=(torch.tensor([3]), None),
    )


@pytest.mark.gpu
def test_upload_moves_every_tensor():
    node = torch.arange(5, device="cuda")
    values = _output()
    values.batch = {"a": node}

    found = upload(values, torch.device("cuda"))

    assert found is values
    assert found.node["a"].is_cuda
    assert found.node["a"].tolist() == list(range(5))
    assert found.row["a", "to", "a"].is_cuda
    assert found.metadata[0].is_cuda
    assert found.metadata[1] is None
    assert found.batch["a"] is node
    assert found.num_sampled_nodes == {"a": [2, 3]}


def test_upload_leaves_other_values_alone(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    values = _output()
    node, metadata = values.node["a"], values.metadata

    upload(values, torch.device("cuda"))

    assert values.node["a"] is node
    assert values.metadata == metadata
    assert values.num_sampled_nodes == {"a": [2, 3]}
