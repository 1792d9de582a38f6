"""PyG's FeatureStore and GraphStore over tables and compressed topology."""

from pyg_direct.stores.topology import Topology

__all__ = ["Topology"]
