"""What lies in the folder of a node-property dataset of the Open Graph Benchmark (Hu et al. 2020).

Two layouts are known, by the names that its package reads: ``raw/data.npz`` with
``raw/node-label.npz``, and one ``.csv.gz`` a table. Splits are ``split/<name>/``.

Shape legend: ``N`` nodes, ``E`` edges.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_direct.files.arrays import DTYPES
from pyg_direct.files.csv_gz import CsvArray, open_csv, read_integers
from pyg_direct.files.manifest import StoredGraphError
from pyg_direct.files.npz import NpzArray, open_npz

RawArray = NpzArray | CsvArray

_LISTS = ("num_nodes_list", "num_edges_list")
_SPLITS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RawGraph:
    """Files of one graph, opened but not read.

    Attributes
    ----------
    num_nodes, num_edges : int
        As the files count them.
    edges : RawArray
        Integers, shape (2, E) or (E, 2).
    tensors : dict
        Arrays of nodes and edges by OGB's names, which begin with ``node_`` or ``edge_``.
    label : RawArray
        Shape (N, tasks).
    """

    num_nodes: int
    num_edges: int
    edges: RawArray
    tensors: dict[str, RawArray]
    label: RawArray


def open_raw(folder: Path) -> RawGraph:
    """Open the files in ``folder/raw``.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or a file is missing.
    StoredGraphError
        If files are damaged, do not fit each other, or hold several graphs or kinds of nodes.
    """
    raw = folder / "raw"
    if any((raw / name).exists() for name in ("triplet-type-list.csv.gz", "edge_index_dict.npz")):
        raise StoredGraphError(
            f"{raw} holds a heterogeneous graph, expected one type of nodes; load it with the "
            "package ogb and give pyg_direct.save the HeteroData"
        )
    if (raw / "data.npz").exists():
        graph = _open_npz_graph(raw)
    elif (raw / "edge.csv.gz").exists():
        graph = _open_csv_graph(raw)
    else:
        raise FileNotFoundError(
            f"{raw} holds neither data.npz nor edge.csv.gz, expected source to be the folder of a "
            "dataset that ogb downloads, which holds the folders raw and split"
        )
    _check(graph)
    return graph


def find_split(folder: Path, split: str | None) -> Path:
    """Return the folder of a split; None stands for the only one there is.

    Raises
    ------
    FileNotFoundError
        If it is not there.
    ValueError
        If there are several, and none is named.
    """
    parent = folder / "split"
    there = sorted(each.name for each in parent.glob("*") if each.is_dir())
    if split is None and len(there) > 1:
        raise ValueError(f"split is None, and {parent} holds {there}; give one of these")
    if not there or (split is not None and split not in there):
        wanted = "the split of the dataset" if split is None else f"the split {split!r}"
        raise FileNotFoundError(f"{parent} holds {there}, expected {wanted}")
    return parent / (split or there[0])


def masks_of(split: Path, num_nodes: int) -> Iterator[tuple[str, Tensor]]:
    """Yield ``train_mask``, ``val_mask`` and ``test_mask``, bool, shape (N,), one at a time.

    Raises
    ------
    FileNotFoundError
        If neither a table nor ``split_dict.pt`` holds one of them.
    StoredGraphError
        If a file is damaged or holds something else.
    """
    # Preferred by the package too, where it is there.
    pickled = split / "split_dict.pt"
    ids = _load_split(pickled) if pickled.exists() else {}
    for name, part in _SPLITS.items():
        table = split / f"{part}.csv.gz"
        mask = torch.zeros(num_nodes, dtype=torch.bool)
        for piece in [ids[part]] if ids else read_integers(table):
            check_ids(piece, num_nodes, str(pickled if ids else table))
            mask[torch.from_numpy(piece)] = True
        yield name, mask


def check_ids(ids: np.ndarray[Any, Any], num_nodes: int, title: str) -> None:
    """Raise ``StoredGraphError`` if one of the ids is not a node."""
    if ids.size and (ids.min() < 0 or ids.max() >= num_nodes):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise StoredGraphError(
            f"{title} holds the node id {wrong}, expected ids in [0, {num_nodes}); it is damaged, "
            "download the dataset again"
        )


def _open_npz_graph(raw: Path) -> RawGraph:
    archive = raw / "data.npz"
    arrays: dict[str, Any] = dict(open_npz(archive))
    _require(archive, arrays, "edge_index", *_LISTS)
    sizes = [_only(arrays.pop(name).rows(raw), f"{name} of {archive}") for name in _LISTS]
    edges = arrays.pop("edge_index")
    foreign = [name for name in arrays if not name.startswith(("node_", "edge_"))]
    if foreign:
        raise StoredGraphError(
            f"{archive} holds {foreign}, expected names that begin with node_ or edge_"
        )
    labels = open_npz(raw / "node-label.npz")
    _require(raw / "node-label.npz", labels, "node_label")
    return RawGraph(
        num_nodes=sizes[0],
        num_edges=sizes[1],
        edges=edges,
        tensors=arrays,
        label=labels["node_label"],
    )


def _open_csv_graph(raw: Path) -> RawGraph:
    num_nodes, num_edges = (
        _only(read_integers(raw / f"num-{each}-list.csv.gz"), f"num-{each}-list.csv.gz of {raw}")
        for each in ("node", "edge")
    )
    files = {
        "node_feat": raw / "node-feat.csv.gz",
        "edge_feat": raw / "edge-feat.csv.gz",
        # The package gives this file of ogbn-proteins its new name.
        "node_species": raw / "species.csv.gz",
    }
    for each in sorted([*raw.glob("node_*.csv.gz"), *raw.glob("edge_*.csv.gz")]):
        files[each.name.removesuffix(".csv.gz")] = each
    tensors: dict[str, RawArray] = {
        name: open_csv(path, num_nodes if name.startswith("node_") else num_edges)
        for name, path in files.items()
        if path.exists()
    }
    return RawGraph(
        num_nodes=num_nodes,
        num_edges=num_edges,
        edges=open_csv(raw / "edge.csv.gz", num_edges),
        tensors=tensors,
        label=open_csv(raw / "node-label.csv.gz", num_nodes),
    )


def _check(graph: RawGraph) -> None:
    pair = (2, graph.num_edges) if isinstance(graph.edges, NpzArray) else (graph.num_edges, 2)
    if graph.edges.shape != pair or graph.edges.dtype.kind not in "iu":
        raise StoredGraphError(
            f"{graph.edges.title} holds {graph.edges.dtype} of shape {graph.edges.shape}, expected "
            f"integers of shape {pair}"
        )
    for name, array in {**graph.tensors, "node_label": graph.label}.items():
        num_rows = graph.num_edges if name.startswith("edge_") else graph.num_nodes
        is_known = array.dtype.name in DTYPES and (name != "node_label" or array.dtype.kind != "c")
        if array.shape[:1] != (num_rows,) or not is_known:
            raise StoredGraphError(
                f"{array.title} holds {array.dtype} of shape {array.shape}, expected {num_rows} "
                "rows of numbers that torch has"
            )


def _require(archive: Path, arrays: dict[str, Any], *names: str) -> None:
    missing = [name for name in names if name not in arrays]
    if missing:
        raise StoredGraphError(
            f"{archive} lacks {missing}, holds {sorted(arrays)}; expected what ogb downloads"
        )


def _only(pieces: Iterator[np.ndarray[Any, Any]], title: str) -> int:
    counts = [int(each) for piece in pieces for each in piece.reshape(-1)]
    if len(counts) != 1 or counts[0] < 0:
        raise StoredGraphError(
            f"{title} holds {counts[:3]}, expected one number, as in a dataset for node properties"
        )
    return counts[0]


def _load_split(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with torch.serialization.safe_globals(_numpy_globals()):
            loaded = torch.load(path, weights_only=True)
        return {part: np.asarray(loaded[part], np.int64).reshape(-1) for part in _SPLITS.values()}
    except (
        pickle.UnpicklingError,
        RuntimeError,
        EOFError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise StoredGraphError(
            f"{path} cannot be read: {error!r}; expected ids of nodes by 'train', 'valid' and "
            "'test', as tensors or NumPy arrays"
        ) from error


def _numpy_globals() -> list[Any]:
    """Return what a pickled NumPy array of integers needs, by its names of NumPy 1 and 2."""
    allowed = [np.ndarray, np.dtype, *{type(np.dtype(name)) for name in ("int32", "int64")}]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):

        def _reconstruct(*arguments: Any) -> Any:
            return np.empty(0).__reduce__()[0](*arguments)  # type: ignore[operator]

        _reconstruct.__module__, _reconstruct.__qualname__ = module, "_reconstruct"
        allowed.append(_reconstruct)
    return allowed
