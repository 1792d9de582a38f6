"""One tensor in host memory that GPU and CPU use alike, as torch's own."""

from pyg_direct.tensors.embedding import DirectEmbedding
from pyg_direct.tensors.sparse_updates import SparseAdagrad, SparseAdam
from pyg_direct.tensors.unified import UnifiedTensor, unified

__all__ = ["DirectEmbedding", "SparseAdagrad", "SparseAdam", "UnifiedTensor", "unified"]
