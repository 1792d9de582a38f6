"""PyG's ``NeighborLoader`` over stores: sampled and gathered on one device.

Assumption: stores do not change while a loader reads them.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput

from pyg_direct.loader.batch import heterogeneous_batch, homogeneous_batch
from pyg_direct.loader.inputs import seed_nodes
from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore, from_data


class NeighborLoader(torch_geometric.loader.NeighborLoader):  # type: ignore[misc]
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
    filter_per_worker : bool, optional
        True gathers rows in the workers, which only a store on the CPU allows. Default: False.
    neighbor_sampler : BaseSampler, optional
        Default: a ``DirectNeighborSampler`` with the arguments given here, on the device of the
        store; on the CPU if ``num_workers`` is more than 0.
    seed : int, optional
        Of the sampler: the same seed gives the same batches on the CPU and on the GPU. None: drawn
        from torch's generator.
    **kwargs
        Of ``torch.utils.data.DataLoader``.

    Raises
    ------
    ValueError
        If arguments contradict each other, or ask for what CUDA does not allow.
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
        **kwargs: Any,
    ) -> None:
        if isinstance(data, Data | HeteroData):
            data = from_data(data)
        feature_store, graph_store = _check_stores(data)
        self._check_device(feature_store.device, filter_per_worker, neighbor_sampler, kwargs)
        if not directed:
            subgraph_type = "induced"
        if neighbor_sampler is None:
            neighbor_sampler = DirectNeighborSampler(
                data,
                num_neighbors,
                replace=replace,
                subgraph_type=subgraph_type,
                disjoint=disjoint,
                temporal_strategy=temporal_strategy,
                time_attr=time_attr,
                weight_attr=weight_attr,
                seed=seed,
                device="cpu" if kwargs.get("num_workers") else feature_store.device,
            )
        node_type, nodes = seed_nodes(feature_store, graph_store, input_nodes)
        super().__init__(
            data,
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

    def filter_fn(self, out: SamplerOutput | HeteroSamplerOutput) -> Any:
        """Turn sampled ids into a mini-batch on the device of the store.

        Parameters
        ----------
        out : SamplerOutput or HeteroSamplerOutput
            On any device.

        Returns
        -------
        Data or HeteroData
            What ``transform`` makes of it, if there is one.
        """
        if self.transform_sampler_output:
            out = self.transform_sampler_output(out)
        feature_store: DirectFeatureStore = self.data[0]
        if isinstance(out, SamplerOutput):
            batch = homogeneous_batch(feature_store, out, self.custom_cls)
            seeds = batch
        else:
            batch = heterogeneous_batch(feature_store, out, self.custom_cls)
            seeds = batch[self.input_data.input_type]
        input_id, seed_time = out.metadata
        seeds.input_id = input_id.to(feature_store.device)
        seeds.seed_time = None if seed_time is None else seed_time.to(feature_store.device)
        seeds.batch_size = input_id.numel()
        return batch if self.transform is None else self.transform(batch)

    @staticmethod
    def _check_device(
        device: torch.device,
        filter_per_worker: bool | None,
        neighbor_sampler: BaseSampler | None,
        kwargs: dict[str, Any],
    ) -> None:
        if device.type != "cuda":
            return
        if filter_per_worker:
            raise ValueError(
                "filter_per_worker is True, but the feature store serves rows on the GPU, which "
                "worker processes cannot reach; leave it out, or give the store device='cpu'"
            )
        if kwargs.get("pin_memory"):
            raise ValueError("pin_memory is True, but batches are on the GPU already; leave it out")
        sampler_device = getattr(neighbor_sampler, "device", torch.device("cpu"))
        if kwargs.get("num_workers") and sampler_device.type == "cuda":
            raise ValueError(
                f"num_workers is {kwargs['num_workers']}, but neighbor_sampler runs on the GPU, "
                "which worker processes cannot reach; use num_workers=0, or a sampler with "
                "device='cpu'"
            )


def _check_stores(data: Any) -> tuple[DirectFeatureStore, DirectGraphStore]:
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
    return data
