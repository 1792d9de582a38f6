"""Node graphs of the Open Graph Benchmark (Hu et al. 2020), with their official splits."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import pyg_direct
from experiments.datasets.splits import MASKS, set_masks
from pyg_direct.files.manifest import FILE_NAME

NAMES = ("ogbn-arxiv", "ogbn-products", "ogbn-papers100M")


def ogbn(*, name: str, root: str | Path, undirected: bool) -> Data:
    """Load a graph through the package ``ogb``, or one that ``pyg_direct.convert_ogb`` stored.

    Parameters
    ----------
    name : str
        ``ogbn-arxiv``, ``ogbn-products`` or ``ogbn-papers100M``.
    root : path
        Folder of all OGB graphs; what is missing there is downloaded, after a question. Or the
        folder of this graph alone, converted, which needs no ``ogb``.
    undirected : bool
        Whether to add the opposite of each edge.

    Returns
    -------
    Data
        Stands on the arrays that ``ogb`` loaded, or on mapped files; features are copied only if
        those do not lie row by row. The class of a node without one is -1.

    Raises
    ------
    ImportError
        If ``ogb`` is needed and not installed.
    ValueError
        If there is no graph of that name here.
    """
    if name not in NAMES:
        raise ValueError(f"dataset.name ({name}) is unknown, expected one of {', '.join(NAMES)}")
    if (Path(root) / FILE_NAME).is_file():
        return _converted(Path(root), undirected)
    graph, labels, split = _load(name, root)
    edge_index = torch.from_numpy(graph["edge_index"])
    data = Data(
        x=torch.from_numpy(graph["node_feat"]).contiguous(),
        y=_classes(torch.from_numpy(labels)),
        edge_index=to_undirected(edge_index) if undirected else edge_index,
    )
    return set_masks(data, *(torch.tensor(split[part]) for part in ("train", "valid", "test")))


def _converted(folder: Path, undirected: bool) -> Data:
    feature_store, graph_store = pyg_direct.load(folder, "cpu")
    edge_index = torch.stack(graph_store.get_edge_index(edge_type=None, layout="coo"))
    tensors = {name: feature_store.table(None, name).rows() for name in ("x", "y", *MASKS)}
    data = Data(edge_index=to_undirected(edge_index) if undirected else edge_index, **tensors)
    data.y = _classes(data.y)
    return data


def _classes(labels: Tensor) -> Tensor:
    return labels.nan_to_num(nan=-1).long().view(-1)


def _load(name: str, root: str | Path) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    try:
        from ogb.nodeproppred import NodePropPredDataset
    except ImportError as error:
        raise ImportError(
            f"{name} needs the package ogb, which cannot be imported ({error}); "
            "install it with: pip install 'pyg_direct[ogb]'"
        ) from error
    with _whole_pickles():
        dataset = NodePropPredDataset(name=name, root=str(root))
        return *dataset[0], dataset.get_idx_split()


@contextmanager
def _whole_pickles() -> Iterator[None]:
    """Let torch read the NumPy arrays that ogb saved on this machine.

    Since torch 2.6 ``torch.load`` refuses them by default, and ogb 1.3.6 does not ask for them.
    """
    name = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        with warnings.catch_warnings():
            # torch warns of the variable that we have just set.
            warnings.filterwarnings("ignore", f"Environment variable {name}", UserWarning)
            yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before
