"""A graph that trains in a moment, and configurations as the command line composes them."""

from functools import partial

import pytest
from hydra import compose, initialize_config_dir
from torch_geometric.nn import GraphSAGE

from experiments.datasets import stochastic_blocks
from experiments.run import CONF

SMALL = [
    "dataset.num_nodes=400",
    "dataset.num_classes=4",
    "dataset.num_features=16",
    "epochs=2",
    "batch_size=64",
    "num_neighbors=[5,3]",
    "device=cpu",
]


@pytest.fixture
def small_graph():
    return partial(
        stochastic_blocks,
        num_nodes=400,
        num_classes=4,
        num_features=16,
        mean_degree=10,
        same_class=0.8,
        noise=0.5,
        seed=0,
    )


@pytest.fixture
def small_options(small_graph):
    return {
        "dataset": small_graph,
        "model": partial(GraphSAGE, hidden_channels=16, num_layers=2, dropout=0.5),
        "epochs": 3,
        "batch_size": 64,
        "num_neighbors": [5, 3],
    }


@pytest.fixture
def composed():
    def compose_overrides(*overrides):
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            return compose("config", overrides=list(overrides))

    return compose_overrides


@pytest.fixture
def small_overrides():
    return list(SMALL)
