"""From a sampler's output to PyG's mini-batch: rows by ``n_id``, edge rows by ``e_id``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_direct.loader.rows import BatchRows
from pyg_direct.loader.stats import GatherCount
from pyg_direct.stores import HOMOGENEOUS_EDGES


class DeviceData(Data):  # type: ignore[misc]  # PyG is not typed
    """A batch made on a GPU, with nothing to pin; PyG's ``PrefetchLoader`` pins every batch."""

    def pin_memory(self, *args: str) -> Any:  # docstring inherited
        return self if self.is_cuda else super().pin_memory(*args)


class DeviceHeteroData(HeteroData):  # type: ignore[misc]  # PyG is not typed
    """The same of a heterogeneous graph."""

    def pin_memory(self, *args: str) -> Any:  # docstring inherited
        return self if self.is_cuda else super().pin_memory(*args)


def count_nodes(out: SamplerOutput | HeteroSamplerOutput) -> dict[Any, int]:
    """Return how many nodes of each type a sampler's output has."""
    nodes = out.node if isinstance(out.node, dict) else {None: out.node}
    return {kind: ids.numel() for kind, ids in nodes.items()}


def make_batch(
    rows: BatchRows,
    out: SamplerOutput | HeteroSamplerOutput,
    *,
    custom_cls: Callable[[], Any] | None = None,
    count: GatherCount | None = None,
    ready: dict[Any, dict[Any, Tensor]] | None = None,
) -> Data | HeteroData:
    """Gather everything that belongs to the sampled nodes and edges.

    Parameters
    ----------
    rows : BatchRows
        What to gather.
    out : SamplerOutput or HeteroSamplerOutput
        Tensors on any device; ``edge`` holds ids in the order in which edges were put. Types of
        which nothing was sampled have empty tensors.
    custom_cls : callable, optional
        Makes the batch; ``Data`` or ``HeteroData`` by default, subclasses of them on a GPU.
    count : GatherCount, optional
        Gets what was read.
    ready : dict, optional
        Rows that were gathered before, by node type and name.

    Returns
    -------
    Data or HeteroData
        Every tensor on the device of the feature store; types without features keep ``num_nodes``.

    Raises
    ------
    TypeError
        If ``out`` is no sampler's output.
    """
    count, ready = GatherCount() if count is None else count, ready or {}
    is_on_gpu = rows.feature_store.device.type == "cuda"
    if isinstance(out, SamplerOutput):
        batch = (custom_cls or (DeviceData if is_on_gpu else Data))()
        set_values(batch, _homogeneous_values(rows, out, count, ready.get(None)))
        if out.orig_row is not None and out.orig_col is not None:
            batch._orig_edge_index = _edge_index(
                out.orig_row, out.orig_col, rows.feature_store.device
            )
        return batch
    if isinstance(out, HeteroSamplerOutput):
        batch = (custom_cls or (DeviceHeteroData if is_on_gpu else HeteroData))()
        _fill_heterogeneous(batch, rows, out, count, ready)
        return batch
    raise TypeError(
        f"the sampler, or transform_sampler_output, returned a {type(out).__name__}, expected "
        "SamplerOutput or HeteroSamplerOutput"
    )


def _homogeneous_values(
    rows: BatchRows, out: SamplerOutput, count: GatherCount, ready: dict[Any, Tensor] | None
) -> dict[str, Any]:
    device = rows.feature_store.device
    node, edge = _to(out.node, device), _to(out.edge, device)
    return {
        "edge_index": _edge_index(out.row, out.col, device),
        "num_nodes": node.numel(),
        **rows.gather(None, node, count=count, is_sorted=True, ready=ready),
        "n_id": node,
        **rows.gather(HOMOGENEOUS_EDGES, edge, count=count),
        "e_id": edge,
        "batch": _to(out.batch, device),
        "num_sampled_nodes": out.num_sampled_nodes,
        "num_sampled_edges": out.num_sampled_edges,
    }


def _fill_heterogeneous(
    batch: HeteroData,
    rows: BatchRows,
    out: HeteroSamplerOutput,
    count: GatherCount,
    ready: dict[Any, dict[Any, Tensor]],
) -> None:
    device = rows.feature_store.device
    for node_type, ids in out.node.items():
        node = _to(ids, device)
        values = rows.gather(
            node_type, node, count=count, is_sorted=True, ready=ready.get(node_type)
        )
        set_values(batch[node_type], {"num_nodes": node.numel(), **values, "n_id": node})
    for edge_type, row in out.row.items():
        storage = batch[edge_type]
        edge_index = _edge_index(row, out.col[edge_type], device)
        edge = _to((out.edge or {}).get(edge_type), device)
        values = rows.gather(edge_type, edge, count=count)
        set_values(storage, {"edge_index": edge_index, **values, "e_id": edge})
        if out.orig_row is not None and out.orig_col is not None:
            storage._orig_edge_index = _edge_index(
                out.orig_row[edge_type], out.orig_col[edge_type], device
            )
    if out.batch is not None:
        batch.set_value_dict("batch", {key: _to(ids, device) for key, ids in out.batch.items()})
    batch.set_value_dict("num_sampled_nodes", out.num_sampled_nodes)
    batch.set_value_dict("num_sampled_edges", out.num_sampled_edges)


def set_values(target: Any, values: dict[str, Any]) -> None:
    """Set attributes of a new batch, or of a storage of one; those that are None are left out.

    Parameters
    ----------
    target : Data, BaseStorage, or an object of a class of the user's
        The last gets its attributes one by one. With PyG's own that would take several times as
        long, to find none of the setters and cached values that it looks for.
    values : dict
        By name.
    """
    values = {name: value for name, value in values.items() if value is not None}
    if isinstance(target, BaseStorage):
        target._mapping.update(values)
    elif type(target) in (Data, DeviceData):
        target._store._mapping.update(values)
    else:
        for name, value in values.items():
            setattr(target, name, value)


def permute_edges(out: SamplerOutput | HeteroSamplerOutput, perm: Any) -> None:
    """Turn a sampler's own edge ids into those in which edges were put, in place.

    Parameters
    ----------
    out : SamplerOutput or HeteroSamplerOutput
        With or without ``edge``.
    perm : Tensor, or dict of Tensor or None
        The sampler's ``edge_permutation``.
    """
    if isinstance(out.edge, dict):
        out.edge = {
            kind: edge
            if edge is None or perm.get(kind) is None
            else perm[kind][edge.to(perm[kind].device)]
            for kind, edge in out.edge.items()
        }
    elif out.edge is not None:
        out.edge = perm[out.edge.to(perm.device)]


def _edge_index(row: Tensor, col: Tensor, device: torch.device) -> Tensor:
    """Return both rows as one tensor, without a copy if the second one follows the first."""
    size, base = row.numel(), row._base
    is_one = (
        base is not None
        and base is col._base
        and col.storage_offset() == row.storage_offset() + size
        and col.numel() == size
        and row.dtype == col.dtype
        and row.is_contiguous()
        and col.is_contiguous()
    )
    both = row.as_strided((2, size), (size, 1)) if is_one else torch.stack([row, col])
    edge_index: Tensor = _to(both, device)
    return edge_index


def _to(tensor: Tensor | None, device: torch.device) -> Any:
    if tensor is None or (tensor.dtype == torch.int64 and tensor.device == device):
        return tensor
    return tensor.long().to(device, non_blocking=True)
