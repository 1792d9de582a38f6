"""Put a new graph in the place of an old one, array by array, for ``save`` and ``convert_ogb``.

New files get names of their own; then one rename puts the new manifest in the place of the old, and
only then old files go. Killed at any moment, the folder is the old graph or the new.

Shape legend: ``E`` edges of one edge type.
"""

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_direct.files.arrays import StoredArray, write_array, write_pieces
from pyg_direct.files.manifest import FILE_NAME, Manifest, StoredEdges, sync_folder, write_manifest
from pyg_direct.stores import DirectGraphStore, Topology

Report = Callable[[int], Any]
Size = tuple[int | None, int | None]

_OUR_FILE = re.compile(r"[0-9a-f]{16}-\d+\.npy|manifest\.json(\.partial)?")
_ID_BYTES = 8


class GraphWriter:
    """Writes the arrays of one graph; ``replace_graph`` makes it.

    Parameters
    ----------
    folder : Path
        Exists.
    report : callable
        Called with the number of bytes after each piece that was written.
    """

    def __init__(self, folder: Path, report: Report) -> None:
        self.folder, self.report = folder, report
        self._token, self._num_files = secrets.token_hex(8), 0
        self._tensors: list[tuple[Any, str, StoredArray]] = []
        self._edges: list[StoredEdges] = []
        self._num_nodes: dict[str, int] = {}

    def put_tensor(self, group: Any, name: str, tensor: Tensor) -> None:
        """Write a dense tensor, on any device; no more than a piece of it is copied."""
        self._tensors.append((group, name, self._write(tensor)))

    def put_pieces(
        self,
        group: Any,
        name: str,
        pieces: Iterable[memoryview],
        *,
        dtype: torch.dtype,
        shape: tuple[int, ...],
    ) -> None:
        """Write a tensor of which no more than a piece is ever there, as ``write_pieces`` does."""
        stored = write_pieces(
            self.folder, self._new_file(), pieces, dtype=dtype, shape=shape, report=self.report
        )
        self._tensors.append((group, name, stored))

    def put_topology(self, edge_type: Any, topology: Topology) -> None:
        """Write edges that are compressed."""
        self._edges.append(
            StoredEdges(
                edge_type=edge_type, layout=topology.layout, size=topology.size,
                colptr=self._write(topology.colptr), row=self._write(topology.row),
                perm=None if topology.perm is None else self._write(topology.perm),
            )
        )  # fmt: skip

    def put_edge_index(self, edge_type: Any, edge_index: tuple[Tensor, Tensor], size: Size) -> None:
        """Compress edges as the graph store does, and write them; they are let go of then.

        Parameters
        ----------
        edge_type : tuple or None
        edge_index : pair of int32 or int64 tensors, shape (E,)
            Sources and destinations.
        size : tuple
            Number of source and destination nodes.

        Raises
        ------
        ValueError, TypeError
            As the graph store.
        """
        graph_store = DirectGraphStore()
        graph_store.put_edge_index(edge_index, edge_type=edge_type, layout="coo", size=size)
        topology = graph_store.topology(edge_type)
        self.put_topology(edge_type, topology)
        if topology.perm is None:
            self.report(_ID_BYTES * topology.num_edges)

    def put_num_nodes(self, node_type: str, num_nodes: int) -> None:
        """Remember how many nodes of a type there are."""
        self._num_nodes[node_type] = num_nodes

    def commit(self) -> None:
        """Replace the graph in the folder by what was written."""
        manifest = Manifest(
            tensors=tuple(self._tensors),
            edges=tuple(self._edges),
            num_nodes=tuple(self._num_nodes.items()),
        )
        write_manifest(self.folder, manifest)
        kept = {array.file for array in manifest.arrays()} | {FILE_NAME}
        for each in self.folder.iterdir():
            if each.name not in kept:
                each.unlink()

    def discard(self) -> None:
        """Remove what was written; the old graph stays."""
        for each in self.folder.glob(f"{self._token}-*.npy"):
            each.unlink()

    def _write(self, tensor: Tensor) -> StoredArray:
        return write_array(self.folder, self._new_file(), tensor, self.report)

    def _new_file(self) -> str:
        self._num_files += 1
        return f"{self._token}-{self._num_files}.npy"


@contextmanager
def replace_graph(
    path: str | Path, *, num_bytes: int, title: str, progress: bool
) -> Iterator[GraphWriter]:
    """Yield a writer; what it has written becomes the graph in the folder if the block ends well.

    Parameters
    ----------
    path : str or Path
        A folder, made if it is not there.
    num_bytes : int
        That will be reported.
    title : str
        Of the bar.
    progress : bool
        Show a bar, which needs tqdm.

    Raises
    ------
    ValueError
        If there are other files in the folder.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    sync_folder(folder.parent)
    foreign = sorted(each.name for each in folder.iterdir() if not _OUR_FILE.fullmatch(each.name))
    if foreign:
        raise ValueError(
            f"{folder} holds {foreign[:3]}, which pyg_direct did not write; expected an empty or "
            "new folder, or one of an earlier save"
        )
    with _bar(num_bytes, title, progress) as report:
        writer = GraphWriter(folder, report)
        try:
            yield writer
        except BaseException:
            writer.discard()
            raise
    writer.commit()


def edge_index_bytes(edge_index: tuple[Tensor, Tensor], size: Size) -> int:
    """Return how many bytes ``put_edge_index`` reports, nearly: pointers, sources and edge ids."""
    return edge_index[0].nbytes + _ID_BYTES * (edge_index[0].numel() + (size[1] or 0) + 1)


@contextmanager
def _bar(num_bytes: int, title: str, is_shown: bool) -> Iterator[Report]:
    """Yield what moves a bar of tqdm's, or does nothing."""
    if not is_shown:
        yield lambda _: None
        return
    from tqdm import tqdm

    with tqdm(total=num_bytes, unit="B", unit_scale=True, desc=title) as bar:
        yield bar.update
