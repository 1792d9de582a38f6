"""PyG's own full-batch GCN on its fastest form of the graph: what the backend is held against.

The adjacency is one ``torch.sparse`` CSR tensor, normalized once by PyG's ``gcn_norm``; the model
is ``torch_geometric.nn.GCN`` with ``normalize=False``.
"""

import warnings

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GCN
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from experiments.datasets.undirected import UndirectedGraph
from experiments.timing import EpochTimes, time_epochs

VALUES_PER_PIECE = 1 << 26


def normalized_csr(graph: UndirectedGraph, index_dtype: torch.dtype = torch.int64) -> Tensor:
    """Return the normalized adjacency with self loops as a sparse CSR tensor, shape (n, n).

    Parameters
    ----------
    graph : UndirectedGraph
        Without self loops.
    index_dtype : torch.dtype
        int64 is what PyG makes; int32 is what cuSPARSE likes best.
    """
    num_nodes = graph.num_nodes
    nodes = torch.arange(num_nodes, device=graph.row.device)
    target = nodes.repeat_interleave(graph.colptr.diff())
    edge_index = torch.stack([graph.row, target])
    del target
    edge_index, weight = gcn_norm(edge_index, num_nodes=num_nodes)
    order = torch.argsort(edge_index[1] * num_nodes + edge_index[0])
    column, weight = edge_index[0][order].to(index_dtype), weight[order]
    del edge_index, order
    # One loop a row was added.
    rowptr = graph.colptr + torch.arange(num_nodes + 1, device=nodes.device)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            rowptr.to(index_dtype),
            column,
            weight,
            size=(num_nodes, num_nodes),
            check_invariants=False,
        )


def whole_features(graph: UndirectedGraph) -> Tensor:
    """Return the features of all vertices: float32, shape (n, F), on the device of the edges."""
    device = graph.row.device
    x = torch.empty(graph.num_nodes, graph.num_features, device=device)
    step = max(1, VALUES_PER_PIECE // graph.num_features)
    for start in range(0, graph.num_nodes, step):
        rows = x[start : start + step]
        rows.copy_(graph.features(torch.arange(start, start + rows.size(0), device=device)))
    return x


def time_pyg(
    graph: UndirectedGraph,
    *,
    state: dict[str, Tensor],
    hidden_channels: int,
    num_layers: int,
    num_classes: int,
    lr: float,
    warmup: int,
    repeats: int,
    index_dtype: torch.dtype = torch.int64,
) -> EpochTimes:
    """Train PyG's GCN with Adam and cross-entropy over all vertices.

    Parameters
    ----------
    graph : UndirectedGraph
        Loses its edges once they are normalized, so that they do not count as PyG's memory.
    state : dict of Tensor
        Initial parameters.
    hidden_channels, num_layers, num_classes : int
    lr : float
    warmup, repeats : int
        See ``time_epochs``.
    index_dtype : torch.dtype
        See ``normalized_csr``.

    Raises
    ------
    torch.OutOfMemoryError
        If the device does not hold it.
    """
    device = graph.row.device
    adjacency = normalized_csr(graph, index_dtype)
    x, y = whole_features(graph), graph.labels(torch.arange(graph.num_nodes, device=device))
    graph.row = graph.colptr = graph.row.new_empty(0)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    model = GCN(graph.num_features, hidden_channels, num_layers, num_classes, normalize=False).to(
        device
    )
    model.load_state_dict(state)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def epoch() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x, adjacency), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return time_epochs(epoch, device=device, warmup=warmup, repeats=repeats)
