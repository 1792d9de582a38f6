"""Where the topology stands for a sampler on the GPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pyg_direct.memory import MappedArray
from pyg_direct.sampler.relation import Relation

PLACEMENTS = ("mapped", "colptr", "device")


def choose_placement(topology: str | None, data: Any) -> str:
    """Return ``topology`` if it names a placement; for None, that of the graph store.

    Parameters
    ----------
    topology : str or None
        As the sampler takes it.
    data : Any
        As the sampler takes it.

    Raises
    ------
    ValueError
        If it names none.
    """
    if topology is None:
        graph_store = data[1] if isinstance(data, tuple | list) and len(data) == 2 else None
        topology = getattr(graph_store, "placement", "mapped")
    if topology not in PLACEMENTS:
        raise ValueError(f"topology is {topology!r}, expected one of {PLACEMENTS}")
    return topology


def place_relations(
    relations: list[Relation], device: torch.device, topology: str
) -> list[Relation]:
    """Return relations that kernels on a device can read.

    Parameters
    ----------
    relations : list of Relation
        On the CPU. On a CPU device, they are returned as they are.
    device : torch.device
        Where the sampler runs.
    topology : str
        ``"mapped"``: all stays in host memory, mapped in place; ``"colptr"``: a copy of the
        pointers on the device, the rest mapped; ``"device"``: copies of all on the device.

    Raises
    ------
    HostMappingError
        If CUDA refuses to map host memory.
    """
    if device.type == "cpu":
        return relations

    def mapped(tensor: Tensor) -> Tensor:
        return MappedArray.from_array(tensor.contiguous()).cuda_view(device)

    def copied(tensor: Tensor) -> Tensor:
        return tensor.to(device)

    pointers: Callable[[Tensor], Tensor] = mapped if topology == "mapped" else copied
    edges: Callable[[Tensor], Tensor] = copied if topology == "device" else mapped
    return [relation.placed(pointers, edges) for relation in relations]
