"""Real graphs reach, through the loader, the accuracy that is known of them."""

import shutil
from pathlib import Path
from statistics import mean

import pytest
from hydra.utils import instantiate

from experiments import placement, train
from experiments.datasets import planetoid
from experiments.run import CONF

PLANETOID = CONF.parents[1] / "shared" / "data" / "planetoid"
NUM_SEEDS = 5


@pytest.fixture
def planetoid_root(tmp_path, request):
    name = request.getfixturevalue("name")
    if not (PLANETOID / name).is_dir():
        pytest.skip(f"the raw files of {name} are not in {Path('..', 'shared', 'data')}")
    # PyG writes processed/ beside raw/.
    shutil.copytree(PLANETOID / name / "raw", tmp_path / name / "raw")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "experiment", "bar"),
    [("Cora", "cora", 0.78), ("CiteSeer", "citeseer", 0.66)],
    ids=["cora", "citeseer"],
)
def test_experiment_reaches_known_accuracy(composed, planetoid_root, device, name, experiment, bar):
    cfg = composed(f"experiment={experiment}")
    data = planetoid(root=planetoid_root, name=name)
    options = {key: cfg[key] for key in ("epochs", "batch_size", "lr", "weight_decay")}

    rows = [
        train.run(
            dataset=lambda: data,
            store=placement.mapped,
            model=instantiate(cfg.model),
            num_neighbors=list(cfg.num_neighbors),
            device=str(device),
            seed=seed,
            **options,
        )[0]
        for seed in range(NUM_SEEDS)
    ]

    assert mean(row["test_accuracy"] for row in rows) >= bar
