"""Neighbour sampling on the CPU and the GPU, with PyG's sampler interface."""

from pyg_direct.sampler.direct import DirectNeighborSampler

__all__ = ["DirectNeighborSampler"]
