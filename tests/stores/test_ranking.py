import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from pyg_direct.memory import MappedArray
from pyg_direct.stores.ranking import Ranking, hot_bytes, share_out
from pyg_direct.tables import HostTable

CPU = torch.device("cpu")


def table(num_rows, row_bytes):
    return HostTable(MappedArray(torch.zeros(num_rows, row_bytes, dtype=torch.uint8)), CPU)


def test_ranking():
    ranking = Ranking("None", torch.tensor([1.0, 0, 4, 1]), CPU)

    assert ranking.order.tolist() == [2, 0, 3, 1]
    assert [ranking.num_above(each) for each in (-1, 0, 1, 4)] == [4, 3, 1, 0]
    assert [ranking.share(each) for each in range(5)] == [0, 4 / 6, 5 / 6, 1, 1]
    assert Ranking("None", torch.zeros(4), CPU).share(1) == 0.25


@pytest.mark.parametrize("scores", [torch.tensor([-1.0]), torch.tensor([torch.nan, 1])], ids=str)
def test_ranking_rejects(scores):
    with pytest.raises(ValueError, match="scores of 'paper' have shape .* expected one dimension"):
        Ranking("'paper'", scores, CPU)


def test_share_out_weighs_bytes_against_scores():
    tables = {("a", "long"): table(4, 400), ("a", "short"): table(4, 40), ("b", "x"): table(4, 40)}
    rankings = {
        "a": Ranking("a", torch.tensor([8.0, 4, 2, 1]), CPU),
        "b": Ranking("b", torch.tensor([3.0, 3, 3, 0]), CPU),
    }

    counts = share_out(tables, rankings, 272)

    assert counts == {("a", "short"): 2, ("b", "x"): 4, ("a", "long"): 0} or counts == {
        ("a", "short"): 3, ("b", "x"): 3, ("a", "long"): 0,
    }  # fmt: skip


@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 600)), min_size=1, max_size=4),
    budget=st.integers(0, 40_000),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_share_out_never_exceeds_the_budget_and_wastes_little(sizes, budget, seed):
    generator = torch.Generator().manual_seed(seed)
    tables = {(i, "x"): table(*size) for i, size in enumerate(sizes)}
    rankings = {
        i: Ranking(str(i), torch.randint(0, 4, (rows,), generator=generator).float(), CPU)
        for i, (rows, _) in enumerate(sizes)
    }

    counts = share_out(tables, rankings, budget)

    spent = sum(hot_bytes(tables[key], count) for key, count in counts.items())
    assert spent <= budget
    for key, each in tables.items():
        more = hot_bytes(each, counts[key] + 1) - hot_bytes(each, counts[key])
        assert counts[key] == each.num_rows or spent + more > budget
