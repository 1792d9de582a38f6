"""Check a loader's arguments before PyG sees them."""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import BaseSampler

from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore, from_data

# PyG checks ``time_attr`` against the times of seeds, whoever samples.
SAMPLER_DEFAULTS = {
    "replace": False,
    "subgraph_type": "directional",
    "disjoint": False,
    "temporal_strategy": "uniform",
    "weight_attr": None,
    "directed": True,
    "seed": None,
}


class GraphPair(tuple[DirectFeatureStore, DirectGraphStore]):
    """Both stores, with what PyG's ``BasicGNN.inference`` asks a loader's graph for."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes of a homogeneous graph."""
        return self[1].num_nodes()[None]

    @property
    def x(self) -> Tensor:
        """The whole tensor ``x`` of a homogeneous graph, where it stands; not a copy."""
        return self[0].table(None, "x").rows()


def check_data(data: Any, *, is_sorted: bool) -> GraphPair:
    """Return the stores of a loader.

    Parameters
    ----------
    data : (DirectFeatureStore, DirectGraphStore), Data or HeteroData
        A graph in memory is put into stores, for the GPU if there is one.
    is_sorted : bool
        The edges of a graph in memory are in order of destination.

    Raises
    ------
    TypeError
        If ``data`` is something else.
    ValueError
        If stores are said to be sorted.
    """
    if isinstance(data, Data | HeteroData):
        return GraphPair(from_data(data, is_sorted=is_sorted))
    if (
        not isinstance(data, tuple)
        or len(data) != 2
        or not isinstance(data[0], DirectFeatureStore)
        or not isinstance(data[1], DirectGraphStore)
    ):
        raise TypeError(
            f"data is {data!r}, expected (DirectFeatureStore, DirectGraphStore), Data or "
            "HeteroData; for stores of your own use PyG's NeighborLoader with "
            "neighbor_sampler=DirectNeighborSampler(...)"
        )
    if is_sorted:
        raise ValueError(
            "is_sorted is True, but a graph store has compressed its edges already; say so when "
            "edges are put: EdgeAttr(..., is_sorted=True)"
        )
    return GraphPair(data)


def resolve_sampler(
    sampler: BaseSampler | None,
    data: GraphPair,
    num_neighbors: Any,
    *,
    num_workers: int,
    **options: Any,
) -> BaseSampler:
    """Return the user's sampler, or one on the device of the store; on the CPU for workers.

    Parameters
    ----------
    sampler : BaseSampler or None
        The user's.
    data : GraphPair
        The graph.
    num_neighbors
        Of a new sampler.
    num_workers : int
        Of the loader.
    **options
        Of a new sampler, and ``directed``, PyG's old name for ``subgraph_type="induced"``.

    Raises
    ------
    TypeError
        If ``sampler`` is none.
    ValueError
        Naming an option that a given sampler would not hear of.
    """
    if sampler is None:
        if not options.pop("directed"):
            options["subgraph_type"] = "induced"
        device = torch.device("cpu") if num_workers else data[0].device
        return DirectNeighborSampler(data, num_neighbors, device=device, **options)
    if not isinstance(sampler, BaseSampler):
        raise TypeError(
            f"neighbor_sampler is a {type(sampler).__name__}, expected a BaseSampler, such as "
            "DirectNeighborSampler"
        )
    for name, default in SAMPLER_DEFAULTS.items():
        if options[name] != default:
            raise ValueError(
                f"{name} is {options[name]!r}, but neighbor_sampler is given, which would not hear "
                "of it; give it to the sampler"
            )
    return sampler


def check_device(
    device: torch.device,
    *,
    filter_per_worker: bool | None,
    neighbor_sampler: BaseSampler | None,
    options: dict[str, Any],
) -> None:
    """Refuse what CUDA does not allow.

    Parameters
    ----------
    device : torch.device
        Of the feature store.
    filter_per_worker, neighbor_sampler, options
        Of the loader; ``options`` are those of torch's ``DataLoader``.

    Raises
    ------
    ValueError
        Naming the argument and the way out.
    """
    sampler_device = getattr(neighbor_sampler, "device", torch.device("cpu"))
    if options.get("num_workers") and sampler_device.type == "cuda":
        raise ValueError(
            f"num_workers is {options['num_workers']}, but neighbor_sampler runs on the GPU, which "
            "worker processes cannot reach; use num_workers=0, or a sampler with device='cpu'"
        )
    if device.type != "cuda":
        return
    if filter_per_worker:
        raise ValueError(
            "filter_per_worker is True, but the feature store serves rows on the GPU, which worker "
            "processes cannot reach; leave it out, or give the store device='cpu'"
        )
    if options.get("pin_memory"):
        raise ValueError("pin_memory is True, but batches are on the GPU already; leave it out")


def check_options(depth: int | None, options: dict[str, Any]) -> None:
    """Check ``depth``, and options of torch's ``DataLoader`` that PyG's loaders do not survive.

    Raises
    ------
    ValueError
        Naming the option and what was expected.
    """
    if depth is not None and (not isinstance(depth, int) or depth < 0):
        raise ValueError(f"depth is {depth!r}, expected a whole number, 0 or more")
    if "batch_size" in options and options["batch_size"] is None:
        raise ValueError(
            "batch_size is None, which gives single seeds; expected 1 or more, or a batch_sampler"
        )


def check_length(name: str, values: Any, num_seeds: int) -> None:
    """Refuse an argument that has not one entry a seed.

    Raises
    ------
    ValueError
        Naming the argument and both lengths.
    """
    if values is not None and len(values) != num_seeds:
        raise ValueError(f"{name} has {len(values)} entries, expected {num_seeds}, one a seed")
