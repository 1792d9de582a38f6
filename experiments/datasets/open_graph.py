"""Node graphs of the Open Graph Benchmark (Hu et al. 2020), with their official splits."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from experiments.datasets.splits import set_masks

NAMES = ("ogbn-arxiv", "ogbn-products", "ogbn-papers100M")


def ogbn(*, name: str, root: str | Path, undirected: bool) -> Data:
    """Load a graph through the package ``ogb``.

    Parameters
    ----------
    name : str
        ``ogbn-arxiv``, ``ogbn-products`` or ``ogbn-papers100M``.
    root : path
        Folder of all OGB graphs; what is missing there is downloaded, after a question.
    undirected : bool
        Whether to add the opposite of each edge.

    Returns
    -------
    Data
        Stands on the arrays that ``ogb`` loaded; features are copied only if those do not lie row
        by row. The class of a node without one is -1.

    Raises
    ------
    ImportError
        If ``ogb`` is not installed.
    ValueError
        If there is no graph of that name here.
    """
    if name not in NAMES:
        raise ValueError(f"dataset.name ({name}) is unknown, expected one of {', '.join(NAMES)}")
    graph, labels, split = _load(name, root)
    edge_index = torch.from_numpy(graph["edge_index"])
    data = Data(
        x=torch.from_numpy(graph["node_feat"]).contiguous(),
        y=torch.from_numpy(np.nan_to_num(labels, nan=-1).astype(np.int64)).view(-1),
        edge_index=to_undirected(edge_index) if undirected else edge_index,
    )
    return set_masks(data, *(torch.tensor(split[part]) for part in ("train", "valid", "test")))


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
