"""A pytest plugin that puts our stores and, if asked, our sampler and loaders in PyG's place.

Environment: ``PYG_DIRECT_SAMPLER=direct`` replaces PyG's ``NeighborSampler`` too; otherwise PyG's
own calls the operations of our double of ``pyg_lib``. ``PYG_DIRECT_LOADER=direct`` replaces
``NeighborLoader`` and ``LinkNeighborLoader``.
"""

import os
from typing import Any

import torch_geometric.loader
import torch_geometric.loader.link_neighbor_loader
import torch_geometric.loader.neighbor_loader
import torch_geometric.sampler
import torch_geometric.sampler.neighbor_sampler
import torch_geometric.testing
from torch_geometric.data import Data, HeteroData

import pyg_direct
from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.sampler.links import by_type
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore


# PyG's tests look at the names of the classes.
class MyFeatureStore(DirectFeatureStore):
    """Our feature store under the name that PyG's tests use."""

    def __init__(self) -> None:
        super().__init__("cpu")


class MyGraphStore(DirectGraphStore):
    """Our graph store under the name that PyG's tests use."""


class NeighborSampler(DirectNeighborSampler):
    """Our sampler with the positional arguments of PyG's."""

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        subgraph_type: Any = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        sample_direction: str = "forward",
    ) -> None:
        super().__init__(
            data, num_neighbors, device="cpu", replace=replace, disjoint=disjoint,
            subgraph_type=subgraph_type if directed else "induced", is_sorted=is_sorted,
            temporal_strategy=temporal_strategy, time_attr=time_attr, weight_attr=weight_attr,
            sample_direction=sample_direction,
        )  # fmt: skip

    def _sample(self, seed: Any, seed_time: Any = None, key: int | None = None) -> Any:
        # PyG's BidirectionalNeighborSampler calls this method of the samplers it is made of.
        times = None if seed_time is None else by_type(seed_time)
        key = self._next_key(None) if key is None else key
        return self._start(by_type(seed), times, key)()


class NeighborLoader(pyg_direct.NeighborLoader):
    """Our node loader, over a graph in memory on the CPU, whose tensors PyG's tests compare."""

    def __init__(self, data: Any, *arguments: Any, is_sorted: bool = False, **options: Any) -> None:
        super().__init__(_on_cpu(data, is_sorted), *arguments, **options)


class LinkNeighborLoader(pyg_direct.LinkNeighborLoader):
    """Our link loader, likewise."""

    def __init__(self, data: Any, *arguments: Any, is_sorted: bool = False, **options: Any) -> None:
        super().__init__(_on_cpu(data, is_sorted), *arguments, **options)


def _on_cpu(data: Any, is_sorted: bool) -> Any:
    if isinstance(data, Data | HeteroData):
        return pyg_direct.from_data(data, "cpu", is_sorted=is_sorted)
    return data


torch_geometric.testing.MyFeatureStore = MyFeatureStore
torch_geometric.testing.MyGraphStore = MyGraphStore
if os.environ.get("PYG_DIRECT_SAMPLER") == "direct":
    for module in (
        torch_geometric.loader.link_neighbor_loader,
        torch_geometric.loader.neighbor_loader,
        torch_geometric.sampler,
        torch_geometric.sampler.neighbor_sampler,
    ):
        module.NeighborSampler = NeighborSampler
if os.environ.get("PYG_DIRECT_LOADER") == "direct":
    torch_geometric.loader.NeighborLoader = NeighborLoader
    torch_geometric.loader.LinkNeighborLoader = LinkNeighborLoader
