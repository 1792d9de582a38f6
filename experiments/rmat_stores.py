"""R-MAT graphs of a hundred million nodes in seconds: compressed from the start, on a GPU.

An edge of R-MAT (Chakrabarti et al. 2004, section 3) picks a quadrant of the adjacency matrix for
each bit of its ends. The number of edges that lead to a node is therefore known in expectation, and
each source can be drawn bit by bit, given the bits of the destination; nothing is sorted.
"""

import torch
from torch import Tensor

from experiments.datasets.power_law import _scatter_ids
from pyg_direct.memory import MappedArray
from pyg_direct.stores import DirectGraphStore

EDGES_PER_PIECE = 1 << 26
NODES_PER_PIECE = 1 << 24


def make_rmat(
    *, num_nodes: int, num_edges: int, quadrants: list[float], seed: int, device: torch.device
) -> tuple[DirectGraphStore, MappedArray]:
    """Return a store of edges, and their memory, which stays registered for as long as it lives.

    Parameters
    ----------
    num_nodes, num_edges : int
        Sizes; the edges are hit within a few per cent.
    quadrants : list of float
        Probabilities that the bits of source and destination are 00, 01, 10, 11; their sum is 1.
    seed : int
        Of the graph.
    device : torch.device
        Where it is drawn; graphs of one seed differ between kinds of device.
    """
    generator = torch.Generator(device).manual_seed(seed)
    num_bits = max(num_nodes - 1, 1).bit_length()
    codes = torch.empty(num_nodes, dtype=torch.int32, device=device)
    for start in range(0, num_nodes, NODES_PER_PIECE):
        rank = torch.arange(start, min(start + NODES_PER_PIECE, num_nodes), device=device)
        # Ids are scattered, since real graphs do not keep their hubs side by side.
        codes[_scatter_ids(rank, num_nodes)] = ((rank << num_bits) // num_nodes).int()
    colptr = _draw_pointers(codes, num_edges, num_bits, quadrants, generator)
    memory = MappedArray.empty((int(colptr[-1]),), torch.int32)
    # All cores touch the pages; registering them untouched would take one.
    memory.cpu_view().zero_()
    target = memory.cuda_view(device) if device.type == "cuda" else memory.cpu_view()
    first = 0
    while first < num_nodes:
        begin = int(colptr[first])
        last = int(torch.searchsorted(colptr, begin + EDGES_PER_PIECE, right=True)) - 1
        last = min(max(last, first + 1), num_nodes)
        ends = codes[first:last].repeat_interleave(colptr[first : last + 1].diff())
        sources = _draw_sources(ends, num_bits, quadrants, generator)
        ranks = (sources.long() * num_nodes) >> num_bits
        target[begin : begin + ends.numel()] = _scatter_ids(ranks, num_nodes).int()
        first = last
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    graph_store = DirectGraphStore()
    graph_store.put_edge_index(
        (memory.cpu_view(), colptr.cpu()), edge_type=None, layout="csc",
        size=(num_nodes, num_nodes),
    )  # fmt: skip
    return graph_store, memory


def _draw_pointers(
    codes: Tensor, num_edges: int, num_bits: int, quadrants: list[float], generator: torch.Generator
) -> Tensor:
    zero = quadrants[0] + quadrants[2]
    ones = torch.zeros(codes.shape, dtype=torch.int8, device=codes.device)
    for bit in range(num_bits):
        ones += ((codes >> bit) & 1).to(torch.int8)
    by_ones = [zero ** (num_bits - count) * (1 - zero) ** count for count in range(num_bits + 1)]
    degree = torch.tensor(by_ones, dtype=torch.float64, device=codes.device)[ones.int()]
    degree *= num_edges / degree.sum()
    # Rounding up with the probability of the remainder keeps the sum.
    degree += torch.rand(degree.shape, generator=generator, device=codes.device)
    colptr = torch.zeros(codes.numel() + 1, dtype=torch.int64, device=codes.device)
    torch.cumsum(degree.long(), 0, out=colptr[1:])
    return colptr


def _draw_sources(
    ends: Tensor, num_bits: int, quadrants: list[float], generator: torch.Generator
) -> Tensor:
    after_zero = quadrants[2] / (quadrants[0] + quadrants[2])
    after_one = quadrants[3] / (quadrants[1] + quadrants[3])
    sources = torch.zeros_like(ends)
    for bit in range(num_bits):
        chance = ((ends >> bit) & 1) * (after_one - after_zero) + after_zero
        draw = torch.rand(ends.shape, generator=generator, device=ends.device)
        sources |= (draw < chance).int() << bit
    return sources
