import pytest
import torch

from experiments import fullbatch, fullbatch_benchmark
from experiments.datasets.undirected import power_law_undirected
from experiments.fullbatch_baseline import normalized_csr, whole_features
from experiments.overlap import hidden_share
from pyg_direct.fullbatch.staged_product import Span
from tests.fullbatch.graphs import random_graph

CPU = torch.device("cpu")
SIZES = {"num_nodes": 257, "num_edges": 2000, "num_features": 9, "num_classes": 4}


def _run(**args):
    architecture = {"hidden_channels": 8, "num_layers": 2, "dropout": 0.5}
    defaults = {"dataset": random_graph, "architecture": architecture, "placement": {}}
    return fullbatch.run(**defaults, device="cpu", **args)


def test_run_trains_and_reports():
    (row,) = _run(epochs=3, report_every=2)

    assert row["epochs"] == 3
    assert 0.0 <= row["test_accuracy"] <= 1.0
    assert row["peak_gib"] == pytest.approx(row["predicted_gib"], rel=0.05)


def test_run_resumes_from_a_checkpoint(tmp_path, capsys):
    path = str(tmp_path / "checkpoint.pt")

    _run(epochs=2, checkpoint=path)
    (row,) = _run(epochs=3, checkpoint=path)

    assert "continues after epoch 2" in capsys.readouterr().out
    assert row["epochs"] == 3


@pytest.mark.slow
def test_run_spawns_ranks():
    (alone,), (two,) = _run(epochs=3), _run(epochs=3, num_ranks=2)

    assert two["ranks"] == 2
    assert two["loss"] == pytest.approx(alone["loss"], abs=1e-5)


@pytest.mark.parametrize("options", [{"epochs": 0}, {"report_every": 0}], ids=["epochs", "report"])
def test_run_rejects(options):
    with pytest.raises(ValueError, match="expected 1 or more"):
        _run(**options)


def test_power_law_undirected_is_simple_and_symmetric(device):
    graph = power_law_undirected(**SIZES, device=device)

    target = torch.arange(257, device=device).repeat_interleave(graph.colptr.diff())
    dense = torch.zeros(257, 257, device=device).index_put(
        (target, graph.row), torch.ones(graph.row.numel(), device=device), accumulate=True
    )
    assert torch.equal(dense, dense.t())
    assert dense.max() == 1.0
    assert dense.diagonal().sum() == 0.0
    # Some draws coincide.
    assert 1500 < graph.row.numel() < 2100


def test_features_depend_on_the_vertex_alone():
    graph = power_law_undirected(**SIZES, device=CPU)
    node = torch.tensor([5, 200, 7])

    whole = whole_features(graph)

    assert torch.equal(graph.get_tensor(attr_name="x", index=node), whole[node])
    assert torch.equal(graph.get_tensor(attr_name="x", index=slice(3, 9)), whole[3:9])
    assert whole.std().item() == pytest.approx(1.0, abs=0.05)
    assert graph.labels(node).max() < 4


def test_normalized_csr_has_a_loop_in_every_row():
    graph = power_law_undirected(**SIZES, device=CPU)

    dense = normalized_csr(graph, torch.int32).to_dense()

    assert bool((dense.diagonal() > 0).all())
    torch.testing.assert_close(dense, dense.t())


def test_benchmark_compares_with_pyg(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph = SIZES | {"name": "tiny", "hidden_channels": 8, "features": "host", "pyg": ["int64"]}
    graph["variants"] = [["float32", "library", None], ["float32", "library", 3]]

    rows = fullbatch_benchmark.run(
        graphs=[graph], num_ranks=[1], warmup=1, repeats=2, device="cpu", picture=True
    )

    assert [row["method"] for row in rows] == ["pyg_direct", "pyg_direct", "pyg"]
    # Both start from the same parameters and run as many epochs.
    assert [row["loss_minus_pyg"] for row in rows] == pytest.approx([0.0] * 3, abs=1e-5)
    assert (tmp_path / "fullbatch.png").stat().st_size > 0


def test_hidden_share_counts_common_time():
    spans = [
        Span(kind="broadcast", stage=0, start_s=0.0, stop_s=4.0),
        Span(kind="product", stage=0, start_s=1.0, stop_s=2.0),
        Span(kind="product", stage=1, start_s=2.0, stop_s=3.0),
    ]

    assert hidden_share(spans) == 0.5
    assert hidden_share(spans[1:]) == 1.0


def test_benchmark_goes_on_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fail(*_):
        raise RuntimeError("no room")
        yield

    monkeypatch.setattr(fullbatch_benchmark, "measure", fail)
    graph = SIZES | {"name": "tiny", "hidden_channels": 8, "features": "device", "pyg": []}

    rows = fullbatch_benchmark.run(
        graphs=[graph | {"variants": []}], num_ranks=[1], device="cpu", picture=True
    )

    assert [row["error"] for row in rows] == ["no room"]
