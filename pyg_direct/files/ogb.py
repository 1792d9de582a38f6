"""Turn a dataset of the Open Graph Benchmark into a folder that ``load`` opens, in pieces.

Shape legend: ``N`` nodes, ``E`` edges in the files.
Assumption: edges fit into memory as the graph store compresses them; nothing else needs to.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pyg_direct.files.arrays import DTYPES
from pyg_direct.files.ogb_raw import (
    RawArray,
    RawGraph,
    check_ids,
    find_split,
    masks_of,
    open_raw,
)
from pyg_direct.files.writing import GraphWriter, replace_graph
from pyg_direct.stores import HOMOGENEOUS_EDGES

# What the package does to the edges of each dataset whose folder has this name.
_ADDS_INVERSE = {"arxiv": False, "papers100M": False, "products": True, "proteins": True}
_NAMES = {"node_feat": "x", "edge_feat": "edge_attr"}
_NUM_MASKS, _ID_BYTES = 3, 8


def convert_ogb(
    source: str | Path,
    path: str | Path,
    *,
    add_inverse_edge: bool | None = None,
    split: str | None = None,
    progress: bool = False,
) -> None:
    """Convert the downloaded files of a dataset for node properties; needs no package ``ogb``.

    What is stored equals what ``PygNodePropPredDataset`` gives: ``x``, ``edge_index`` and ``y`` of
    shape (N, tasks), further tables such as ``node_year`` and ``edge_attr`` under their names, and
    the split as ``train_mask``, ``val_mask`` and ``test_mask``. ``y`` is int64 if every label is a
    whole number; else float32, where a node without a label (ogbn-papers100M) has NaN.

    Parameters
    ----------
    source : str or Path
        The folder that holds ``raw`` and ``split``, as ``ogb`` unpacks it; only read.
    path : str or Path
        A folder, made if it is not there. A graph of an earlier save is replaced by one rename: a
        kill leaves the old or the new, a refusal the old.
    add_inverse_edge : bool, optional
        Store the inverse of each edge behind it. None does what the package does: in ogbn-products
        and ogbn-proteins, not in ogbn-arxiv and where the files are ``.npz`` (ogbn-papers100M).
    split : str, optional
        Name of a folder in ``split``; None takes the only one there is.
    progress : bool
        Show a bar, which needs tqdm.

    Raises
    ------
    FileNotFoundError
        If a folder or a file is missing.
    StoredGraphError
        If a file is damaged, does not fit the others, or is of another kind of dataset.
    ValueError
        If there are other files in ``path``, ``split`` is None where there are several, or
        ``add_inverse_edge`` is None where the name of the folder does not tell.

    Notes
    -----
    Memory holds the edges while they are compressed, one mask, and a few MiB. Features whose first
    index runs fastest in a ``.npz`` file are staged in ``path`` as an unnamed file.
    """
    folder = Path(source)
    graph, split_folder = open_raw(folder), find_split(folder, split)
    if add_inverse_edge is None:
        add_inverse_edge = _adds_inverse(folder)
    copies = 2 if add_inverse_edge else 1
    num_bytes = _num_bytes(graph, copies)
    with replace_graph(path, num_bytes=num_bytes, title="convert", progress=progress) as writer:
        _put_edges(writer, graph, copies)
        for name, array in graph.tensors.items():
            _put_array(writer, name, array, copies if name.startswith("edge_") else 1)
        _put_label(writer, graph.label)
        for name, mask in masks_of(split_folder, graph.num_nodes):
            writer.put_tensor(None, name, mask)


def _adds_inverse(folder: Path) -> bool:
    if (folder / "raw" / "data.npz").exists():
        return False
    name = folder.resolve().name.replace("-", "_")
    name = name.removeprefix("ogbn_").removesuffix("_pyg").removesuffix("_bin")
    if name not in _ADDS_INVERSE:
        raise ValueError(
            f"add_inverse_edge is None, and the folder {folder.resolve().name!r} has no name of a "
            f"dataset ({', '.join(f'ogbn_{each}' for each in _ADDS_INVERSE)}); give True or False"
        )
    return _ADDS_INVERSE[name]


def _put_edges(writer: GraphWriter, graph: RawGraph, copies: int) -> None:
    # With inverses, edge e is at 2e and its inverse at 2e + 1.
    ends = np.empty((2, graph.num_edges * copies), np.int64)
    for end, start, ids in graph.edges.edge_ends():
        check_ids(ids, graph.num_nodes, graph.edges.title)
        for each in range(copies):
            ends[end ^ each, each::copies][start : start + ids.size] = ids
        writer.report(ids.nbytes)
    size = (graph.num_nodes, graph.num_nodes)
    writer.put_edge_index(None, (torch.from_numpy(ends[0]), torch.from_numpy(ends[1])), size)


def _put_array(writer: GraphWriter, name: str, array: RawArray, copies: int) -> None:
    writer.put_pieces(
        HOMOGENEOUS_EDGES if name.startswith("edge_") else None,
        _NAMES.get(name, name),
        _pieces(array, writer.folder, array.dtype.newbyteorder("="), copies),
        dtype=DTYPES[array.dtype.name],
        shape=(array.shape[0] * copies, *array.shape[1:]),
    )


def _put_label(writer: GraphWriter, label: RawArray) -> None:
    dtype = np.dtype(np.int64 if _is_whole(label, writer.folder) else np.float32)
    writer.put_pieces(
        None,
        "y",
        _pieces(label, writer.folder, dtype, 1),
        dtype=DTYPES[dtype.name],
        shape=label.shape,
    )


def _pieces(
    array: RawArray, scratch: Path, dtype: np.dtype[Any], copies: int
) -> Iterator[memoryview]:
    for piece in array.rows(scratch):
        rows = piece if copies == 1 else piece.repeat(copies, axis=0)
        yield np.ascontiguousarray(rows, dtype).reshape(-1).view(np.uint8).data


def _is_whole(label: RawArray, scratch: Path) -> bool:
    """Return whether all labels are whole numbers; reads those that are not by their type."""
    if label.dtype.kind != "f":
        return True
    return all(
        bool((np.isfinite(piece) & (np.trunc(piece) == piece)).all())
        for piece in label.rows(scratch)
    )


def _num_bytes(graph: RawGraph, copies: int) -> int:
    """Return what will be reported, nearly: edges that are read, everything that is written."""
    num_edges = graph.num_edges * copies
    read = 2 * graph.num_edges * graph.edges.dtype.itemsize
    topology = _ID_BYTES * (2 * num_edges + graph.num_nodes + 1)
    masks = _NUM_MASKS * graph.num_nodes
    tables = sum(
        array.dtype.itemsize * math.prod(array.shape) * (copies if name.startswith("edge_") else 1)
        for name, array in {**graph.tensors, "node_label": graph.label}.items()
    )
    return read + topology + masks + tables
