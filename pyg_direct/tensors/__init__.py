"""One tensor in host memory that GPU and CPU use alike, as torch's own."""

from pyg_direct.tensors.unified import UnifiedTensor, unified

__all__ = ["UnifiedTensor", "unified"]
