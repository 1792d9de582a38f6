"""Graphs to train on: each function returns ``Data`` with ``x``, ``y``, edges and three masks."""

from experiments.datasets.blocks import stochastic_blocks
from experiments.datasets.citation import planetoid
from experiments.datasets.open_graph import ogbn
from experiments.datasets.power_law import rmat

__all__ = ["ogbn", "planetoid", "rmat", "stochastic_blocks"]
