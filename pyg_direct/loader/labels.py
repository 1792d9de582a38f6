"""What a loader knows of a batch's seeds, put where PyG's loaders put it.

Shape legend: ``B`` seeds, ``P`` positive and ``K`` all links of a batch.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

from pyg_direct.loader.batch import set_values


def label_nodes(
    batch: Data | HeteroData, metadata: tuple[Any, ...], input_type: Any, device: torch.device
) -> None:
    """Set ``input_id``, ``seed_time``, shape (B,), and ``batch_size``.

    Parameters
    ----------
    batch : Data or HeteroData
        Attributes go to the seeds' node type.
    metadata : (Tensor, Tensor or None)
        Of the sampler's output.
    input_type : str or None
        Node type of the seeds.
    device : torch.device
        Of the batch.
    """
    input_id, seed_time = metadata
    input_id, seed_time = _to(input_id, device), _to(seed_time, device)
    values = {"input_id": input_id, "seed_time": seed_time, "batch_size": input_id.numel()}
    set_values(batch if input_type is None else batch[input_type], values)


def label_links(
    batch: Data | HeteroData,
    metadata: tuple[Any, ...],
    input_type: Any,
    device: torch.device,
    *,
    neg_sampling: NegativeSampling | None,
) -> None:
    """Set what a model needs to know of the batch's links.

    Without negatives or with binary ones: ``edge_label_index``, shape (2, K), ``edge_label`` and
    ``edge_label_time``, shape (K,), at the edge type. With triplets: ``src_index`` and
    ``dst_pos_index``, shape (P,), ``dst_neg_index`` and ``seed_time``, at the node types.

    Parameters
    ----------
    batch : Data or HeteroData
        Attributes are set there, ``input_id`` too.
    metadata : tuple
        Of the sampler's output.
    input_type : tuple of str, or None
        Edge type of the links.
    device : torch.device
        Of the batch.
    neg_sampling : NegativeSampling or None
        With which the batch was sampled.
    """
    values = [_to(each, device) for each in metadata]
    links = batch if input_type is None else batch[input_type]
    links.input_id = values[0]
    if neg_sampling is None or neg_sampling.is_binary():
        links.edge_label_index, links.edge_label, links.edge_label_time = values[1:4]
        return
    source = batch if input_type is None else batch[input_type[0]]
    destination = batch if input_type is None else batch[input_type[-1]]
    source.src_index, destination.dst_pos_index, destination.dst_neg_index = values[1:4]
    source.seed_time = destination.seed_time = values[4]


def _to(value: Any, device: torch.device) -> Any:
    is_elsewhere = isinstance(value, Tensor) and value.device != device
    return value.to(device, non_blocking=True) if is_elsewhere else value
