"""Write a graph into a folder.

New files get names of their own; then one rename puts the new manifest in the place of the old, and
only then old files go. Killed at any moment, the folder is the old graph or the new.
"""

import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_geometric.data import Data, HeteroData

from pyg_direct.files.arrays import StoredArray, write_array
from pyg_direct.files.manifest import FILE_NAME, Manifest, StoredEdges, sync_folder, write_manifest
from pyg_direct.stores import DirectFeatureStore, DirectGraphStore, from_data

Stores = tuple[DirectFeatureStore, DirectGraphStore]

_OUR_FILE = re.compile(r"[0-9a-f]{16}-\d+\.npy|manifest\.json(\.partial)?")


def save(stores: Stores | Data | HeteroData, path: str | Path, *, progress: bool = False) -> None:
    """Save a graph, in the place of what an earlier save left there, if anything.

    Parameters
    ----------
    stores : pair of stores, Data or HeteroData
        Features are written in pieces, never held twice; edges of ``Data`` are compressed first.
    path : str or Path
        A folder, made if it is not there. Stores that were opened from it may be saved to it.
    progress : bool
        Show a bar, which needs tqdm.

    Raises
    ------
    TypeError
        If ``stores`` is something else, or a type of elements cannot be stored.
    ValueError
        If there are other files in the folder.
    """
    if isinstance(stores, Data | HeteroData):
        stores = from_data(stores, "cpu")
    feature_store, graph_store = _check_stores(stores)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    sync_folder(folder.parent)
    foreign = sorted(each.name for each in folder.iterdir() if not _OUR_FILE.fullmatch(each.name))
    if foreign:
        raise ValueError(
            f"{folder} holds {foreign[:3]}, which pyg_direct did not write; expected an empty or "
            "new folder, or one of an earlier save"
        )
    with _Progress(_num_bytes(feature_store, graph_store), progress) as report:
        manifest = _write_arrays(folder, feature_store, graph_store, report)
    write_manifest(folder, manifest)
    kept = {array.file for array in manifest.arrays()} | {FILE_NAME}
    for each in folder.iterdir():
        if each.name not in kept:
            each.unlink()


def _write_arrays(
    folder: Path,
    feature_store: DirectFeatureStore,
    graph_store: DirectGraphStore,
    report: Callable[[int], Any],
) -> Manifest:
    token, files = secrets.token_hex(8), iter(range(10**9))

    def write(tensor: Any) -> StoredArray:
        return write_array(folder, f"{token}-{next(files)}.npy", tensor, report)

    tensors = [
        (group, name, write(feature_store.table(group, name).rows()))
        for group, names in feature_store.groups().items()
        for name in names
    ]
    edges = []
    for (edge_type, layout), topology in graph_store.topologies().items():
        edges.append(
            StoredEdges(
                edge_type=edge_type, layout=layout, size=topology.size,
                colptr=write(topology.colptr), row=write(topology.row),
                perm=None if topology.perm is None else write(topology.perm),
            )
        )  # fmt: skip
    return Manifest(tensors=tuple(tensors), edges=tuple(edges))


def _num_bytes(feature_store: DirectFeatureStore, graph_store: DirectGraphStore) -> int:
    tables = [
        feature_store.table(group, name)
        for group, names in feature_store.groups().items()
        for name in names
    ]
    parts = [
        part
        for each in graph_store.topologies().values()
        for part in (each.colptr, each.row, each.perm)
    ]
    return sum(table.num_rows * table.row_bytes for table in tables) + sum(
        part.nbytes for part in parts if part is not None
    )


class _Progress:
    """A bar of tqdm's, or nothing."""

    def __init__(self, num_bytes: int, is_shown: bool) -> None:
        self._bar: Any = None
        if is_shown:
            from tqdm import tqdm

            self._bar = tqdm(total=num_bytes, unit="B", unit_scale=True, desc="save")

    def __enter__(self) -> Callable[[int], Any]:
        return (lambda _: None) if self._bar is None else self._bar.update

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _check_stores(stores: Any) -> Stores:
    is_pair = isinstance(stores, tuple | list) and len(stores) == 2
    if (
        not is_pair
        or not isinstance(stores[0], DirectFeatureStore)
        or not isinstance(stores[1], DirectGraphStore)
    ):
        raise TypeError(
            f"stores is a {type(stores).__name__}, expected (DirectFeatureStore, "
            "DirectGraphStore), Data or HeteroData"
        )
    return stores[0], stores[1]
