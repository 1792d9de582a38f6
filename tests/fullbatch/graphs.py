"""Graphs and reference results that the tests of full-batch training share."""

import shutil
from pathlib import Path

import torch
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GraphSAGE

PLANETOID = Path(__file__).parents[2].parent / "shared" / "data" / "planetoid"
MODELS = {"gcn": GCN, "sage": GraphSAGE}


def random_graph(num_nodes=53, *, undirected=False, num_features=11, weighted=False, seed=0):
    """Random edges with duplicates and self loops; the last five vertices are isolated."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(num_nodes - 5, (2, 6 * num_nodes), generator=generator)
    if undirected:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    data = Data(
        x=torch.randn(num_nodes, num_features, generator=generator),
        edge_index=edge_index,
        y=torch.randint(4, (num_nodes,), generator=generator),
        train_mask=torch.rand(num_nodes, generator=generator) < 0.6,
        test_mask=torch.rand(num_nodes, generator=generator) < 0.3,
    )
    if weighted:
        data.edge_weight = torch.rand(edge_index.size(1), generator=generator)
    return data


def planetoid_graph(name, folder):
    """Load Cora or CiteSeer from a copy: PyG writes beside the raw files."""
    from torch_geometric.datasets import Planetoid
    from torch_geometric.transforms import NormalizeFeatures

    copy = Path(folder) / name
    if not copy.exists():
        shutil.copytree(PLANETOID / name, copy)
    return Planetoid(str(folder), name, transform=NormalizeFeatures())[0]


def pyg_run(data, convolution, state, epochs, **model_args):
    """Losses and gradients of PyG's own model on one process, epoch by epoch."""
    dropout = model_args.pop("dropout", 0.0)
    model = MODELS[convolution](**model_args, dropout=dropout)
    model.load_state_dict(state)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    weight = data.get("edge_weight")
    losses, gradients = [], []
    for _ in range(epochs):
        optimizer.zero_grad()
        if convolution == "gcn":
            out = model(data.x, data.edge_index, edge_weight=weight)
        else:
            out = model(data.x, data.edge_index)
        loss = functional.cross_entropy(out[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        gradients.append([p.grad.clone() for p in model.parameters()])
    return losses, gradients


def power_law_edges(num_nodes, num_edges):
    """Endpoints drawn with weights that fall with the number of the vertex."""
    generator = torch.Generator().manual_seed(4)
    draw = torch.rand(2, num_edges, generator=generator)
    return (draw.square() * num_nodes).long()
