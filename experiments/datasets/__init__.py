"""Graphs to train on: each function returns ``Data`` with ``x``, ``y``, edges and three masks."""

from experiments.datasets.blocks import stochastic_blocks
from experiments.datasets.ogbn import ogbn
from experiments.datasets.planetoid import planetoid
from experiments.datasets.rmat import rmat

__all__ = ["ogbn", "planetoid", "rmat", "stochastic_blocks"]
