"""PyG's loaders over stores."""

from pyg_direct.loader.link import LinkNeighborLoader
from pyg_direct.loader.neighbor import NeighborLoader

__all__ = ["LinkNeighborLoader", "NeighborLoader"]
