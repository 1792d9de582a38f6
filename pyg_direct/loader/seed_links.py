"""Every way in which PyG's users name seed links, as what PyG's loader takes with stores.

Shape legend: ``K`` links.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_direct.loader.inputs import num_nodes_of
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore

EdgeType = tuple[str, str, str]


def seed_links(
    feature_store: DirectFeatureStore, graph_store: DirectGraphStore, edge_label_index: Any
) -> tuple[EdgeType | None, Tensor]:
    """Translate ``edge_label_index``.

    Parameters
    ----------
    edge_label_index : None, index, edge type, or (edge type, None or index)
        An index is a tensor, array or list of two rows, or a pair of such rows. None means all
        edges (of the type), in the order in which they were put. Of an edge type ``(source,
        destination)`` is enough where one edge type joins the two; where none does, links of one's
        own are of type ``(source, "to", destination)``. None is the edge type of a homogeneous
        graph.

    Returns
    -------
    edge_type : tuple of str, or None
        None for a homogeneous graph. It need not be stored, if its node types are.
    links : int64 tensor, shape (2, K)
        On the CPU.

    Raises
    ------
    ValueError
        If the graph is heterogeneous and no edge type is named, or the type is not known.
    TypeError
        If ``edge_label_index`` is none of these.
    IndexError
        If an id is not a node.
    """
    edge_type, links = _split(edge_label_index)
    stored = graph_store.edge_types()
    is_hetero = None not in stored
    if is_hetero and edge_type is None:
        raise ValueError(
            "edge_label_index names no edge type, but the graph is heterogeneous; give (edge_type, "
            f"links) with one of {stored}"
        )
    if edge_type is not None:
        edge_type = _full_edge_type(edge_type, stored, is_given=links is not None)
    if links is None:
        return edge_type, _all_links(graph_store, edge_type)
    links = _as_links(links)
    ends = (None, None) if edge_type is None else (edge_type[0], edge_type[-1])
    for row, node_type in zip(links, ends, strict=True):
        _check_ids(row, node_type, num_nodes_of(feature_store, graph_store, node_type))
    return edge_type, links


def _split(value: Any) -> tuple[Any, Any]:
    if _is_edge_type(value):
        return value, None
    if isinstance(value, tuple | list) and len(value) == 2:
        first, second = value
        if first is None or _is_edge_type(first):
            return first, second
    return None, value


def _is_edge_type(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) in (2, 3)
        and all(isinstance(part, str) for part in value)
    )


def _full_edge_type(edge_type: Any, stored: list[Any], *, is_given: bool) -> EdgeType:
    if len(edge_type) == 3:
        return tuple(edge_type)
    ends = tuple(edge_type)
    found = [each for each in stored if each is not None and (each[0], each[-1]) == ends]
    if not found and is_given:
        # What PyG's HeteroData calls an edge type that it does not have.
        return ends[0], "to", ends[1]
    if len(found) != 1:
        raise ValueError(
            f"edge_label_index names the edge type {ends}, which is {len(found)} of the stored "
            f"ones, expected one of {stored}"
        )
    return found[0]  # type: ignore[no-any-return]


def _all_links(graph_store: DirectGraphStore, edge_type: EdgeType | None) -> Tensor:
    if edge_type not in graph_store.edge_types():
        raise ValueError(
            f"edge_label_index asks for all edges of type {edge_type}, which are not stored; "
            f"stored: {graph_store.edge_types()}"
        )
    if edge_type is None:
        row, col, _ = graph_store.coo()
    else:
        rows, cols, _ = graph_store.coo([edge_type])
        row, col = rows[edge_type], cols[edge_type]
    return torch.stack([row, col]).cpu().long()


def _as_links(links: Any) -> Tensor:
    if isinstance(links, tuple | list):
        rows = [each if isinstance(each, Tensor) else torch.as_tensor(each) for each in links]
        is_pair = len(rows) == 2 and rows[0].shape == rows[1].shape
        links = torch.stack(rows) if is_pair else rows
    elif isinstance(links, np.ndarray):
        links = torch.from_numpy(np.ascontiguousarray(links))
    if not isinstance(links, Tensor) or links.dim() != 2 or links.shape[0] != 2:
        raise TypeError(
            f"edge_label_index is {links!r}, expected None, an edge type, two rows of node ids, or "
            "a pair of edge type and rows"
        )
    if links.numel() and (links.is_floating_point() or links.dtype == torch.bool):
        raise TypeError(f"edge_label_index holds {links.dtype}, expected integers")
    return links.detach().cpu().long()


def _check_ids(ids: Tensor, node_type: str | None, num_nodes: int) -> None:
    if not ids.numel():
        return
    lowest, highest = (int(end) for end in ids.aminmax())
    if lowest < 0 or highest >= num_nodes:
        raise IndexError(
            f"edge_label_index holds {lowest if lowest < 0 else highest} as a node of type "
            f"{node_type!r}, expected ids in [0, {num_nodes})"
        )
