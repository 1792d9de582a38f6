import os
import subprocess
import sys

import pytest
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from experiments.run import CONF, build_task, run_job
from experiments.table import read_table


def _run(folder, *overrides):
    root = str(CONF.parent)
    return subprocess.run(
        [sys.executable, "-m", "experiments.run", *overrides],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root, "HYDRA_FULL_ERROR": "0"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_run_job_writes_table_and_configuration(composed, small_overrides, tmp_path, capsys):
    rows = run_job(composed(*small_overrides), tmp_path)

    written, header = read_table(tmp_path / "result.csv")
    resolved = OmegaConf.load(tmp_path / "resolved.yaml")
    assert float(written[0]["loss"]) == rows[0]["loss"]
    assert {"command", "commit", "machine", "gpu", "driver", "cuda", "torch", "numba"} <= set(
        header
    )
    assert resolved.dataset.num_nodes == 400
    assert "test_accuracy" in capsys.readouterr().out


def test_build_task_rejects_an_option_the_task_lacks(composed):
    with pytest.raises(ValueError, match="unexpected keyword argument 'epoch'"):
        build_task(composed("+epoch=3"))


@pytest.mark.parametrize("override", ["epoch=3", "store=nowhere", "dataset=mnist", "layers=3"])
def test_compose_rejects_unknown_names(composed, override):
    with pytest.raises(ConfigCompositionException):
        composed(override)


def test_main_rejects_a_wrong_value_in_one_line(tmp_path):
    done = _run(tmp_path, "epochs=many")

    assert done.returncode != 0
    assert "epochs ('many') must be a whole number" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_main_rejects_a_wrong_name(tmp_path):
    done = _run(tmp_path, "store=nowhere")

    assert done.returncode != 0
    assert "Could not find 'store/nowhere'" in done.stderr
    assert "mapped" in done.stderr
