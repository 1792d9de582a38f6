"""PyG's ``NeighborLoader`` over stores: sampled and gathered on one device, ahead of the model.

Assumption: stores do not change while a loader reads them.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import BaseSampler

from pyg_direct.loader.arguments import (
    check_data,
    check_device,
    check_length,
    check_options,
    resolve_sampler,
)
from pyg_direct.loader.direct import DirectLoader
from pyg_direct.loader.inputs import seed_nodes
from pyg_direct.loader.labels import label_nodes
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore


class NeighborLoader(DirectLoader, torch_geometric.loader.NeighborLoader):  # type: ignore[misc]
    """Mini-batches of sampled neighbourhoods, wholly on the device of the feature store.

    Takes what PyG's loader takes, with what is said here.

    Parameters
    ----------
    data : (DirectFeatureStore, DirectGraphStore), Data or HeteroData
        A graph in memory is put into stores first, for the GPU if there is one.
    num_neighbors : list of int or dict
        Fan-out of each hop, for all edge types or by edge type; -1 for every neighbour.
    input_nodes : optional
        None, mask, index, list, node type, or (node type, any of these).
    transform : callable, optional
        From a batch to a batch, in the thread of the loop.
    transform_sampler_output : callable, optional
        From a sampler's output to another, where it is sampled. Ids are then checked before
        they are read, which waits for a GPU.
    is_sorted : bool
        The edges of a graph in memory are in order of destination.
    filter_per_worker : bool, optional
        True gathers rows in the workers, which only a store on the CPU allows. Default: False.
    neighbor_sampler : BaseSampler, optional
        Default: a ``DirectNeighborSampler`` with the arguments given here, on the device of the
        store; on the CPU if ``num_workers`` is more than 0.
    seed : int, optional
        Of the sampler: the same seed gives the same batches on the CPU and on the GPU, at any depth
        and with any number of workers. None: drawn from torch's generator.
    depth : int, optional
        Batches made ahead of the one in use: in a thread where the CPU samples, else while the loop
        sleeps in ``backward`` or between two batches; 0 makes each when it is asked for. Default: 2
        for a store on a GPU whose sampling the GPU or workers do, else 0. Ahead of a model a gather
        keeps a quarter of the multiprocessors busy, or an eleventh. Where the GPU samples and
        nothing of edges is gathered, ``depth + 1`` CUDA graphs make batches of the same size whole;
        each keeps memory for one.
    exclude : iterable
        Tensors to leave out of batches: names, or (group, name). ``fetch`` gets them later.
    **kwargs
        Of PyG's ``NodeLoader`` (``custom_cls``, ``input_id``) and torch's ``DataLoader``.

    Raises
    ------
    ValueError
        If arguments contradict each other, have no effect, or ask for what CUDA does not allow.
    TypeError, IndexError
        If ``data`` or ``input_nodes`` is not as described.
    """

    def __init__(
        self,
        data: tuple[DirectFeatureStore, DirectGraphStore] | Data | HeteroData,
        num_neighbors: list[int] | dict[Any, list[int]],
        input_nodes: Any = None,
        input_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: BaseSampler | None = None,
        directed: bool = True,
        *,
        seed: int | None = None,
        depth: int | None = None,
        exclude: Iterable[Any] = (),
        **kwargs: Any,
    ) -> None:
        check_options(depth, kwargs)
        stores = check_data(data, is_sorted=is_sorted)
        check_device(
            stores[0].device,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=neighbor_sampler,
            options=kwargs,
        )
        neighbor_sampler = resolve_sampler(
            neighbor_sampler, stores, num_neighbors, replace=replace, subgraph_type=subgraph_type,
            disjoint=disjoint, temporal_strategy=temporal_strategy, time_attr=time_attr,
            weight_attr=weight_attr, directed=directed, seed=seed,
            num_workers=kwargs.get("num_workers", 0),
        )  # fmt: skip
        node_type, nodes = seed_nodes(*stores, input_nodes)
        super().__init__(
            stores,
            num_neighbors,
            input_nodes=nodes if node_type is None else (node_type, nodes),
            input_time=input_time,
            time_attr=time_attr,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=bool(filter_per_worker),
            neighbor_sampler=neighbor_sampler,
            **kwargs,
        )
        check_length("input_time", input_time, len(self.dataset))
        self._set_up(neighbor_sampler, depth=depth, exclude=exclude)

    def _label(self, batch: Any, metadata: tuple[Any, ...]) -> None:
        label_nodes(batch, metadata, self.input_data.input_type, self._device)
