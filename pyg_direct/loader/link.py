"""PyG's ``LinkNeighborLoader`` over stores: sampled and gathered on one device, ahead of the model.

Assumption: stores do not change while a loader reads them.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import BaseSampler, NegativeSampling

from pyg_direct.loader.arguments import (
    check_data,
    check_device,
    check_length,
    check_options,
    resolve_sampler,
)
from pyg_direct.loader.direct import DirectLoader
from pyg_direct.loader.labels import label_links
from pyg_direct.loader.seed_links import seed_links
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore


class LinkNeighborLoader(DirectLoader, torch_geometric.loader.LinkNeighborLoader):  # type: ignore[misc]
    """Mini-batches of neighbourhoods of links, wholly on the device of the feature store.

    Takes what PyG's loader takes, with what is said here and at ``NeighborLoader``.

    Parameters
    ----------
    edge_label_index : optional
        None for all edges, two rows of node ids, an edge type, or (edge type, None or rows). Of an
        edge type ``(source, destination)`` is enough where one edge type joins the two.
    edge_label : optional
        Labels of the links, one each. With binary negatives, labels that hold 0 are raised by one,
        since 0 is the label of a negative.
    edge_label_time : optional
        Time of each link; goes with ``time_attr``.
    neg_sampling : NegativeSampling, str, dict, or number, optional
        ``"binary"`` or ``"triplet"``, amount and weights. The same seed draws the same negatives
        everywhere, and none is younger than its link.

    Raises
    ------
    ValueError
        If arguments contradict each other, have no effect, or ask for what CUDA does not allow.
    TypeError, IndexError
        If ``data`` or ``edge_label_index`` is not as described.
    """

    def __init__(
        self,
        data: tuple[DirectFeatureStore, DirectGraphStore] | Data | HeteroData,
        num_neighbors: list[int] | dict[Any, list[int]],
        edge_label_index: Any = None,
        edge_label: Tensor | None = None,
        edge_label_time: Tensor | None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: NegativeSampling | None = None,
        neg_sampling_ratio: int | float | None = None,
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
        if neg_sampling is not None and neg_sampling_ratio:
            raise ValueError(
                f"neg_sampling_ratio is {neg_sampling_ratio}, but neg_sampling is given too; leave "
                "the ratio out, which is its old name"
            )
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
        edge_type, links = seed_links(*stores, edge_label_index)
        edge_label, edge_label_time = _as_tensor(edge_label), _as_tensor(edge_label_time)
        check_length("edge_label", edge_label, links.shape[1])
        check_length("edge_label_time", edge_label_time, links.shape[1])
        super().__init__(
            stores,
            num_neighbors,
            edge_label_index=(edge_type, links),
            edge_label=edge_label,
            edge_label_time=edge_label_time,
            neg_sampling=neg_sampling,
            neg_sampling_ratio=neg_sampling_ratio,
            time_attr=time_attr,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=bool(filter_per_worker),
            neighbor_sampler=neighbor_sampler,
            **kwargs,
        )
        self._set_up(neighbor_sampler, depth=depth, exclude=exclude, neg_sampling=self.neg_sampling)

    def _label(self, batch: Any, metadata: tuple[Any, ...]) -> None:
        label_links(
            batch,
            metadata,
            self.input_data.input_type,
            self._device,
            neg_sampling=self.neg_sampling,
        )


def _as_tensor(values: Any) -> Tensor | None:
    return None if values is None else torch.as_tensor(values)
