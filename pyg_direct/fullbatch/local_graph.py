"""What one rank holds while it trains, and how it was asked to store it.

Shape legend: ``m`` rows of this rank.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pyg_direct.fullbatch.engine import Engine
from pyg_direct.fullbatch.partition import Balance, Order
from pyg_direct.fullbatch.propagation import Propagation

Features = Literal["device", "host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How a rank stores its part.

    Attributes
    ----------
    features : {"device", "host"}
        Where A X stays.
    dtype : torch.dtype
        Of features and buffers.
    order : {"natural", "random"}
        See ``partition_nodes``.
    seed : int
        Of the random order.
    engine : {"library", "kernel"} or None
    column_block : int or None
        See ``choose_engine``.
    """

    features: Features = "device"
    dtype: torch.dtype = torch.float32
    order: Order = "random"
    seed: int = 42
    engine: Engine | None = None
    column_block: int | None = None

    def __post_init__(self) -> None:
        if self.features not in ("device", "host"):
            raise ValueError(f"features = {self.features!r}, expected 'device' or 'host'")
        if self.dtype not in (torch.float32, torch.bfloat16, torch.float64):
            raise ValueError(f"dtype = {self.dtype}, expected float32, bfloat16 or float64")


@dataclass(slots=True, kw_only=True)
class LocalGraph:
    """What one rank holds.

    Attributes
    ----------
    node : int64 CPU tensor, shape (m,)
        Vertex of each row.
    label : int32 tensor, shape (m,), on the device
    masks : dict of bool tensors, shape (m,), on the device
    num_labelled : dict of int
        True entries of each mask over all ranks.
    propagation : Propagation
    parts : dict of int
        Predicted bytes by name; all but ``"temporaries"`` are held throughout.
    balance : Balance
    """

    node: Tensor
    label: Tensor
    masks: dict[str, Tensor]
    num_labelled: dict[str, int]
    propagation: Propagation
    parts: dict[str, int]
    balance: Balance

    @property
    def predicted_held_bytes(self) -> int:
        """Predicted bytes of the tensors that are held throughout."""
        return sum(size for name, size in self.parts.items() if name != "temporaries")

    def held_bytes(self) -> int:
        """Add up the tensors that are held on the device, parameters left out."""
        propagation = self.propagation
        tensors = [self.label, *self.masks.values()]
        if propagation.nonlinearity.node is not None:
            tensors.append(propagation.nonlinearity.node)
        return (
            sum(tensor.nbytes for tensor in tensors)
            + propagation.buffers.num_bytes
            + propagation.inputs.device_bytes
            + propagation.adjacency.num_bytes
        )

    def close(self) -> None:
        """Free what is held; harmless twice."""
        self.propagation.close()
