import pytest

from experiments import sampling

TINY = {"num_nodes": 300, "num_edges": 3000, "methods": ["uniform", "weighted", "temporal"]}
OPTIONS = {
    "num_neighbors": [3, 2],
    "batch_size": 16,
    "placements": ["device", "mapped"],
    "num_batches": 2,
    "num_cpu_batches": 2,
}


def test_run_measures_every_combination(device, capsys):
    rows = sampling.run(graphs={"tiny": TINY, "left out": None}, device=str(device), **OPTIONS)

    assert [row["method"] for row in rows if row["topology"] == "host"] == TINY["methods"]
    assert len(rows) == 3 * (3 if device.type == "cuda" else 1)
    assert all(row["ms"] > 0 and row["edges"] > 0 for row in rows)
    assert capsys.readouterr().out.count("M edges/s") == len(rows)


def test_run_rejects_an_unknown_method():
    with pytest.raises(ValueError, match="methods \\['best'\\] are unknown"):
        sampling.run(graphs={"tiny": {**TINY, "methods": ["best"]}}, device="cpu", **OPTIONS)
