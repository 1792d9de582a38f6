"""Stands for the ``pyg_lib`` package, so that PyG's tests of samplers are not skipped.

Its sampling operations are backed by ``DirectNeighborSampler``. PyG imports this module while it is
being imported itself, so that what needs PyG is imported at the first call.
"""

from types import SimpleNamespace
from typing import Any

import torch

__version__ = "0.4.0"


# PyG asks whether the signature has ``edge_time`` and ``edge_weight``, and passes by position.
def neighbor_sample(*arguments: Any, edge_time: Any = None, edge_weight: Any = None) -> Any:
    """Sample in a homogeneous graph."""
    from experiments.pyg_conformance import operations

    return operations.neighbor_sample(*arguments)


def hetero_neighbor_sample(*arguments: Any) -> Any:
    """Sample in a heterogeneous graph."""
    from experiments.pyg_conformance import operations

    return operations.hetero_neighbor_sample(*arguments)


ops = SimpleNamespace()
sampler = SimpleNamespace(neighbor_sample=neighbor_sample)
torch.ops.pyg.neighbor_sample = neighbor_sample
torch.ops.pyg.hetero_neighbor_sample = hetero_neighbor_sample
