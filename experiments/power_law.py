"""Power-law graphs of any size, generated in seconds, compressed from the start.

The number of in-neighbours of a node falls as a power law with exponent 3 (``u ** -0.5`` for
uniform ``u``); sources are uniform. On a machine with a GPU the numbers come from it.
"""

import torch
from torch import Tensor

from pyg_direct.memory import MappedArray
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore

CHUNK_EDGES = 1 << 26
# A degree is at most this many times the mean.
MAX_DEGREE_RATIO = 10_000


def make_power_law(
    *, num_nodes: int, num_edges: int, seed: int, device: torch.device
) -> tuple[DirectFeatureStore, DirectGraphStore]:
    """Return stores that hold a graph in host memory, and no features.

    Parameters
    ----------
    num_nodes : int
        More than 0, at most ``2**31``.
    num_edges : int
        Hit within a few per cent.
    seed : int
        Of the graph.
    device : torch.device
        Where the numbers are drawn; graphs of one seed differ between kinds of device.
    """
    generator = torch.Generator(device).manual_seed(seed)
    colptr = _draw_colptr(num_nodes, num_edges, generator)
    memory = MappedArray.empty((int(colptr[-1]),), torch.int32)
    row = memory.cpu_view()
    # The GPU writes straight to mapped memory, which spares a staging copy.
    target = memory.cuda_view(device) if device.type == "cuda" else row
    for start in range(0, row.numel(), CHUNK_EDGES):
        part = target[start : start + CHUNK_EDGES]
        part.copy_(
            torch.randint(
                num_nodes, part.shape, dtype=torch.int32, generator=generator, device=device
            )
        )
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    graph_store = DirectGraphStore()
    graph_store.put_edge_index(
        (row, colptr), edge_type=None, layout="csc", size=(num_nodes, num_nodes)
    )
    return DirectFeatureStore("cpu"), graph_store


def _draw_colptr(num_nodes: int, num_edges: int, generator: torch.Generator) -> Tensor:
    device = generator.device
    mean = num_edges / num_nodes
    # The mean of ``u ** -0.5`` is 2.
    fraction = torch.rand(num_nodes, generator=generator, device=device).clamp_(min=1e-12)
    degree = fraction.rsqrt_().mul_(mean / 2).clamp_(max=mean * MAX_DEGREE_RATIO)
    # Rounding up with the probability of the remainder keeps the sum.
    degree = degree.add_(torch.rand(num_nodes, generator=generator, device=device)).long()
    colptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
    torch.cumsum(degree, 0, out=colptr[1:])
    return colptr.cpu()
