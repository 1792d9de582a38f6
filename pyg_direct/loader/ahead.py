"""Rows of sampled nodes, gathered by the CUDA graph that samples them.

Nobody has to know how many nodes there are, so nothing waits in between: rows go to memory of the
graph, for somewhat more of them than batches had so far, and a copy within the GPU hands them over.

Shape legend: ``N`` nodes of one type in a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import finalize, ref

import torch
from torch import Tensor

from pyg_direct.kernels.copies import WORD_BYTES, Copies
from pyg_direct.loader.rows import BatchRows
from pyg_direct.sampler.capture import external_event
from pyg_direct.sampler.relation import NodeType
from pyg_direct.tables import Request, Table

# Room for so many times the most nodes that a batch had.
ROOM = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRows:
    """Rows by node type and name, for how many there was room, and when the gather began and ended.

    The events are recorded again with the next batch.
    """

    rows: dict[NodeType, dict[Any, Tensor]]
    room: dict[NodeType, int]
    gathering: tuple[torch.cuda.Event, torch.cuda.Event]


class RowsAhead:
    """Gathers the rows of a batch's nodes behind their sampling; a ``Follower`` for a sampler.

    Parameters
    ----------
    rows : BatchRows
        What to gather; graphs can repeat it. Their tables, which graphs read, are kept for as long
        as they are; a sampler that keeps this for its graphs does not keep them alive.
    largest : mapping, optional
        The most nodes of each type that a batch had so far.

    Attributes
    ----------
    has_room : bool
        Whether no batch had more nodes than there was room for.
    """

    def __init__(
        self,
        rows: BatchRows,
        largest: Mapping[NodeType, int] | None = None,
    ) -> None:
        self._rows, self._tables = ref(rows), [rows.tables()]
        self._end = finalize(rows, self._tables.clear)
        self._end.atexit = False
        self._versions = _find_versions(rows.tables())
        self.largest = dict(largest or {})
        self.has_room = True
        # Gathers of several graphs run one after the other: together they would crowd the bus.
        self._gathered = external_event()

    def retire(self) -> None:
        """Be current no more, and let go of the tables."""
        self._end()

    def is_current(self) -> bool:  # docstring inherited
        rows = self._rows()
        # Users may put, place or close tensors between two batches.
        return (
            rows is not None
            and self._end.alive
            and rows.tables() is self._tables[0]
            and _find_versions(self._tables[0]) == self._versions
        )

    def note(self, num_nodes: Mapping[NodeType, int]) -> None:
        """Tell how many nodes of each type a batch had."""
        for kind, size in num_nodes.items():
            self.largest[kind] = max(size, self.largest.get(kind, 0))

    def launch(self, reached: dict[NodeType, tuple[Tensor, Tensor]]) -> NodeRows:
        # docstring inherited
        batch_rows, stream = self._rows(), torch.cuda.current_stream()
        if batch_rows is None:
            raise RuntimeError("the loader of these rows is gone, expected one that iterates")
        gathering = external_event(), external_event()
        self._gathered.wait(stream)
        gathering[0].record(stream)
        rows, room = {}, {}
        for kind, (ids, num_nodes) in reached.items():
            room[kind] = min(ids.numel(), int(self.largest.get(kind, 0) * ROOM) + 1)
            request = Request(
                ids[: room[kind]], is_trusted=True, is_sorted=True, is_background=True,
                num_used=num_nodes,
            )  # fmt: skip
            rows[kind] = batch_rows.gather_request(kind, request)
        gathering[1].record(stream)
        self._gathered.record(stream)
        return NodeRows(rows=rows, room=room, gathering=gathering)

    def take(self, made: NodeRows, num_nodes: dict[NodeType, int], copies: Copies) -> NodeRows:
        """Return copies of the rows, without those of a type that had more nodes than room."""
        self.note(num_nodes)
        taken = {}
        for kind, size in num_nodes.items():
            if size <= made.room[kind]:
                taken[kind] = {
                    name: _first_rows(rows, size, copies) for name, rows in made.rows[kind].items()
                }
            else:
                self.has_room = False
        return NodeRows(rows=taken, room=made.room, gathering=made.gathering)


def _first_rows(rows: Tensor, num_rows: int, copies: Copies) -> Tensor:
    """Return a new tensor for the first rows, which ``copies`` fill if they are whole words."""
    out = rows.new_empty((num_rows, *rows.shape[1:]))
    num_words, num_left = divmod(out.nbytes, WORD_BYTES)
    if num_left:
        return out.copy_(rows[:num_rows])
    copies.add(rows.data_ptr(), out.data_ptr(), num_words)
    return out


def rows_ahead(rows: BatchRows, last: RowsAhead | None) -> RowsAhead | None:
    """Return what gathers rows in graphs now; None if no graph can hold their gathers.

    Parameters
    ----------
    rows : BatchRows
        What to gather.
    last : RowsAhead, optional
        What did so before, which is returned as long as it serves.
    """
    if _find_versions(rows.tables()) is None:
        return None
    if last is not None:
        if last.has_room and last.is_current():
            return last
        last.retire()
    return RowsAhead(rows, None if last is None else last.largest)


def _find_versions(tables: dict[Any, dict[Any, Table]]) -> list[int] | None:
    """Return the versions of all tables, or None if no CUDA graph can repeat their gathers.

    None can where edges have tensors: their rows are read in an order for which the host has to
    know the number of ids.
    """
    versions = []
    for group_name, each in tables.items():
        for table in each.values():
            if isinstance(group_name, tuple) or not table.is_repeatable:
                return None
            versions.append(table.version)
    return versions
