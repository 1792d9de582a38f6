"""Which tensors a batch holds, and where their rows come from.

Shape legend: ``N`` ids of one node or edge type.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

from pyg_direct.loader.stats import GatherCount
from pyg_direct.stores import HOMOGENEOUS_EDGES, DirectFeatureStore, DirectGraphStore
from pyg_direct.tables import Request, Table, gather_all


class BatchRows:
    """Gathers the tensors of a store that belong in a batch.

    Parameters
    ----------
    feature_store : DirectFeatureStore
        Node tensors by node type, edge tensors by edge type; None and ``(None, None)`` if
        homogeneous.
    graph_store : DirectGraphStore
        Says how many nodes and edges there are.
    exclude : iterable
        What to leave out: names, or (group, name).
    is_trusted : bool
        Ids come from a sampler of ours as they are, and are not checked again. Nodes then come hop
        by hop, each in ascending order, so that rows need no sort before they are read.
    is_background : bool
        See ``Request``.

    Raises
    ------
    ValueError
        If ``exclude`` names nothing that is stored, or a tensor has fewer rows than there are nodes
        or edges of its group.
    """

    def __init__(
        self,
        feature_store: DirectFeatureStore,
        graph_store: DirectGraphStore,
        *,
        exclude: Iterable[Any] = (),
        is_trusted: bool = True,
        is_background: bool = False,
    ) -> None:
        self.feature_store, self._is_trusted = feature_store, is_trusted
        self._is_background = is_background
        self._excluded = _check_exclude(feature_store, exclude)
        # The store's tables, and those of them that belong in a batch; threads share the pair.
        self._found: tuple[Mapping[Any, Table] | None, dict[Any, dict[Any, Table]]] = None, {}
        self._check_sizes(graph_store)

    def tables(self) -> dict[Any, dict[Any, Table]]:
        """Return the tables that belong in a batch, by group and name.

        The same object for as long as the store has the same tables.
        """
        stored = self.feature_store.tables
        seen, tables = self._found
        if seen is not stored:
            tables = {}
            for (group_name, name), table in stored.items():
                if name not in self._excluded and (group_name, name) not in self._excluded:
                    tables.setdefault(group_name, {})[name] = table
            self._found = stored, tables
        return tables

    def gather(
        self,
        group_name: Any,
        ids: Tensor | None,
        *,
        count: GatherCount,
        is_sorted: bool = False,
        ready: dict[Any, Tensor] | None = None,
    ) -> dict[Any, Tensor]:
        """Return the rows of a group's tensors, by name.

        Parameters
        ----------
        group_name : node type, edge type, None, or (None, None)
            Which tensors.
        ids : int64 tensor, shape (N,), or None
            On the device of the store; None has no rows.
        count : GatherCount
            Gets what was read.
        is_sorted : bool
            Trusted ids are in order, or in a few runs that are.
        ready : dict, optional
            The rows, if they were gathered before; they are counted now, and returned.
        """
        tables = self.tables().get(group_name)
        if ids is None or tables is None:
            return {}
        rows = ready
        if rows is None:
            request = Request(
                ids,
                is_trusted=self._is_trusted,
                is_sorted=is_sorted and self._is_trusted,
                is_background=self._is_background,
            )
            rows = self.gather_request(group_name, request)
        for table in tables.values():
            count.add(table, ids)
        return rows

    def gather_request(self, group_name: Any, request: Request) -> dict[Any, Tensor]:
        """Return the rows of a request to a group's tensors, by name; nobody counts them."""
        tables = self.tables().get(group_name, {})
        return dict(zip(tables, gather_all(list(tables.values()), request), strict=True))

    def fetch(self, batch: Any, name: Any) -> None:
        """Put the rows of one tensor into a batch, by its ``n_id`` or ``e_id``, which are checked.

        Parameters
        ----------
        batch : Data or HeteroData
            Made by a loader.
        name : str, or (group, str)
            A bare name is fetched for every group that has it.

        Raises
        ------
        KeyError
            If no such tensor is stored.
        IndexError
            If the batch holds an id that the tensor does not have.
        """
        groups = self.feature_store.groups()
        keys = [(group, each) for group, names in groups.items() for each in names]
        found = [key for key in keys if name in (key, key[1])]
        if not found:
            raise KeyError(f"no tensor {name!r} to fetch; stored: {keys}")
        for group_name, attr_name in found:
            storage = batch if isinstance(batch, Data) else batch[group_name]
            is_edge = isinstance(group_name, tuple)
            ids = storage.e_id if is_edge else storage.n_id
            table = self.feature_store.table(group_name, attr_name)
            storage[attr_name] = table.gather(Request(ids))

    def _check_sizes(self, graph_store: DirectGraphStore) -> None:
        num_nodes = graph_store.num_nodes()
        edge_types = graph_store.edge_types()
        for group_name, tables in self.tables().items():
            edge_type = None if group_name == HOMOGENEOUS_EDGES else group_name
            if not isinstance(group_name, tuple):
                expected = num_nodes.get(group_name, 0)
            elif edge_type in edge_types:
                expected = graph_store.topology(edge_type).num_edges
            else:
                continue
            for name, table in tables.items():
                if table.num_rows < expected:
                    raise ValueError(
                        f"{table.name} has {table.num_rows} rows, expected {expected}, one a node "
                        f"or edge of its group; leave it out: exclude=[{(group_name, name)!r}]"
                    )


def _check_exclude(feature_store: DirectFeatureStore, exclude: Iterable[Any]) -> set[Any]:
    if isinstance(exclude, str):
        raise ValueError(f"exclude is {exclude!r}, expected a list: [{exclude!r}]")
    stored = [(group, each) for group, names in feature_store.groups().items() for each in names]
    known = {*stored, *(name for _, name in stored)}
    excluded = set(exclude)
    if not excluded <= known:
        raise ValueError(
            f"exclude names {sorted(excluded - known, key=str)}, which is not stored; expected "
            f"some of {sorted({name for _, name in stored}, key=str)}, or pairs of group and name "
            f"among {stored}"
        )
    return excluded
