import pytest
import torch

from experiments.datasets import power_law, rmat

OPTIONS = {
    "num_nodes": 1_000,
    "num_edges": 20_000,
    "num_features": 8,
    "num_classes": 4,
    "quadrants": [0.57, 0.19, 0.19, 0.05],
    "noise": 1.0,
    "seed": 0,
}


@pytest.mark.parametrize("num_nodes", [4, 33, 257, 1_000, 1_024])
def test_rmat_has_the_asked_sizes(num_nodes):
    data = rmat(**{**OPTIONS, "num_nodes": num_nodes})

    assert data.x.shape == (num_nodes, 8)
    assert data.edge_index.shape == (2, 20_000)
    assert 0 <= int(data.edge_index.min()) <= int(data.edge_index.max()) < num_nodes
    assert torch.equal(data.y.unique(), torch.arange(4))


def test_rmat_repeats_itself():
    first, second = rmat(**OPTIONS), rmat(**OPTIONS)

    assert all(torch.equal(first[name], second[name]) for name in first.keys())  # noqa: SIM118


def test_rmat_degrees_follow_a_power_law():
    data = rmat(**OPTIONS)

    degrees = data.edge_index[1].bincount(minlength=1_000).sort(descending=True).values
    top = degrees[:10].sum() / degrees.sum()

    # Ten of a thousand nodes would have one percent of the edges if all were alike.
    assert top > 0.1


def test_rmat_joins_nodes_of_a_class():
    data = rmat(**OPTIONS)

    source, target = data.edge_index
    share = (data.y[source] == data.y[target]).float().mean()

    assert share > 0.3


def test_rmat_is_generated_in_pieces(monkeypatch):
    monkeypatch.setattr(power_law, "EDGES_PER_PIECE", 7_000)
    monkeypatch.setattr(power_law, "VALUES_PER_PIECE", 800)

    data = rmat(**OPTIONS)

    assert data.edge_index.unique(dim=1).size(1) > 7_000
    assert not torch.equal(data.edge_index[:, :6_000], data.edge_index[:, 7_000:13_000])
    assert data.x.std() > 0.5


@pytest.mark.parametrize("quadrants", [[0.5, 0.5], [0.5, 0.5, 0.5, 0.5]], ids=["few", "sum"])
def test_rmat_rejects_quadrants(quadrants):
    with pytest.raises(ValueError, match="must be 4 probabilities whose sum is 1"):
        rmat(**{**OPTIONS, "quadrants": quadrants})
