"""Train PyTorch Geometric models on graphs larger than GPU memory.

Rows stay in host memory; kernels fetch what a mini-batch needs straight over the bus.
"""

from pyg_direct.files import StoredGraphError, convert_ogb, load, save
from pyg_direct.loader import LinkNeighborLoader, NeighborLoader
from pyg_direct.memory import HostMappingError
from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.stores import (
    DirectFeatureStore,
    DirectGraphStore,
    count_accesses,
    expected_accesses,
    from_data,
    place,
)
from pyg_direct.tensors import DirectEmbedding, SparseAdagrad, SparseAdam, unified

__all__ = [
    "DirectEmbedding",
    "DirectFeatureStore",
    "DirectGraphStore",
    "DirectNeighborSampler",
    "HostMappingError",
    "LinkNeighborLoader",
    "NeighborLoader",
    "SparseAdagrad",
    "SparseAdam",
    "StoredGraphError",
    "convert_ogb",
    "count_accesses",
    "expected_accesses",
    "from_data",
    "load",
    "place",
    "save",
    "unified",
]
__version__ = "0.1.0"
