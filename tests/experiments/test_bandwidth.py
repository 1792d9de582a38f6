import pytest

from experiments import bandwidth


def run(tmp_path, monkeypatch, **options):
    monkeypatch.chdir(tmp_path)
    sizes = {"row_bytes": [64, 132], "table_gib": [0.002], "num_ids": [33], "max_sms": [None]}
    return bandwidth.run(**(sizes | {"repeats": 2} | options))


def test_run_measures_every_combination(tmp_path, monkeypatch, device):
    rows = run(tmp_path, monkeypatch, device=str(device))

    ours = [row for row in rows if row["method"] == "pyg_direct"]
    assert [row["row_bytes"] for row in ours] == [64, 132]
    assert {row["method"] for row in rows} >= {"pyg_direct", "index_select"}
    assert all(row["gb_per_s"] > 0 and row["min_ms"] <= row["median_ms"] for row in rows)
    assert all(row["host_us"] > 0 for row in ours)
    assert (tmp_path / "bandwidth.png").stat().st_size > 1000


def test_run_leaves_out_large_payloads(tmp_path, monkeypatch):
    rows = run(tmp_path, monkeypatch, num_ids=[10, 100], max_payload_gib=64 * 50 / 2**30)

    assert {row["num_ids"] for row in rows} == {10}


def test_run_takes_any_base(tmp_path, monkeypatch, device):
    assert run(tmp_path, monkeypatch, base_offset_bytes=68, device=str(device))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"row_bytes": [6]}, r"row_bytes holds \[6\], expected multiples of 4"),
        ({"num_ids": [0]}, r"num_ids is \[0\]"),
        ({"table_gib": []}, r"table_gib is \[\]"),
        ({"row_bytes": [2**24]}, r"more than table_gib"),
        ({"methods": ["magic"]}, r"methods \['magic'\] are not known on this machine"),
    ],
)
def test_run_rejects(tmp_path, monkeypatch, options, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path, monkeypatch, **options)


def test_wrong_rows_are_no_result(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "experiments.gather_methods.GatherMethods._index_select",
        lambda self, index: lambda: self.rows[index] + 1,
    )

    with pytest.raises(RuntimeError, match="index_select returned rows that the ids do not name"):
        run(tmp_path, monkeypatch, device="cpu")
