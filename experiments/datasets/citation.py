"""Citation graphs with the public split (Yang et al. 2016), as PyG loads them."""

from pathlib import Path

from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.transforms import NormalizeFeatures

NAMES = ("Cora", "CiteSeer", "PubMed")


def planetoid(*, root: str | Path, name: str) -> Data:
    """Load a graph, with features whose rows sum to one.

    Parameters
    ----------
    root : path
        Folder of all Planetoid graphs; what is missing there is downloaded, and what PyG makes of
        it is written there.
    name : str
        ``Cora``, ``CiteSeer`` or ``PubMed``.

    Raises
    ------
    ValueError
        If there is no graph of that name.
    """
    if name not in NAMES:
        raise ValueError(f"dataset.name ({name}) is unknown, expected one of {', '.join(NAMES)}")
    return Planetoid(str(root), name, transform=NormalizeFeatures())[0]
