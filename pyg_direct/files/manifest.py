"""What a folder holds, as one JSON file; the folder is what its manifest says, and nothing else."""

import dataclasses
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyg_direct.files.arrays import DTYPES, StoredArray

FILE_NAME = "manifest.json"
FORMAT, VERSION = "pyg_direct", 1


class StoredGraphError(ValueError):
    """A folder is not a graph that can be opened: damaged, cut short, foreign, or too new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEdges:
    """Edges of one type; ``perm`` is None where edge ids are positions."""

    edge_type: Any
    layout: str
    size: tuple[int, int]
    colptr: StoredArray
    row: StoredArray
    perm: StoredArray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is stored: tensors by group and name, edges, and numbers of nodes by type."""

    tensors: tuple[tuple[Any, str, StoredArray], ...]
    edges: tuple[StoredEdges, ...]
    num_nodes: tuple[tuple[str, int], ...] = ()

    def arrays(self) -> list[StoredArray]:
        """Return every array."""
        parts = [part for each in self.edges for part in (each.colptr, each.row, each.perm)]
        return [*(array for _, _, array in self.tensors), *(part for part in parts if part)]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Put a manifest in the place of another, at once: its arrays are on the disk already."""
    content = {
        "tensors": [
            {"group": group, "name": name, "array": dataclasses.asdict(array)}
            for group, name, array in manifest.tensors
        ],
        "edges": [dataclasses.asdict(each) for each in manifest.edges],
        "num_nodes": dict(manifest.num_nodes),
    }
    text = json.dumps(content, indent=1)
    head = {"format": FORMAT, "version": VERSION, "checksum": zlib.crc32(text.encode())}
    temporary = folder / f"{FILE_NAME}.partial"
    with temporary.open("w") as file:
        file.write(json.dumps({**head, "content": text}))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    temporary.replace(folder / FILE_NAME)
    sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder.

    Raises
    ------
    FileNotFoundError
        If there is none.
    StoredGraphError
        If it is damaged, of another format, or of a later version.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} has no {FILE_NAME}, expected a folder that pyg_direct.save wrote; a save "
            "that was interrupted leaves none, so save again"
        )
    try:
        head = json.loads(path.read_bytes())
    except ValueError as error:
        raise StoredGraphError(f"{path} is damaged: {error}; save the graph again") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise StoredGraphError(f"{path} is not of pyg_direct, expected the format {FORMAT!r}")
    if not isinstance(head.get("version"), int) or head["version"] > VERSION:
        raise StoredGraphError(
            f"{path} has version {head.get('version')!r}, expected {VERSION} or less; install a "
            "newer pyg_direct"
        )
    text = head.get("content")
    if not isinstance(text, str) or zlib.crc32(text.encode()) != head.get("checksum"):
        raise StoredGraphError(f"{path} is damaged: its checksum differs; save the graph again")
    try:
        return _parse(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoredGraphError(f"{path} is damaged: {error!r}; save the graph again") from error


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _parse(content: dict[str, Any]) -> Manifest:
    return Manifest(
        tensors=tuple(
            (_key(each["group"]), each["name"], _array(each["array"]))
            for each in content["tensors"]
        ),
        edges=tuple(
            StoredEdges(
                edge_type=_key(each["edge_type"]),
                layout=each["layout"],
                size=tuple(each["size"]),
                colptr=_array(each["colptr"]),
                row=_array(each["row"]),
                perm=None if each["perm"] is None else _array(each["perm"]),
            )
            for each in content["edges"]
        ),
        num_nodes=tuple((kind, int(size)) for kind, size in content["num_nodes"].items()),
    )


def _array(fields: dict[str, Any]) -> StoredArray:
    array = StoredArray(**{**fields, "shape": tuple(fields["shape"])})
    # A manifest must not lead out of its folder.
    if array.file != Path(array.file).name or array.dtype not in DTYPES:
        raise ValueError(f"array {array}")
    return array


def _key(group: Any) -> Any:
    return tuple(group) if isinstance(group, list) else group
