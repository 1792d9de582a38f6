"""PyG's ``FeatureStore`` over tables.

Shape legend: ``R`` rows of a tensor, ``N`` requested rows.
Assumption: an index names global ids, as everywhere in PyG.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import FeatureStore

from pyg_direct.memory import MappedArray, tensor_from_numpy
from pyg_direct.stores.attributes import HOMOGENEOUS_EDGES, TensorAttr, without_index
from pyg_direct.stores.devices import refuse_worker, resolve_device
from pyg_direct.stores.index import row_ids
from pyg_direct.tables import DeviceTable, DiskTable, HostTable, Request, Table, TieredTable

Key = tuple[Any, Any]


class DirectFeatureStore(FeatureStore):  # type: ignore[misc]
    """Features whose rows stay where they were put, and appear on one device when asked for.

    Tensors on the CPU stay in host memory, in place: a GPU then reads them over the bus. Tensors on
    the GPU stay there. Groups are node types (None for a homogeneous graph), edge types (tuples),
    or ``(None, None)`` for the edges of a homogeneous graph, which no listing shows, since PyG's
    loaders would index them by node.

    Parameters
    ----------
    device : torch.device or str, optional
        Where rows appear. None: the current GPU if there is one, else the CPU.
    tensor_attr_cls : type, optional
        PyG's hook for an attribute class of one's own.
    page_cache : bool
        Leave tensors on the CPU unregistered, such as files larger than memory: the CPU gathers
        their rows, hot ones aside, and copies them to the GPU. A whole tensor (index None) is
        then on the CPU.

    Raises
    ------
    ValueError
        If ``device`` is CUDA and there is no GPU.

    Notes
    -----
    A tensor that is put is not copied if it is contiguous; the store then shares memory with it,
    and keeps it alive. A whole tensor that is fetched (index None) is a view, never a copy; any
    other index gives rows of their own.
    """

    def __init__(
        self,
        device: torch.device | str | None = None,
        tensor_attr_cls: Any | None = None,
        *,
        page_cache: bool = False,
    ) -> None:
        super().__init__(tensor_attr_cls or TensorAttr)
        self.device, self.page_cache = resolve_device(device), page_cache
        self._tables: Mapping[Key, Table] = {}
        self._attrs: dict[Key, Any] = {}
        # What ``place`` decided, if it was asked.
        self.placement: Any = None

    @property
    def tables(self) -> Mapping[Key, Table]:
        """All tables by group and name, in the order they were put; after a change, another one."""
        return self._tables

    def table(self, group_name: Any, attr_name: str | None) -> Table:
        """Return the table of a tensor.

        Raises
        ------
        KeyError
            If no such tensor is stored.
        """
        table = self._tables.get((group_name, attr_name))
        if table is None:
            raise KeyError(
                f"no tensor {attr_name!r} in group {group_name!r}; stored: "
                f"{[f'{group!r}: {name!r}' for group, name in self._tables]}"
            )
        return table

    def groups(self) -> dict[Any, list[Any]]:
        """Return the names of the tensors in each group, edges too, in the order they were put."""
        groups: dict[Any, list[Any]] = {}
        for group_name, attr_name in self._tables:
            groups.setdefault(group_name, []).append(attr_name)
        return groups

    def is_on_host(self, group_name: Any, attr_name: str | None) -> bool:
        """Return whether the rows of a tensor stand in host memory, hot ones on the device too."""
        return self.table(group_name, attr_name).is_on_host

    def set_hot(
        self,
        group_name: Any,
        attr_name: str | None,
        ids: Tensor,
        *,
        host_share: float | None = None,
    ) -> None:
        """Keep copies of these rows of a tensor on the device, and no others; waits for the GPU.

        Parameters
        ----------
        group_name, attr_name
            Name a tensor in host memory.
        ids : int32 or int64 tensor, shape (H,)
            Each once; on any device.
        host_share : float, optional
            Expected share of requested rows that are not hot, for plans.

        Raises
        ------
        KeyError
            If no such tensor is stored.
        ValueError
            If its rows are on the device already, or an id comes twice.
        IndexError
            If an id is outside the tensor.
        torch.OutOfMemoryError
            If the copies do not fit. No row of the tensor is hot then.
        """
        table = self.table(group_name, attr_name)
        if not isinstance(table, HostTable):
            raise ValueError(f"{table.name} stands on {self.device}, expected host memory")
        if not isinstance(table, TieredTable):
            table = TieredTable(table.array, self.device, name=table.name, max_sms=table.max_sms)
            self._tables = {**self._tables, (group_name, attr_name): table}
        table.set_hot(ids, host_share=host_share)

    def clear_hot(self) -> None:
        """Let go of all hot rows; every row still stands in host memory."""
        self.placement = None
        for table in self._tables.values():
            if isinstance(table, TieredTable):
                table.set_hot(torch.empty(0, dtype=torch.int64))

    def _put_tensor(self, tensor: Tensor | np.ndarray[Any, Any], attr: Any) -> bool:
        rows = tensor if isinstance(tensor, Tensor) else tensor_from_numpy(tensor)
        key = (attr.group_name, attr.attr_name)
        if rows.dim() == 0:
            raise ValueError(f"tensor {key} is a single number, expected at least one dimension")
        if not _is_whole(attr.index):
            if key in self._tables:
                return self._update_rows(key, rows, attr.index)
            rows = _in_order(rows, attr.index, key)
        table = self._make_table(rows, key)
        if key in self._tables:
            self._wait_for_readers()
        self._tables = {**self._tables, key: table}
        self._attrs[key] = without_index(attr)
        return True

    def _make_table(self, rows: Tensor, key: Key) -> Table:
        group_name, attr_name = key
        name = f"tensor {attr_name!r}" + ("" if group_name is None else f" of {group_name!r}")
        if rows.device.type == "cuda":
            return DeviceTable(rows.to(self.device).contiguous(), name=name)
        is_in_place = rows.is_contiguous()
        array = MappedArray(rows) if is_in_place else MappedArray.copy_of(rows)
        return (DiskTable if self.page_cache else HostTable)(array, self.device, name=name)

    def _get_tensor(self, attr: Any) -> Tensor:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[Any]) -> list[Tensor]:
        refuse_worker(self.device)
        # Tensors of one node type that are asked for together share one check and one sort.
        requests: dict[tuple[int, int], Request] = {}
        rows = []
        for attr in attrs:
            table = self.table(attr.group_name, attr.attr_name)
            if _is_whole(attr.index):
                rows.append(table.tensor())
                continue
            key = (id(attr.index), table.num_rows)
            if key not in requests:
                ids = row_ids(attr.index, table.num_rows)
                if not isinstance(ids, Tensor):
                    rows.append(table.part(ids))
                    continue
                requests[key] = Request(ids)
            rows.append(table.gather(requests[key]))
        return rows

    def _update_rows(self, key: Key, rows: Tensor, index: Any) -> bool:
        table = self.table(*key)
        ids = row_ids(index, table.num_rows)
        if isinstance(ids, int) and rows.dim() < len(table.shape):
            rows = rows[None]
        if not isinstance(ids, Tensor):
            ids = torch.arange(table.num_rows)[ids].reshape(-1)
        self._wait_for_readers()
        table.scatter(ids, rows)
        self._wait_for_readers()
        return True

    def _wait_for_readers(self) -> None:
        # Loaders read ahead on streams of their own: no batch may hold half a write, nor rows of
        # memory that is in other use again.
        if self._tables and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def update_tensor(
        self, tensor: Tensor | np.ndarray[Any, Any], *args: Any, **kwargs: Any
    ) -> bool:
        """Replace a whole tensor, or the rows that an index names; of equal ids the last counts.

        With an index the rows are written in place, and every view of the tensor sees them; without
        one the new tensor takes the place of the old, which its views keep alive. Waits for a GPU.

        Raises
        ------
        KeyError
            If no such tensor is stored.
        ValueError
            If an attribute is not fully specified, or shapes or dtypes differ.
        """
        attr = self._tensor_attr_cls.cast(*args, **kwargs)
        if attr.is_fully_specified():
            self.table(attr.group_name, attr.attr_name)
        return bool(self.put_tensor(tensor, attr))

    def _remove_tensor(self, attr: Any) -> bool:
        key = (attr.group_name, attr.attr_name)
        self._wait_for_readers()
        self._attrs.pop(key, None)
        is_stored = key in self._tables
        self._tables = {each: table for each, table in self._tables.items() if each != key}
        return is_stored

    def _get_tensor_size(self, attr: Any) -> tuple[int, ...] | None:
        table = self._tables.get((attr.group_name, attr.attr_name))
        return None if table is None else torch.Size(table.shape)

    def get_all_tensor_attrs(self) -> list[Any]:
        """Return fresh attributes, indices not set, of all but the edges of a homogeneous graph."""
        # PyG writes ``attr.index`` on what we return, so never hand out our own objects.
        return [
            without_index(attr)
            for (group_name, _), attr in self._attrs.items()
            if group_name != HOMOGENEOUS_EDGES
        ]

    def close(self) -> None:
        """Let go of every tensor; harmless twice."""
        self._wait_for_readers()
        for table in self._tables.values():
            table.close()
        self._tables = {}
        self._attrs.clear()

    def __enter__(self) -> "DirectFeatureStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_whole(index: Any) -> bool:
    return index is None or (isinstance(index, slice) and index == slice(None))


def _in_order(rows: Tensor, index: Any, key: Key) -> Tensor:
    """Bring the rows of a first put into order of id."""
    ids = row_ids(index, rows.shape[0])
    ids = torch.arange(rows.shape[0])[ids] if not isinstance(ids, Tensor) else ids.to(rows.device)
    ids = ids.reshape(-1)
    if not torch.equal(ids.sort().values.cpu(), torch.arange(rows.shape[0])):
        raise ValueError(
            f"tensor {key} is new, and its index does not name each of its {rows.shape[0]} rows "
            "once; put the whole tensor first (index=None), then update rows"
        )
    return torch.empty_like(rows).index_copy_(0, ids.long(), rows)
