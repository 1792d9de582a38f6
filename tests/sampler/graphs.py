"""Graphs to sample, and a way to run the CUDA stages on this machine."""

import warnings

import torch
from torch_geometric.data import Data, HeteroData

from pyg_direct.kernels.launch import IS_SIMULATOR
from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.sampler.stages import CudaStages
from pyg_direct.sampler.workplace import Workplace

MODES = {
    "uniform": {},
    "replaced": {"replace": True},
    "disjoint": {"disjoint": True},
    "weighted": {"weight_attr": "weight"},
    "weighted-replaced": {"weight_attr": "weight", "replace": True},
    "node-time": {"time_attr": "time"},
    "node-time-last": {"time_attr": "time", "temporal_strategy": "last"},
    "edge-time": {"time_attr": "edge_time"},
    "edge-time-last": {"time_attr": "edge_time", "temporal_strategy": "last"},
    "weighted-in-time": {"time_attr": "time", "weight_attr": "weight"},
    "backward": {"sample_direction": "backward"},
    "induced": {"subgraph_type": "induced"},
    "induced-disjoint": {"subgraph_type": "induced", "disjoint": True},
    "induced-in-time": {"subgraph_type": "induced", "time_attr": "edge_time"},
    "bidirectional": {"subgraph_type": "bidirectional"},
}


class _SimulatedWorkplace(Workplace):
    def _stages(self):
        return CudaStages(0)


def on_gpu(data, num_neighbors, **options):
    """Return a sampler whose batches CUDA kernels make: on the GPU, or in the simulator."""
    if not IS_SIMULATOR:
        return DirectNeighborSampler(data, num_neighbors, device="cuda", **options)
    topology = options.pop("topology", "mapped")
    sampler = DirectNeighborSampler(data, num_neighbors, device="cpu", **options)
    sampler._workplace = _SimulatedWorkplace(sampler._graph, sampler.device, topology)
    return sampler


def make_data(num_nodes=40, num_edges=200, seed=42):
    """Self loops, multi-edges, isolated nodes, and a hub."""
    generator = torch.Generator().manual_seed(seed)
    size = (num_edges,)
    row = torch.randint(num_nodes, size, generator=generator)
    col = torch.randint(max(num_nodes * 3 // 4, 1), size, generator=generator)
    col[: num_edges // 4] = 0
    edge_index = torch.stack([row, col])
    edge_index[:, -3:] = edge_index[:, :3]
    weight = torch.rand(size, generator=generator)
    weight[::7] = 0
    return Data(
        edge_index=edge_index,
        x=torch.randn(num_nodes, 3, generator=generator),
        weight=weight,
        edge_time=torch.randint(20, size, generator=generator),
        time=torch.randint(20, (num_nodes,), generator=generator),
    )


def make_hetero(num_nodes=20, num_edges=60, seed=42):
    """A relation named like its node type, names with ``__``, an empty edge type, short colptrs."""
    with warnings.catch_warnings():
        # PyG warns of ``__`` in names, once; ours may hold it.
        warnings.simplefilter("ignore", UserWarning)
        return _make_hetero(num_nodes, num_edges, seed)


def _make_hetero(num_nodes, num_edges, seed):
    generator = torch.Generator().manual_seed(seed)
    sizes = {"a": num_nodes, "b__c": num_nodes + 7, "lonely": 3}
    data = HeteroData()
    for kind, size in sizes.items():
        data[kind].x = torch.randn(size, 2, generator=generator)
        data[kind].time = torch.randint(20, (size,), generator=generator)
    for kind in [("a", "a", "a"), ("a", "to__b", "b__c"), ("b__c", "rev_to__b", "a")]:
        ends = [
            torch.randint(max(sizes[end] - 4, 1), (num_edges,), generator=generator)
            for end in (kind[0], kind[2])
        ]
        data[kind].edge_index = torch.stack(ends)
        data[kind].weight = torch.rand(num_edges, generator=generator) + 0.1
        data[kind].edge_time = torch.randint(20, (num_edges,), generator=generator)
    data["lonely", "to", "a"].edge_index = torch.empty((2, 0), dtype=torch.int64)
    data["lonely", "to", "a"].weight = torch.empty(0)
    data["lonely", "to", "a"].edge_time = torch.empty(0, dtype=torch.int64)
    return data


def assert_same(left, right):
    """Two sampler outputs hold the same, wherever they are."""
    for name in ("node", "row", "col", "edge", "batch"):
        ours, theirs = getattr(left, name), getattr(right, name)
        assert type(ours) is type(theirs), name
        ours, theirs = (v if isinstance(v, dict) else {None: v} for v in (ours, theirs))
        assert ours.keys() == theirs.keys(), name
        for kind, value in ours.items():
            if value is None or theirs[kind] is None:
                assert value is theirs[kind], (name, kind)
            else:
                assert torch.equal(value.cpu(), theirs[kind].cpu()), (name, kind)
    assert left.num_sampled_nodes == right.num_sampled_nodes
    assert left.num_sampled_edges == right.num_sampled_edges
