import pytest
import torch

from experiments import tiers
from experiments.rmat_stores import make_rmat
from experiments.tiers_picture import draw_tiers

OPTIONS = {
    "num_nodes": 3000,
    "num_edges": 30_000,
    "quadrants": [0.57, 0.19, 0.19, 0.05],
    "num_features": 8,
    "train_share": 0.1,
    "num_neighbors": [5, 3],
    "batch_size": 32,
    "scores": [*tiers.SCORES],
    "budget_shares": [0, 0.3, 1],
    "num_batches": 4,
    "num_presampled": 8,
}


def test_run_measures_every_score_and_budget(device, capsys, tmp_path):
    rows = tiers.run(**OPTIONS, device=str(device))

    assert [row["score"] for row in rows] == [each for each in tiers.SCORES for _ in range(3)]
    assert capsys.readouterr().out.count("of index_select") == len(tiers.SCORES)
    for none, some, everything in zip(*[iter(rows)] * 3, strict=True):
        assert (none["hit_rate"], everything["hit_rate"]) == (0, 1)
        assert 0.2 < some["hit_rate"] < 1
        assert everything["host_bytes_saved"] == 1
        assert all(row["gather_ms"] > 0 for row in (none, some, everything))
    assert draw_tiers(rows, tmp_path).stat().st_size > 1000


def test_run_rejects_an_unknown_score():
    with pytest.raises(ValueError, match="scores are \\['best'\\], expected some of"):
        tiers.run(**(OPTIONS | {"scores": ["best"]}), device="cpu")


def test_make_rmat_is_skewed_on_both_sides(device):
    graph_store, _ = make_rmat(
        num_nodes=3000, num_edges=60_000, quadrants=[0.57, 0.19, 0.19, 0.05], seed=1, device=device
    )
    topology = graph_store.topology(None)

    assert topology.num_edges == pytest.approx(60_000, rel=0.05)
    for degrees in (topology.colptr.diff(), torch.bincount(topology.row.long(), minlength=3000)):
        hottest = degrees.sort(descending=True).values[:300].sum() / topology.num_edges
        assert 0.4 < hottest < 0.9
        # Hubs do not stand side by side.
        assert degrees[:300].sum() / topology.num_edges < 0.3
