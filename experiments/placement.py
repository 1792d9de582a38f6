"""Where a run keeps its rows: one function for each choice of ``conf/store``.

Each takes the data and the device of the run and returns a ``Placement``, whose loaders yield the
same batches, wholly on the device, wherever the rows are. What cannot be had is refused.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader

import pyg_direct
from experiments.staged import StagedLoader
from pyg_direct.tables import DeviceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Data at its place.

    Parameters
    ----------
    store : str
        The choice of ``conf/store``, for the result table.
    rows : str
        Where the rows of the features live, for the result table: ``host`` memory that only the CPU
        reads, ``mapped`` host memory, ``device`` memory, or host memory ``staged`` by the CPU.
    loader : callable
        Makes a loader from ``num_neighbors``, ``input_nodes``, ``batch_size``, ``shuffle`` and
        ``seed``.
    """

    store: str
    rows: str
    loader: Callable[..., NodeLoader]


def mapped(data: Data, *, device: torch.device) -> Placement:
    """Leave rows in host memory, in place; kernels on the device read them.

    Parameters
    ----------
    data : Data
        On the CPU; not copied.
    device : torch.device
        Where batches appear. On a CPU the same rows are read by the CPU's kernel.
    """
    return _direct("mapped", data, device)


def on_device(data: Data, *, device: torch.device) -> Placement:
    """Copy everything to GPU memory.

    Parameters
    ----------
    data : Data
        On the CPU; must fit into GPU memory, and stays where it is.
    device : torch.device
        A CUDA device.

    Raises
    ------
    ValueError
        If ``device`` is a CPU, which has no other memory than the host's.
    """
    if device.type != "cuda":
        raise ValueError(
            f"store=device keeps rows in GPU memory, but the device of this run is {device}; "
            "use store=mapped, whose rows stay in host memory"
        )
    return _direct("device", copy(data).to(device), device)


def staged(data: Data, *, device: torch.device) -> Placement:
    """Leave rows in host memory; the CPU samples, gathers into pinned memory, and copies.

    Parameters
    ----------
    data : Data
        On the CPU; not copied.
    device : torch.device
        Where batches appear. On a CPU there is nothing to copy to, so the CPU only gathers.
    """
    stores = pyg_direct.from_data(data, device="cpu")
    rows = "staged" if device.type == "cuda" else "host"
    loader = partial(StagedLoader, data, stores, device=device)
    return Placement(store="staged", rows=rows, loader=loader)


def _direct(store: str, data: Data, device: torch.device) -> Placement:
    stores = pyg_direct.from_data(data, device=device)
    table = stores[0].table(None, "x")
    in_host_memory = "mapped" if table.device.type == "cuda" else "host"
    rows = "device" if isinstance(table, DeviceTable) else in_host_memory
    loader = partial(pyg_direct.NeighborLoader, stores)
    return Placement(store=store, rows=rows, loader=loader)
