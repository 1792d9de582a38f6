"""PyG's loaders over stores."""

from pyg_direct.loader.neighbor import NeighborLoader

__all__ = ["NeighborLoader"]
