"""What the ranks of one spawned group do: every case for P = 2, 3 and 4, results to a file each."""

import os
import time

import torch
import torch.distributed as dist

from pyg_direct.fullbatch import FullBatchGNN, FullBatchTrainer, GraphSource
from pyg_direct.fullbatch.partition import partition_nodes
from pyg_direct.fullbatch.processes import Ranks
from pyg_direct.fullbatch.staged_product import StagedProduct, Trace
from pyg_direct.fullbatch.tiles import cut_tiles
from tests.fullbatch.graphs import planetoid_graph, random_graph

EPOCHS = 3
# The kernel, which GPUs take by default, wants wider blocks.
BY_THREE = {"engine": "library", "column_block": 3}
# name: graph, model, trainer
CASES = {
    "undirected": ({"undirected": True}, {}, {}),
    "directed": ({}, {}, {}),
    "weighted": ({"weighted": True}, {}, {}),
    "sage": ({}, {"convolution": "sage"}, {"order": "natural"}),
    "widening": ({}, {"hidden_channels": 1}, {"features": "host"}),
    "slices": ({}, {}, BY_THREE),
    "sage slices": ({}, {"convolution": "sage"}, BY_THREE),
    "padded": ({}, {"hidden_channels": 7}, {}),
    "one layer": ({"undirected": True}, {"num_layers": 1}, {}),
    "dropout": ({"undirected": True}, {"dropout": 0.5, "residual": True}, {"order": "natural"}),
    "leaky dropout": ({}, {"dropout": 0.5, "act": "leaky_relu"}, {}),
}


def graph_of(name, folder):
    if name in ("Cora", "CiteSeer"):
        return planetoid_graph(name, folder)
    return random_graph(**CASES[name][0])


def model_args_of(name, data):
    args = {
        "in_channels": data.num_features,
        "hidden_channels": 8,
        "num_layers": 2 if name in ("Cora", "CiteSeer") else 3,
        "out_channels": int(data.y.max()) + 1,
    }
    return args | (CASES[name][1] if name in CASES else {})


def run_case(name, ranks, folder):
    """Train for a few epochs; return losses, the gradients of each epoch, and accuracies."""
    data = graph_of(name, folder)
    torch.manual_seed(1)
    model = FullBatchGNN(**model_args_of(name, data))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    trainer_args = CASES[name][2] if name in CASES else {}
    losses, gradients = [], []
    with FullBatchTrainer(model, GraphSource(data), ranks=ranks, **trainer_args) as trainer:
        for _ in range(EPOCHS):
            losses.append(trainer.train_epoch().item())
            gradients.append([p.grad.clone() for p in model.parameters()])
        accuracy = trainer.evaluate()
        balance = trainer.balance
    return {
        "state": state,
        "losses": losses,
        "gradients": gradients,
        "accuracy": accuracy,
        "rows": balance.rows,
    }


def run_all(world, folder, names):
    """Run every case in the groups of the first 2, 3 and 4 ranks; rank 0 writes the results."""
    torch.set_num_threads(1)
    for num_ranks in range(2, world.num_ranks + 1):
        members = list(range(num_ranks))
        # Every rank of the world takes part in making a group, members or not.
        group = dist.new_group(members)
        control = dist.new_group(members, backend="gloo") if world.device.type == "cuda" else group
        if world.rank >= num_ranks:
            continue
        ranks = Ranks(
            rank=world.rank,
            num_ranks=num_ranks,
            device=world.device,
            group=group,
            control=control,
            timeout_s=world.timeout_s,
        )
        results = {name: run_case(name, ranks, folder) for name in names}
        spans, error = traced_product(ranks)
        if world.rank == 0:
            torch.save((results, spans, error), f"{folder}/{num_ranks}.pt")
    world.meet("the end of the cases")


def traced_product(ranks):
    """Multiply once with a trace; return its marks and the largest error."""
    num_nodes, width = 37, 5
    generator = torch.Generator().manual_seed(3)
    dense = (torch.rand(num_nodes, num_nodes, generator=generator) < 0.2).float()
    operand = torch.randn(num_nodes, width, generator=generator)
    partition = partition_nodes(num_nodes, ranks.num_ranks, order="natural")
    first, last = partition.offsets[ranks.rank], partition.offsets[ranks.rank + 1]
    csr = dense[first:last].nonzero()
    counts = torch.bincount(csr[:, 0], minlength=last - first)
    rowptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]).to(ranks.device)
    column = csr[:, 1].to(ranks.device)
    values = torch.ones(column.numel(), device=ranks.device)
    tiles = cut_tiles(rowptr, column, values, partition.offsets)
    buffers = [torch.empty(max(partition.sizes) * width, device=ranks.device) for _ in range(2)]
    product = StagedProduct(ranks, partition.sizes, buffers=buffers, column_block=2)
    product.trace = Trace(ranks.device)
    out = torch.full((last - first, width), float("nan"), device=ranks.device)
    product.multiply(tiles, operand[first:last].to(ranks.device), out)
    error = (out.cpu() - (dense @ operand)[first:last]).abs().max().item()
    return product.trace.spans(), error


def die_on_rank_one(ranks):
    """Rank 1 leaves without a word, as if killed, while the others wait for it."""
    if ranks.rank == 1:
        os._exit(0)
    tensor = torch.zeros(4)
    ranks.wait(ranks.broadcast(tensor, 1), "the broadcast from rank 1")


def disagree(ranks):
    """Ranks start with different seeds."""
    data = random_graph()
    torch.manual_seed(1)
    model = FullBatchGNN(11, 4, 2, 4)
    FullBatchTrainer(model, GraphSource(data), ranks=ranks, seed=ranks.rank)


def sleep_on_rank_one(ranks):
    """Rank 1 is alive but does not come."""
    if ranks.rank == 1:
        time.sleep(60)
    ranks.meet("the start of training")
