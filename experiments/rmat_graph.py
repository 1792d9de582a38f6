"""R-MAT graphs of any size (Chakrabarti et al. 2004, section 3), compressed from the start.

An edge picks a quadrant of the adjacency matrix bit by bit. The bits are independent, so the column
can be chosen first: its in-degree is the expected one, rounded at random, and the row's bits follow
from the column's. Edges then come out in order of column, and 10^9 of them need no sort. Ids are
scattered, since real graphs do not keep their hubs side by side.

Shape legend: ``N`` nodes, ``E`` edges.
"""

from math import gcd

import torch
from torch import Tensor

from pyg_direct.memory import MappedArray
from pyg_direct.stores import DirectGraphStore

EDGES_PER_PIECE = 1 << 25


def make_rmat(
    *, num_nodes: int, num_edges: int, quadrants: list[float], seed: int, device: torch.device
) -> DirectGraphStore:
    """Return a store that holds the graph in host memory.

    Parameters
    ----------
    num_nodes : int
        ``N``, more than 0, at most ``2**31``.
    num_edges : int
        ``E``, hit within a few per cent.
    quadrants : list of float
        Probabilities of the four quadrants, row by row; their sum is 1.
    seed : int
        Of the graph.
    device : torch.device
        Where the numbers are drawn; graphs of one seed differ between kinds of device.

    Raises
    ------
    ValueError
        If ``quadrants`` are not four numbers whose sum is 1.
    """
    if len(quadrants) != 4 or abs(sum(quadrants) - 1) > 1e-6:
        raise ValueError(f"quadrants ({quadrants}) must be 4 probabilities whose sum is 1")
    generator = torch.Generator(device).manual_seed(seed)
    num_bits = max(num_nodes - 1, 1).bit_length()
    colptr = _draw_colptr(num_nodes, num_edges, quadrants, num_bits, generator)
    memory = MappedArray.empty((int(colptr[-1]),), torch.int32)
    # Written by all threads, the memory has its pages before CUDA asks for them one by one.
    row = memory.cpu_view().fill_(0)
    # The GPU writes straight to mapped memory, which spares a staging copy.
    target = memory.cuda_view(device) if device.type == "cuda" else row
    for start in range(0, row.numel(), EDGES_PER_PIECE):
        stop = min(start + EDGES_PER_PIECE, row.numel())
        edges = torch.arange(start, stop, device=device)
        column = torch.searchsorted(colptr, edges, right=True) - 1
        cell = _gather_ids(column, num_nodes) * 2**num_bits // num_nodes
        cell = _draw_rows(cell, quadrants, num_bits, generator)
        target[start:stop] = _scatter_ids((cell * num_nodes) >> num_bits, num_nodes)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    store = DirectGraphStore()
    store.put_edge_index(
        (row, colptr.cpu()), edge_type=None, layout="csc", size=(num_nodes, num_nodes)
    )
    return store


def _draw_colptr(
    num_nodes: int,
    num_edges: int,
    quadrants: list[float],
    num_bits: int,
    generator: torch.Generator,
) -> Tensor:
    device = generator.device
    low, high = quadrants[0] + quadrants[2], quadrants[1] + quadrants[3]
    ids = torch.arange(num_nodes, device=device)
    cell = _gather_ids(ids, num_nodes) * 2**num_bits // num_nodes
    share = torch.ones(num_nodes, dtype=torch.float64, device=device)
    for bit in range(num_bits):
        share *= torch.where((cell >> bit) & 1 == 1, high, low)
    degree = share.mul_(num_edges / share.sum())
    # Rounding up with the probability of the remainder keeps the sum.
    degree = degree.add_(torch.rand(num_nodes, generator=generator, device=device)).long()
    colptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=device)
    torch.cumsum(degree, 0, out=colptr[1:])
    return colptr


def _draw_rows(
    column: Tensor, quadrants: list[float], num_bits: int, generator: torch.Generator
) -> Tensor:
    """Draw a row for each column: bit by bit, given the bit of the column."""
    after_low = quadrants[2] / (quadrants[0] + quadrants[2])
    after_high = quadrants[3] / (quadrants[1] + quadrants[3])
    row = torch.zeros_like(column)
    for bit in range(num_bits):
        is_high = torch.where((column >> bit) & 1 == 1, after_high, after_low)
        draw = torch.rand(len(column), generator=generator, device=column.device)
        row |= (draw < is_high).long() << bit
    return row


def _factor(num_nodes: int) -> int:
    factor = max(int(num_nodes * 0.618), 1)
    while gcd(factor, num_nodes) > 1:
        factor += 1
    return factor


def _scatter_ids(nodes: Tensor, num_nodes: int) -> Tensor:
    """Map ids one to one to ids that lie far apart."""
    return nodes * _factor(num_nodes) % num_nodes


def _gather_ids(nodes: Tensor, num_nodes: int) -> Tensor:
    """Undo ``_scatter_ids``."""
    return nodes * pow(_factor(num_nodes), -1, num_nodes) % num_nodes
