import pytest
import torch
from torch_geometric.sampler import NodeSamplerInput

from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.stores import (
    DirectFeatureStore,
    DirectGraphStore,
    count_accesses,
    degree,
    expected_accesses,
    reverse_pagerank,
    scores,
)

# 0 <- 1 <- 2 <- 0, and 0 <- 2: batches walk from the second of each pair to the first.
ROW, COL = torch.tensor([1, 2, 0, 2]), torch.tensor([0, 1, 2, 0])


@pytest.fixture
def chain():
    graph_store = DirectGraphStore()
    graph_store.put_edge_index((ROW, COL), edge_type=None, layout="coo", size=(4, 4))
    return graph_store


@pytest.fixture
def typed():
    graph_store = DirectGraphStore()
    for name, pairs in {"cites": (ROW, COL), "likes": (COL, ROW)}.items():
        graph_store.put_edge_index(
            pairs, edge_type=("paper", name, "paper"), layout="coo", size=(4, 4)
        )
    graph_store.put_edge_index(
        (torch.tensor([1, 1]), torch.tensor([0, 3])),
        edge_type=("author", "writes", "paper"), layout="coo", size=(2, 4),
    )  # fmt: skip
    return graph_store


def pagerank_by_matrix(row, col, starts, num_iterations=10, damping=0.85):
    walk = torch.zeros(len(starts), len(starts))
    for source, target in zip(row, col, strict=True):
        walk[source, target] += 1 / (col == target).sum()
    score = starts
    for _ in range(num_iterations):
        score = (1 - damping) * starts + damping * walk @ score
    return score


def test_degree_counts_what_a_node_feeds(chain, typed, device):
    assert degree(chain, device=device)[None].tolist() == [1, 1, 2, 0]
    found = degree(typed, device=device)
    assert {kind: score.tolist() for kind, score in found.items()} == {
        "paper": [3, 2, 3, 0],
        "author": [0, 2],
    }


@pytest.mark.parametrize("edges_per_piece", [1, 2, 1000])
def test_reverse_pagerank_equals_a_matrix(chain, device, monkeypatch, edges_per_piece):
    monkeypatch.setattr(scores, "EDGES_PER_PIECE", edges_per_piece)

    found = reverse_pagerank(chain, device=device)[None]

    assert found.device.type == "cpu"
    torch.testing.assert_close(found, pagerank_by_matrix(ROW, COL, torch.full((4,), 0.25)))


@pytest.mark.parametrize("seeds", [torch.tensor([1]), [1], torch.arange(4) == 1], ids=str)
def test_weighted_reverse_pagerank_starts_at_the_seeds(chain, seeds):
    found = reverse_pagerank(chain, seeds=seeds, num_iterations=3)[None]

    starts = torch.tensor([0.0, 1, 0, 0])
    torch.testing.assert_close(found, pagerank_by_matrix(ROW, COL, starts, 3))
    assert found[3] == 0


def test_reverse_pagerank_of_types(typed):
    found = reverse_pagerank(typed, seeds={"paper": [3]}, num_iterations=1, damping=0.5)

    # Node 3 has no citations, and a third of its draws goes to each of three edge types.
    assert found["paper"].tolist() == [0, 0, 0, 0.5]
    torch.testing.assert_close(found["author"], torch.tensor([0, 0.5 / 3]))


def test_reverse_pagerank_rejects(chain):
    with pytest.raises(ValueError, match="num_iterations is 0"):
        reverse_pagerank(chain, num_iterations=0)
    with pytest.raises(ValueError, match="damping 1.5"):
        reverse_pagerank(chain, damping=1.5)
    with pytest.raises(KeyError, match="node type 'paper' is not in the graph"):
        reverse_pagerank(chain, seeds={"paper": [0]})


def test_expected_accesses_of_sure_draws(chain, device):
    found = expected_accesses(chain, [-1], batch_size=1, seeds=[0], device=device)[None]

    # Node 0 is the seed and draws both its neighbours; once each, by the law of rare events.
    once = 1 - torch.exp(torch.tensor(-1.0))
    drawn = 1 - torch.exp(-once)
    torch.testing.assert_close(found, torch.stack([once, drawn, drawn, torch.tensor(0.0)]))


def test_expected_accesses_agree_with_batches():
    generator = torch.Generator().manual_seed(0)
    edges = (torch.rand(2, 3000, generator=generator) ** 2 * 200).long()
    graph_store = DirectGraphStore()
    graph_store.put_edge_index((edges[0], edges[1]), edge_type=None, layout="coo", size=(200, 200))
    sampler = DirectNeighborSampler(
        (DirectFeatureStore("cpu"), graph_store), [4, 3], device="cpu", seed=1
    )

    found = expected_accesses(graph_store, [4, 3], batch_size=5)[None]

    batches = [
        sampler.sample_from_nodes(
            NodeSamplerInput(None, torch.randperm(200, generator=generator)[:5])
        ).node
        for _ in range(300)
    ]
    counted = count_accesses(batches, graph_store)[None] / 300
    assert (found - counted).abs().mean() < 0.03
    assert float(found.sum()) == pytest.approx(float(counted.sum()), rel=0.1)


def test_expected_accesses_of_types(typed):
    fanouts = {kind: [2] for kind in typed.edge_types()}

    found = expected_accesses(typed, fanouts, batch_size=1, seeds={"paper": [3]})

    assert found["author"][0] == 0
    assert 0.4 < found["author"][1] < 0.5
    with pytest.raises(ValueError, match="batch_size is 0"):
        expected_accesses(typed, [2], batch_size=0)
    with pytest.raises(ValueError, match="as many hops for each edge type"):
        expected_accesses(typed, fanouts | {typed.edge_types()[0]: [1, 2]}, batch_size=1)


def test_count_accesses(chain, typed):
    batches = [torch.tensor([0, 3]), torch.tensor([3])]

    assert count_accesses(iter(batches), chain)[None].tolist() == [1, 0, 0, 2]
    assert count_accesses([], chain)[None].tolist() == [0, 0, 0, 0]
    found = count_accesses([{"author": torch.tensor([1])}], typed)
    assert (found["author"].tolist(), found["paper"].tolist()) == ([0, 1], [0, 0, 0, 0])
    with pytest.raises(KeyError, match="node type 'editor'"):
        count_accesses([{"editor": torch.tensor([1])}], typed)
