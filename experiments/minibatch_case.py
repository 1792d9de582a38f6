"""The graph of the minibatch task, and its batches in every case.

Shape legend: ``N`` nodes, ``F`` features.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

import pyg_direct
from experiments.rmat_stores import make_rmat
from experiments.staged_pipeline import StagedBatches
from pyg_direct.loader.stats import EpochStats
from pyg_direct.memory import MappedArray

ROWS, SAMPLERS = ("mapped", "device", "staged"), ("cpu", "gpu")
ROWS_PER_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Where rows stand, and who samples.

    Parameters
    ----------
    rows : str
        ``"mapped"``: host memory, read by kernels; ``"device"``: GPU memory; ``"staged"``: host
        memory, gathered by the CPU into pinned memory and copied.
    sampler : str
        ``"cpu"`` or ``"gpu"``.
    topology : str
        Of a sampler on the GPU: ``"mapped"``, ``"colptr"``, ``"device"``.
    budget_gb : float, optional
        Of device memory, for topology and hot rows, by ``place``, which then places the topology.
    depth : int
        Batches ahead of the one in use.
    threads : int
        Of the staged case: 1, or 2 to sample and gather at the same time.
    """

    rows: str
    sampler: str
    topology: str | None = "colptr"
    budget_gb: float | None = None
    depth: int = 2
    threads: int = 2

    def __post_init__(self) -> None:
        if self.rows not in ROWS or self.sampler not in SAMPLERS:
            raise ValueError(
                f"case has rows={self.rows!r} and sampler={self.sampler!r}, expected one of {ROWS} "
                f"and one of {SAMPLERS}"
            )
        if self.rows == "staged" and (self.sampler == "gpu" or self.depth == 0):
            raise ValueError("the staged case samples on the CPU, ahead: sampler='cpu', depth >= 1")

    @property
    def name(self) -> str:
        """For tables and pictures."""
        where = f" {self.topology}" if self.sampler == "gpu" else ""
        if self.budget_gb is not None:
            where = f", {self.budget_gb:g} GB of hot rows"
        threads = f" threads {self.threads}" if self.rows == "staged" else ""
        return f"{self.rows}, {self.sampler}{where}, depth {self.depth}{threads}"

    @property
    def needs_gpu(self) -> bool:
        """Whether a run on the CPU has to leave it out."""
        return self.rows == "device" or self.sampler == "gpu" or self.budget_gb is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph in host memory.

    Parameters
    ----------
    edges : DirectGraphStore
        Compressed.
    memory : MappedArray
        Of the edges; they stay registered for as long as it lives.
    x : MappedArray, shape (N, F)
        float32.
    y : int64 Tensor, shape (N,)
        Classes.
    num_classes : int
    """

    edges: pyg_direct.DirectGraphStore
    memory: MappedArray
    x: MappedArray
    y: Tensor
    num_classes: int

    @property
    def num_features(self) -> int:
        """``F``."""
        return self.x.shape[1]

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.edges.topology(None).num_edges

    def seeds(self, num_seeds: int, *, seed: int) -> Tensor:
        """Draw nodes that have a neighbour, with repeats if there are fewer; int64, on the CPU."""
        degree = self.edges.topology(None).colptr.diff()
        candidates = (degree > 0).nonzero().view(-1)
        generator = torch.Generator().manual_seed(seed)
        return candidates[torch.randint(candidates.numel(), (num_seeds,), generator=generator)]


class Batches(Protocol):
    """What the task trains on."""

    def __iter__(self) -> Iterator[Data]: ...

    def __len__(self) -> int: ...

    def stats(self) -> list[EpochStats]:
        """Return what epochs cost."""


def make_graph(
    *,
    num_nodes: int,
    num_edges: int,
    num_features: int,
    num_classes: int,
    quadrants: list[float],
    seed: int,
    device: torch.device,
) -> Graph:
    """Generate a graph on a device, in pieces, into host memory.

    Parameters
    ----------
    num_nodes, num_edges, num_features, num_classes : int
        Sizes.
    quadrants : list of float
        Of R-MAT.
    seed : int
    device : torch.device
    """
    edges, memory = make_rmat(
        num_nodes=num_nodes, num_edges=num_edges, quadrants=quadrants, seed=seed, device=device
    )
    generator = torch.Generator(device).manual_seed(seed)
    x = MappedArray.empty((num_nodes, num_features), torch.float32)
    rows = x.cpu_view().fill_(0)
    target = x.cuda_view(device) if device.type == "cuda" else rows
    for start in range(0, num_nodes, ROWS_PER_PIECE):
        part = target[start : start + ROWS_PER_PIECE]
        part.copy_(torch.randn(part.shape, generator=generator, device=device))
    y = torch.randint(num_classes, (num_nodes,), generator=generator, device=device).cpu()
    return Graph(edges=edges, memory=memory, x=x, y=y, num_classes=num_classes)


def make_batches(
    graph: Graph,
    case: Case,
    *,
    seeds: Tensor,
    device: torch.device,
    num_neighbors: list[int],
    batch_size: int,
    seed: int,
) -> Batches:
    """Place rows and topology, and return the batches of an epoch, as often as they are iterated.

    Parameters
    ----------
    graph : Graph
    case : Case
    seeds : int64 Tensor
        Seeds of the epoch.
    device : torch.device
        Where batches appear.
    num_neighbors : list of int
        Fan-outs.
    batch_size : int
    seed : int
        Of the sampler.
    """
    x, y = graph.x.cpu_view(), graph.y
    if case.rows == "device":
        x, y = x.to(device), y.to(device)
    store = pyg_direct.DirectFeatureStore("cpu" if case.rows == "staged" else device)
    store[None, "x", None], store[None, "y", None] = x, y
    stores, topology = (store, graph.edges), case.topology
    if case.budget_gb is not None:
        print(pyg_direct.place(*stores, int(case.budget_gb * 1e9), score="degree").explain())
        topology = None
    sampler = pyg_direct.DirectNeighborSampler(
        stores, num_neighbors, seed=seed, topology=topology, return_e_id=False,
        device=device if case.sampler == "gpu" else "cpu",
    )  # fmt: skip
    if case.rows == "staged":
        return StagedBatches(
            sampler, x=x, y=y, input_nodes=seeds, batch_size=batch_size, device=device,
            num_threads=case.threads, depth=case.depth,
        )  # fmt: skip
    loader = pyg_direct.NeighborLoader(
        stores, num_neighbors, seeds, neighbor_sampler=sampler, batch_size=batch_size, shuffle=True,
        depth=case.depth,
    )  # fmt: skip
    return cast(Batches, loader)
