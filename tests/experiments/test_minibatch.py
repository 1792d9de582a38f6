import pytest
import torch

from experiments import minibatch
from experiments.minibatch_case import Case
from experiments.pictures import draw_timeline

GRAPH = {
    "num_nodes": 500,
    "num_edges": 5_000,
    "num_features": 8,
    "num_classes": 4,
    "quadrants": [0.57, 0.19, 0.19, 0.05],
}
CASES = [
    {"rows": "staged", "sampler": "cpu", "threads": 2},
    {"rows": "staged", "sampler": "cpu", "threads": 1},
    {"rows": "mapped", "sampler": "cpu", "depth": 0},
    {"rows": "mapped", "sampler": "cpu"},
    {"rows": "mapped", "sampler": "gpu", "depth": 0},
    {"rows": "mapped", "sampler": "gpu"},
    {"rows": "mapped", "sampler": "gpu", "budget_gb": 3e-5},
    {"rows": "device", "sampler": "gpu", "topology": "device"},
]


@pytest.mark.parametrize("trim", [False, True], ids=["whole", "trimmed"])
@pytest.mark.parametrize("take_turns", [False, True], ids=["one by one", "in turn"])
def test_run_measures_every_case(device, take_turns, trim, capsys):
    rows = minibatch.run(
        graph=GRAPH, cases=CASES, num_neighbors=[4, 3], batch_size=16, hidden_channels=8,
        num_batches=5, num_epochs=2, trim=trim, take_turns=take_turns,
        device=str(device),
    )  # fmt: skip

    printed = capsys.readouterr().out
    assert len(rows) == (8 if device.type == "cuda" else 4)
    assert printed.count("ms a batch") == len(rows)
    assert printed.count("needs a GPU") == 8 - len(rows)
    for row in rows:
        assert row["batches"] == 5
        assert min(row["epoch_s"], row["sample_s"], row["gather_s"], row["train_s"]) > 0
        assert row["loss"] == pytest.approx(rows[0]["loss"], rel=0.2)
    alone = max(rows[2][name] for name in ("sample_s", "gather_s", "train_alone_s"))
    assert rows[3]["to_slowest_stage"] == rows[3]["epoch_s"] / alone
    assert all((row["train_alone_s"] is None) == (row["depth"] > 0) for row in rows)


def test_case_rejects_what_there_is_not():
    with pytest.raises(ValueError, match="rows='disk'"):
        Case(rows="disk", sampler="cpu")
    with pytest.raises(ValueError, match="staged case samples on the CPU"):
        Case(rows="staged", sampler="gpu")


def test_draw_timeline_needs_a_job():
    assert draw_timeline({}, "timeline.png") is None


def test_staged_batches_hold_the_rows_of_their_ids(device):
    from experiments.minibatch_case import make_batches, make_graph

    graph = make_graph(**GRAPH, seed=1, device=device)
    batches = make_batches(
        graph, Case(rows="staged", sampler="cpu"), seeds=torch.arange(64), device=device,
        num_neighbors=[4, 3], batch_size=16, seed=1,
    )  # fmt: skip

    seen = []
    for batch in batches:
        ids = batch.n_id.cpu()
        assert batch.x.device.type == device.type
        assert batch.x.cpu().equal(graph.x.cpu_view()[ids])
        assert batch.y.cpu().equal(graph.y[ids])
        seen += ids[: batch.batch_size].tolist()
    assert sorted(seen) == list(range(64))
