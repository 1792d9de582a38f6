import pytest
import torch

from pyg_direct.stores import (
    DirectGraphStore,
    count_accesses,
    degree,
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


def test_count_accesses(chain, typed):
    batches = [torch.tensor([0, 3]), torch.tensor([3])]

    assert count_accesses(iter(batches), chain)[None].tolist() == [1, 0, 0, 2]
    assert count_accesses([], chain)[None].tolist() == [0, 0, 0, 0]
    found = count_accesses([{"author": torch.tensor([1])}], typed)
    assert (found["author"].tolist(), found["paper"].tolist()) == ([0, 1], [0, 0, 0, 0])
    with pytest.raises(KeyError, match="node type 'editor'"):
        count_accesses([{"editor": torch.tensor([1])}], typed)
