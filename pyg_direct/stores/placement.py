"""Decide, under one budget of bytes, what stands in device memory: pointers, edges, then hot rows.

Every batch reads all pointers and edges of its frontier, and few bytes of them; so they come first.
Rows follow by accesses that a byte saves: the score of the node over the bytes of the row, across
all tensors of all node types.

Shape legend: ``R`` rows of a tensor, ``H`` hot rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from pyg_direct.stores.feature import DirectFeatureStore
from pyg_direct.stores.graph import DirectGraphStore
from pyg_direct.stores.ranking import Key, Ranking, hot_bytes, share_out
from pyg_direct.tables import HostTable, Table

RESERVE_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTensor:
    """Where one tensor stands.

    Attributes
    ----------
    name : str
        What ``explain`` calls it.
    key : tuple or None
        Group and name in the feature store; None for topology.
    num_rows, num_hot : int
        ``R``, and ``H`` of them on the device.
    num_bytes, device_bytes : int
        Of the tensor, and of what is on the device, the table that finds hot rows included.
    device_share : float or None
        Expected share of the reads that the device serves; None where nobody knows.
    """

    name: str
    key: tuple[Any, Any] | None
    num_rows: int
    num_hot: int
    num_bytes: int
    device_bytes: int
    device_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What stands where; ``explain`` prints it.

    Attributes
    ----------
    device : torch.device
    budget_bytes : int
    topology : str
        ``"mapped"``, ``"colptr"`` or ``"device"``, as samplers take it.
    tensors : tuple of PlacedTensor
        Pointers, edges, then the tensors of nodes and edges as they were put.
    """

    device: torch.device
    budget_bytes: int
    topology: str
    tensors: tuple[PlacedTensor, ...]

    @property
    def device_bytes(self) -> int:
        """Bytes that the placement takes on the device."""
        return sum(each.device_bytes for each in self.tensors)

    def explain(self) -> str:
        """Return a table of what stands where."""
        lines = [("what", "where", "rows there", "bytes there", "of bytes", "reads served there")]
        for each in self.tensors:
            lines.append(
                (
                    each.name, _where(each, self.device), f"{each.num_hot:,}",
                    f"{each.device_bytes:,}", f"{each.num_bytes:,}",
                    "unknown" if each.device_share is None else f"{each.device_share:.1%}",
                )
            )  # fmt: skip
        lines.append(
            ("all", f"budget {self.budget_bytes:,}", "", f"{self.device_bytes:,}",
             f"{sum(each.num_bytes for each in self.tensors):,}", "")
        )  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                text.ljust(width) if column < 2 else text.rjust(width)
                for column, (text, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


def resolve_budget(
    budget_bytes: int | str, device: torch.device, reserve_bytes: int = RESERVE_BYTES
) -> int:
    """Return a budget in bytes; "auto" is the free device memory less a reserve, 0 on the CPU.

    Parameters
    ----------
    budget_bytes : int or str
        0 or more, or ``"auto"``.
    device : torch.device
        Whose memory it is.
    reserve_bytes : int
        What ``"auto"`` leaves for model and batches.

    Raises
    ------
    ValueError
        If it is negative or another word.
    """
    if budget_bytes == "auto":
        if device.type != "cuda":
            return 0
        free, _ = torch.cuda.mem_get_info(device)
        # What torch holds and does not use is free as well.
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return max(0, free - reserve_bytes)
    if isinstance(budget_bytes, str) or budget_bytes < 0:
        raise ValueError(f"budget_bytes is {budget_bytes!r}, expected 0 or more, or 'auto'")
    return int(budget_bytes)


def plan_placement(
    feature_store: DirectFeatureStore,
    graph_store: DirectGraphStore,
    budget_bytes: int,
    rankings: Mapping[Any, Ranking],
) -> Placement:
    """Plan what stands on the device; nothing is moved.

    Parameters
    ----------
    feature_store, graph_store : stores
        The graph.
    budget_bytes : int
        0 or more.
    rankings : mapping of Ranking
        By node type. Tensors of other groups stay where they are; so do tensors that are on the
        device already.

    Raises
    ------
    ValueError
        If a ranking has not as many nodes as a tensor has rows.
    """
    device = feature_store.device
    pointers, edges = _topology_tensors(graph_store)
    # A sampler on the CPU has all of it there.
    left, topology = budget_bytes, "mapped"
    if device.type == "cuda" and left >= pointers.num_bytes:
        left, topology = left - pointers.num_bytes, "colptr"
        pointers = _on_device(pointers)
        if left >= edges.num_bytes:
            left, topology = left - edges.num_bytes, "device"
            edges = _on_device(edges)
    tables = {
        (group, name): feature_store.table(group, name)
        for group, names in feature_store.groups().items()
        for name in names
    }
    counts = share_out(_candidates(tables, rankings), rankings, left)
    rows = [
        place_rows(key, table, counts.get(key, 0), rankings.get(key[0]))
        for key, table in tables.items()
    ]
    return Placement(
        device=device, budget_bytes=budget_bytes, topology=topology,
        tensors=(pointers, edges, *rows),
    )  # fmt: skip


def without_last_topology(plan: Placement) -> Placement:
    """Return the plan with the edges in host memory, or the pointers too if they are there."""
    pointers, edges, *rows = plan.tensors
    on_host = {"num_hot": 0, "device_bytes": 0, "device_share": 0.0}
    if plan.topology != "device":
        pointers = replace(pointers, **on_host)  # type: ignore[arg-type]
    return replace(
        plan, topology="colptr" if plan.topology == "device" else "mapped",
        tensors=(pointers, replace(edges, **on_host), *rows),  # type: ignore[arg-type]
    )  # fmt: skip


def place_rows(key: Key, table: Table, num_hot: int, ranking: Ranking | None) -> PlacedTensor:
    """Return the entry of a table of which so many rows are hot.

    Parameters
    ----------
    key : tuple
        Group and name.
    table : Table
        On the device already, or a host table.
    num_hot : int
        Of a host table.
    ranking : Ranking or None
        Of the group.
    """
    is_host = isinstance(table, HostTable)
    num_hot = num_hot if is_host else table.num_rows
    share = None if num_hot < table.num_rows else 1.0
    if share is None and ranking is not None:
        share = ranking.share(num_hot)
    return PlacedTensor(
        name=table.name, key=key, num_rows=table.num_rows, num_hot=num_hot,
        num_bytes=table.num_rows * table.row_bytes, device_bytes=hot_bytes(table, num_hot),
        device_share=share,
    )  # fmt: skip


def _candidates(
    tables: Mapping[Key, Table], rankings: Mapping[Any, Ranking]
) -> dict[Key, HostTable]:
    """Return the tables in host memory whose rows have a score."""
    chosen = {}
    for key, table in tables.items():
        if key[0] in rankings and isinstance(table, HostTable) and table.row_bytes:
            if len(rankings[key[0]]) != table.num_rows:
                raise ValueError(
                    f"there are {len(rankings[key[0]])} scores of {key[0]!r}, expected "
                    f"{table.num_rows}, one a row of {table.name}"
                )
            chosen[key] = table
    return chosen


def _topology_tensors(graph_store: DirectGraphStore) -> tuple[PlacedTensor, PlacedTensor]:
    topologies = [graph_store.topology(kind) for kind in graph_store.edge_types()]
    perm_bytes = sum(each.perm.nbytes for each in topologies if each.perm is not None)
    pointers = PlacedTensor(
        name="pointers", key=None, num_rows=sum(each.colptr.numel() for each in topologies),
        num_hot=0, num_bytes=sum(each.colptr.nbytes for each in topologies), device_bytes=0,
        device_share=0.0,
    )  # fmt: skip
    edges = replace(
        pointers, name="edges", num_rows=sum(each.num_edges for each in topologies),
        num_bytes=sum(each.row.nbytes for each in topologies) + perm_bytes,
    )  # fmt: skip
    return pointers, edges


def _on_device(tensor: PlacedTensor) -> PlacedTensor:
    return replace(tensor, num_hot=tensor.num_rows, device_bytes=tensor.num_bytes, device_share=1.0)


def _where(tensor: PlacedTensor, device: torch.device) -> str:
    if tensor.num_hot == 0:
        return "host"
    return str(device) if tensor.num_hot == tensor.num_rows else f"{device} and host"
