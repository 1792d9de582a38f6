"""Every way in which PyG's users name seed nodes, as what PyG's loader takes with stores."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_direct.stores import DirectFeatureStore, DirectGraphStore


def num_nodes_of(
    feature_store: DirectFeatureStore, graph_store: DirectGraphStore, node_type: str | None
) -> int:
    """Return the number of nodes of a type: the larger of what edges and features say.

    Parameters
    ----------
    node_type : str or None
        None for a homogeneous graph.

    Raises
    ------
    ValueError
        If neither store knows the type.
    """
    sizes = graph_store.num_nodes()
    known = [sizes[node_type]] if node_type in sizes else []
    known += [
        feature_store.table(node_type, name).num_rows
        for name in feature_store.groups().get(node_type, [])
    ]
    if not known:
        raise ValueError(
            f"input_nodes names the node type {node_type!r}, which neither store holds; expected "
            f"one of {sorted(sizes, key=str)}"
        )
    return max(known)


def seed_nodes(
    feature_store: DirectFeatureStore, graph_store: DirectGraphStore, input_nodes: Any
) -> tuple[str | None, Tensor]:
    """Translate ``input_nodes``.

    Parameters
    ----------
    input_nodes : None, mask, index, list, range, node type, or (node type, any of these)
        None means every node (of the type).

    Returns
    -------
    node_type : str or None
        None for a homogeneous graph.
    nodes : Tensor
        int64 ids of shape (N,), or a bool mask of shape (num_nodes,), on the CPU.

    Raises
    ------
    ValueError
        If the graph is heterogeneous and no type is named, or the type is not known.
    TypeError
        If ``input_nodes`` is none of these.
    IndexError
        If an id is not a node, or a mask has another length.
    """
    node_type, nodes = None, input_nodes
    if isinstance(input_nodes, str):
        node_type, nodes = input_nodes, None
    elif (
        isinstance(input_nodes, tuple | list)
        and len(input_nodes) == 2
        and isinstance(input_nodes[0], str)
    ):
        node_type, nodes = input_nodes
    if node_type is None and None not in graph_store.num_nodes():
        raise ValueError(
            "input_nodes names no node type, but the graph is heterogeneous; give (node_type, "
            f"nodes) with one of {sorted(graph_store.num_nodes())}"
        )
    num_nodes = num_nodes_of(feature_store, graph_store, node_type)
    return node_type, _as_nodes(nodes, num_nodes)


def _as_nodes(input_nodes: Any, num_nodes: int) -> Tensor:
    nodes = input_nodes
    if nodes is None:
        return torch.arange(num_nodes)
    if isinstance(nodes, np.ndarray):
        nodes = torch.from_numpy(np.ascontiguousarray(nodes))
    if isinstance(nodes, list | tuple | range):
        nodes = torch.tensor(list(nodes), dtype=None if len(nodes) else torch.int64)
    if not isinstance(nodes, Tensor) or nodes.is_floating_point() or nodes.dim() != 1:
        raise TypeError(
            f"input_nodes is {nodes!r}, expected None, a mask, an index, a node type, or a pair of "
            "type and nodes"
        )
    nodes = nodes.cpu()
    if nodes.dtype == torch.bool:
        if nodes.numel() != num_nodes:
            raise IndexError(
                f"input_nodes is a mask of {nodes.numel()} entries, expected {num_nodes}"
            )
        return nodes
    if nodes.numel():
        lowest, highest = (int(end) for end in nodes.aminmax())
        if lowest < 0 or highest >= num_nodes:
            raise IndexError(
                f"input_nodes holds {lowest if lowest < 0 else highest}, expected ids in "
                f"[0, {num_nodes})"
            )
    return nodes.long()
