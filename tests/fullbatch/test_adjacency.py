import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from pyg_direct.fullbatch import GraphSource, Ranks, partition_nodes
from pyg_direct.fullbatch.adjacency import build_adjacency
from tests.fullbatch.graphs import random_graph

ALONE = Ranks()


def _build(data, **args):
    partition = partition_nodes(data.num_nodes, 1, order="random")
    edges = GraphSource(data).edges(partition.nodes(0), ALONE.device)
    adjacency = build_adjacency(edges, partition, ALONE, **args)
    back = partition.positions()
    return adjacency, *(
        tiles[0].pieces[0].matrix.to_dense()[back][:, back]
        for tiles in (adjacency.tiles, adjacency.transposed)
    )


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("undirected", [False, True], ids=["directed", "undirected"])
def test_build_adjacency_equals_gcn_norm(undirected, weighted):
    data = random_graph(undirected=undirected, weighted=weighted)
    # PyG keeps one of several loops of a vertex, and does not say which.
    keep = data.edge_index[0] != data.edge_index[1]
    data.edge_index = data.edge_index[:, keep]
    if weighted:
        data.edge_weight = data.edge_weight[keep]
    edge_index, weight = gcn_norm(data.edge_index, data.get("edge_weight"), data.num_nodes)
    expected = to_dense_adj(edge_index, edge_attr=weight, max_num_nodes=data.num_nodes)[0].t()

    adjacency, dense, transposed = _build(data, normalization="symmetric", self_loops=True)

    torch.testing.assert_close(dense, expected)
    torch.testing.assert_close(transposed, expected.t())
    assert (adjacency.tiles is adjacency.transposed) == (undirected and not weighted)


@pytest.mark.parametrize("undirected", [False, True], ids=["directed", "undirected"])
def test_build_adjacency_mean_rows_sum_to_one(undirected):
    data = random_graph(undirected=undirected)
    has_edges = torch.bincount(data.edge_index[1], minlength=data.num_nodes) > 0

    adjacency, dense, transposed = _build(data, normalization="mean", self_loops=False)

    torch.testing.assert_close(dense.sum(dim=1), has_edges.float())
    torch.testing.assert_close(transposed, dense.t())
    if undirected:
        # The graph is symmetric though its mean is not: indices are shared.
        first, second = (t[0].pieces[0].matrix for t in (adjacency.tiles, adjacency.transposed))
        assert first.col_indices().data_ptr() == second.col_indices().data_ptr()


def test_build_adjacency_keeps_the_weight_of_a_loop():
    data = random_graph(weighted=True)
    data.edge_index = torch.tensor([[0, 1], [0, 0]])
    data.edge_weight = torch.tensor([0.25, 0.5])

    _, dense, _ = _build(data, normalization="mean", self_loops=True)

    assert dense[0, :2].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert dense[1, 1] == 1.0


def test_build_adjacency_rejects_unknown_normalization():
    with pytest.raises(ValueError, match="normalization = 'max'"):
        _build(random_graph(), normalization="max", self_loops=True)
