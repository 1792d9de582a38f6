"""From a sampler's output to PyG's mini-batch: rows by ``n_id``, edge rows by ``e_id``.

Assumption: the ids come from a sampler, so they are valid and are not checked again; nodes come hop
by hop, each in ascending order, so that rows need no sort before they are read.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_direct.stores import HOMOGENEOUS_EDGES, DirectFeatureStore
from pyg_direct.tables import Request


def homogeneous_batch(
    feature_store: DirectFeatureStore,
    out: SamplerOutput,
    custom_cls: Callable[[], Data] | None = None,
) -> Data:
    """Gather everything that belongs to the sampled nodes and edges.

    Parameters
    ----------
    feature_store : DirectFeatureStore
        Node tensors in group None, edge tensors in group ``(None, None)``.
    out : SamplerOutput
        Tensors on any device; ``edge`` holds ids in the order in which edges were put.
    custom_cls : callable, optional
        Makes the batch; ``Data`` by default.

    Returns
    -------
    Data
        Every tensor on ``feature_store.device``.
    """
    device = feature_store.device
    batch = Data() if custom_cls is None else custom_cls()
    batch.edge_index = _edge_index(out.row, out.col, device)
    node, edge = _to(out.node, device), _to(out.edge, device)
    batch.num_nodes = node.numel()
    _fill(batch, feature_store, None, node, is_sorted=True)
    batch.n_id = node
    if edge is not None:
        _fill(batch, feature_store, HOMOGENEOUS_EDGES, edge)
        batch.e_id = edge
    batch.batch = _to(out.batch, device)
    batch.num_sampled_nodes = out.num_sampled_nodes
    batch.num_sampled_edges = out.num_sampled_edges
    if out.orig_row is not None and out.orig_col is not None:
        batch._orig_edge_index = _edge_index(out.orig_row, out.orig_col, device)
    return batch


def heterogeneous_batch(
    feature_store: DirectFeatureStore,
    out: HeteroSamplerOutput,
    custom_cls: Callable[[], HeteroData] | None = None,
) -> HeteroData:
    """Gather everything that belongs to the sampled nodes and edges of every type.

    Parameters
    ----------
    feature_store : DirectFeatureStore
        Node tensors by node type, edge tensors by edge type.
    out : HeteroSamplerOutput
        Tensors on any device; types of which nothing was sampled have empty tensors.
    custom_cls : callable, optional
        Makes the batch; ``HeteroData`` by default.

    Returns
    -------
    HeteroData
        Every tensor on ``feature_store.device``; types without features keep ``num_nodes``.
    """
    device = feature_store.device
    batch = HeteroData() if custom_cls is None else custom_cls()
    for node_type, ids in out.node.items():
        node = _to(ids, device)
        batch[node_type].num_nodes = node.numel()
        _fill(batch[node_type], feature_store, node_type, node, is_sorted=True)
        batch[node_type].n_id = node
    for edge_type, row in out.row.items():
        storage = batch[edge_type]
        storage.edge_index = _edge_index(row, out.col[edge_type], device)
        edge = _to((out.edge or {}).get(edge_type), device)
        if edge is not None:
            _fill(storage, feature_store, edge_type, edge)
            storage.e_id = edge
        if out.orig_row is not None and out.orig_col is not None:
            storage._orig_edge_index = _edge_index(
                out.orig_row[edge_type], out.orig_col[edge_type], device
            )
    if out.batch is not None:
        batch.set_value_dict("batch", {key: _to(ids, device) for key, ids in out.batch.items()})
    batch.set_value_dict("num_sampled_nodes", out.num_sampled_nodes)
    batch.set_value_dict("num_sampled_edges", out.num_sampled_edges)
    return batch


def _fill(
    storage: Any,
    feature_store: DirectFeatureStore,
    group_name: Any,
    ids: Tensor,
    is_sorted: bool = False,
) -> None:
    names = feature_store.groups().get(group_name, [])
    request = Request(ids, is_trusted=True, is_sorted=is_sorted)
    for name in names:
        storage[name] = feature_store.table(group_name, name).gather(request)


def _edge_index(row: Tensor, col: Tensor, device: torch.device) -> Tensor:
    return torch.stack([row, col]).to(device, non_blocking=True)


def _to(tensor: Tensor | None, device: torch.device) -> Any:
    return None if tensor is None else tensor.long().to(device, non_blocking=True)
