"""Where a rank reads its part of the graph: a ``Data`` or a (feature_store, graph_store) pair.

Shape legend: ``n`` vertices, ``m`` vertices of this rank, ``E`` edges into them, ``F`` features.
Assumption: a homogeneous graph through PyG's FeatureStore and GraphStore interfaces, which
``Data`` has as well; vertex i is row i of every tensor.
"""

from typing import Any

import torch
from torch import Tensor

from pyg_direct.fullbatch.adjacency import LocalEdges
from pyg_direct.fullbatch.tiles import row_ranges

# Edges or features of one piece on its way to the device.
PIECE_ELEMENTS = 1 << 26


class GraphSource:
    """Reads rows and edges of single vertices, never more than it is asked for.

    Parameters
    ----------
    data : Data, or tuple of FeatureStore and GraphStore
        Borrowed.
    edge_weight : float tensor, shape (number of edges,), optional
        In the order of the graph's edges. ``Data`` brings its own ``edge_weight``.

    Raises
    ------
    ValueError
        If the graph is heterogeneous.
    """

    def __init__(self, data: Any, *, edge_weight: Tensor | None = None) -> None:
        self._features, graph = data if isinstance(data, tuple) else (data, data)
        # The attribute class of ``Data`` has no groups, and refuses the word.
        self._group: dict[str, None] = {"group_name": None} if isinstance(data, tuple) else {}
        if edge_weight is None and not isinstance(data, tuple):
            edge_weight = getattr(data, "edge_weight", None)
        row, colptr, perm = graph.csc()
        if isinstance(row, dict):
            raise ValueError(f"edge types {sorted(row)} came, expected a homogeneous graph")
        self._row, self._colptr, self._perm = row, colptr, perm
        self._weight = edge_weight

    @property
    def num_nodes(self) -> int:
        """Number of vertices."""
        return int(self._colptr.numel()) - 1

    @property
    def num_features(self) -> int:
        """Columns of ``x``."""
        size = self._features.get_tensor_size(attr_name="x", index=None, **self._group)
        return int(size[1])

    def has(self, name: str) -> bool:
        """Tell whether the vertices have a tensor ``name``."""
        return any(attr.attr_name == name for attr in self._features.get_all_tensor_attrs())

    def edges(self, nodes: Tensor, device: torch.device) -> LocalEdges:
        """Read the edges into ``nodes`` (int64 CPU tensor, shape (m,)) to ``device`` in pieces."""
        contiguous = _as_slice(nodes)
        if contiguous is not None:
            return self._contiguous_edges(contiguous, device)
        on_source = nodes.to(self._colptr.device)
        start = self._colptr[on_source]
        count = self._colptr[on_source + 1] - start
        rowptr = torch.zeros(nodes.numel() + 1, dtype=torch.int64, device=start.device)
        torch.cumsum(count, 0, out=rowptr[1:])
        total = int(rowptr[-1])
        source = torch.empty(total, dtype=torch.int64, device=device)
        weight = None if self._weight is None else self._weight.new_empty(total, device=device)
        for first, last in row_ranges(rowptr, PIECE_ELEMENTS):
            part = slice(int(rowptr[first]), int(rowptr[last]))
            shift = start[first:last] - rowptr[first:last]
            edge = torch.arange(part.start, part.stop, device=start.device)
            edge += shift.repeat_interleave(count[first:last])
            source[part] = self._row[edge].to(device)
            if weight is not None:
                weight[part] = self._weights_of(edge).to(device)
        return LocalEdges(rowptr=rowptr.to(device), source=source, weight=weight)

    def _contiguous_edges(self, nodes: slice, device: torch.device) -> LocalEdges:
        colptr = self._colptr[nodes.start : nodes.stop + 1].long()
        part = slice(int(colptr[0]), int(colptr[-1]))
        weight = None
        if self._weight is not None:
            edge = torch.arange(part.start, part.stop, device=self._row.device)
            weight = self._weights_of(edge).to(device)
        return LocalEdges(
            rowptr=(colptr - part.start).to(device),
            source=self._row[part].to(device).long(),
            weight=weight,
        )

    def _weights_of(self, edge: Tensor) -> Tensor:
        if self._weight is None:
            raise ValueError("edge_weight is None, expected a tensor")
        order = edge if self._perm is None else self._perm[edge]
        return self._weight[order]

    def rows(self, name: str, nodes: Tensor) -> Tensor:
        """Read ``name`` (e.g. ``"y"``) of ``nodes`` (int64 CPU tensor, shape (m,)).

        Raises
        ------
        KeyError
            If there is no such tensor.
        """
        contiguous = _as_slice(nodes)
        index: Tensor | slice | None = nodes if contiguous is None else contiguous
        if nodes.numel() == self.num_nodes and contiguous is not None:
            # The whole tensor: PyG's stores all know None, not all know slices.
            index = None
        values = self._features.get_tensor(attr_name=name, index=index, **self._group)
        if values is None:
            raise KeyError(f"no tensor {name!r} of the vertices, expected one per vertex")
        if not isinstance(values, Tensor):
            values = torch.as_tensor(values)
        return values

    def feature_pieces(self, nodes: Tensor) -> Any:
        """Yield ``(first row, rows)`` of ``x`` of ``nodes``, a bounded piece at a time."""
        step = max(1, PIECE_ELEMENTS // max(1, self.num_features))
        for start in range(0, nodes.numel(), step):
            yield start, self.rows("x", nodes[start : start + step])


def _as_slice(nodes: Tensor) -> slice | None:
    """Return ascending consecutive vertices as a slice, which reads without a gather."""
    if nodes.numel() == 0 or not bool((nodes.diff() == 1).all()):
        return None
    return slice(int(nodes[0]), int(nodes[-1]) + 1)
