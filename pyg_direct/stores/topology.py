"""The edges of one edge type, compressed by destination (CSC), and where each edge stood before.

Shape legend: ``E`` edges, ``S`` source nodes, ``D`` destination nodes. The in-neighbours of ``v``
are ``row[colptr[v]:colptr[v + 1]]``, and ``perm[i]`` is the position that edge ``i`` had when it
was put, which is what PyG calls its ``e_id``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LAYOUTS = ("coo", "csr", "csc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Edges of one type, on the CPU; build it with ``from_layout``.

    Parameters
    ----------
    colptr : int64 tensor, shape (D + 1,)
        Where each destination's edges start.
    row : int32 or int64 tensor, shape (E,)
        Source ids, edges of one destination together, in the order in which they were put.
    perm : int64 tensor, shape (E,), or None
        Edge ids; None where edge ``i`` has id ``i``.
    size : tuple of int
        ``(S, D)``.
    layout : str
        ``"coo"``, ``"csr"`` or ``"csc"``: how the edges were put.
    """

    colptr: Tensor
    row: Tensor
    perm: Tensor | None
    size: tuple[int, int]
    layout: str

    @classmethod
    def from_layout(
        cls,
        layout: str,
        edge_index: tuple[Tensor, Tensor],
        *,
        size: tuple[int | None, int | None] | None = None,
        is_sorted: bool = False,
        is_square: bool = False,
    ) -> "Topology":
        """Validate and compress edges.

        Parameters
        ----------
        layout : str
            ``"coo"``: ``(row, col)``; ``"csr"``: ``(rowptr, col)``; ``"csc"``: ``(row, colptr)``.
        edge_index : pair of int32 or int64 tensors
            On any device. CSC keeps ``row`` in place if it is contiguous on the CPU; the other
            layouts copy.
        size : tuple, optional
            ``(S, D)``; what is None is the largest id plus one.
        is_sorted : bool
            For COO: the edges are in order of ``col`` already.
        is_square : bool
            Sources and destinations are the same nodes, so that both sizes are the larger.

        Raises
        ------
        ValueError
            If an id is negative or not below its size, a pointer array does not start at 0, end
            at ``E`` and rise, lengths differ, or ``is_sorted`` is not true.
        TypeError
            If a tensor does not hold int32 or int64.
        """
        first, second = (_ids(layout, position, ids) for position, ids in enumerate(edge_index))
        rows, columns = size if size is not None else (None, None)
        if layout == "csc":
            columns = _check_pointers("colptr", second, first, columns)
            rows = _check_ids("row", first, rows)
            rows, columns = _square(rows, columns) if is_square else (rows, columns)
            return cls(
                colptr=_pad(second.long(), columns), row=first, perm=None,
                size=(rows, columns), layout=layout,
            )  # fmt: skip
        if layout == "csr":
            rows = _check_pointers("rowptr", first, second, rows)
            first = _expand(first.long()).to(second.dtype)
        rows, columns = _check_ids("row", first, rows), _check_ids("col", second, columns)
        if first.numel() != second.numel():
            raise ValueError(
                f"edge_index has {first.numel()} sources and {second.numel()} destinations, "
                "expected as many of each"
            )
        rows, columns = _square(rows, columns) if is_square else (rows, columns)
        return cls._from_coo(first, second, (rows, columns), is_sorted, layout)

    @classmethod
    def _from_coo(
        cls, row: Tensor, col: Tensor, size: tuple[int, int], is_sorted: bool, layout: str
    ) -> "Topology":
        perm = None
        is_ascending = not bool((col[1:] < col[:-1]).any())
        if is_sorted and not is_ascending:
            raise ValueError("edge_attr.is_sorted is True, but col is not in ascending order")
        if not is_ascending:
            perm = torch.argsort(col, stable=True)
            row = row[perm]
        counts = torch.bincount(col, minlength=size[1])
        colptr = torch.zeros(size[1] + 1, dtype=torch.int64)
        torch.cumsum(counts, 0, out=colptr[1:])
        return cls(colptr=colptr, row=row, perm=perm, size=size, layout=layout)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.row.numel()

    def as_put(self) -> tuple[Tensor, Tensor]:
        """Return the edges in the layout and the order in which they were put.

        Returns
        -------
        pair of tensors
            CSC shares our memory; the other layouts are made anew.
        """
        if self.layout == "csc":
            return self.row, self.colptr
        col = _expand(self.colptr).to(self.row.dtype)
        row = self.row
        if self.perm is not None:
            row = torch.empty_like(row).index_copy_(0, self.perm, row)
            col = torch.empty_like(col).index_copy_(0, self.perm, col)
        if self.layout == "coo":
            return row, col
        counts = torch.bincount(row, minlength=self.size[0])
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), col


def _ids(layout: str, position: int, ids: Tensor) -> Tensor:
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}, expected one of {LAYOUTS}")
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(
            f"edge_index[{position}] holds {ids.dtype}, expected torch.int32 or torch.int64"
        )
    if ids.dim() != 1:
        raise ValueError(
            f"edge_index[{position}] has shape {tuple(ids.shape)}, expected one dimension"
        )
    return ids.detach().cpu().contiguous()


def _check_ids(name: str, ids: Tensor, size: int | None) -> int:
    lowest, highest = (int(end) for end in ids.aminmax()) if ids.numel() else (0, -1)
    size = highest + 1 if size is None else size
    if lowest < 0 or highest >= size:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(
            f"{name} holds the node id {wrong}, expected ids in [0, {size}); "
            "give EdgeAttr(size=(num_src_nodes, num_dst_nodes)) or mend the edges"
        )
    return size


def _check_pointers(name: str, pointers: Tensor, ids: Tensor, size: int | None) -> int:
    num_edges = ids.numel()
    is_valid = (
        pointers.numel() > 0
        and int(pointers[0]) == 0
        and int(pointers[-1]) == num_edges
        and not bool((pointers[1:] < pointers[:-1]).any())
    )
    if not is_valid:
        raise ValueError(f"{name} must rise from 0 to the number of edges, {num_edges}")
    if size is not None and pointers.numel() - 1 > size:
        raise ValueError(
            f"{name} has {pointers.numel()} entries, expected at most size + 1 = {size + 1}"
        )
    return pointers.numel() - 1 if size is None else size


def _square(rows: int, columns: int) -> tuple[int, int]:
    return max(rows, columns), max(rows, columns)


def _pad(pointers: Tensor, size: int) -> Tensor:
    """Give destinations beyond the last pointer an empty neighbourhood."""
    missing = size + 1 - pointers.numel()
    return torch.cat([pointers, pointers[-1:].expand(missing)]) if missing else pointers


def _expand(pointers: Tensor) -> Tensor:
    return torch.repeat_interleave(pointers.diff())
