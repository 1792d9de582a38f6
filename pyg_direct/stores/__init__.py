"""PyG's FeatureStore and GraphStore over tables and compressed topology."""

from pyg_direct.stores.attributes import HOMOGENEOUS_EDGES, TensorAttr
from pyg_direct.stores.convert import edges_of, from_data, sizes_of, tensors_of
from pyg_direct.stores.devices import resolve_device
from pyg_direct.stores.feature import DirectFeatureStore
from pyg_direct.stores.graph import DirectGraphStore
from pyg_direct.stores.placement import Placement
from pyg_direct.stores.placing import place
from pyg_direct.stores.scores import (
    count_accesses,
    degree,
    expected_accesses,
    reverse_pagerank,
)
from pyg_direct.stores.topology import Topology

__all__ = [
    "HOMOGENEOUS_EDGES",
    "DirectFeatureStore",
    "DirectGraphStore",
    "Placement",
    "TensorAttr",
    "Topology",
    "count_accesses",
    "degree",
    "edges_of",
    "expected_accesses",
    "from_data",
    "place",
    "resolve_device",
    "reverse_pagerank",
    "sizes_of",
    "tensors_of",
]
