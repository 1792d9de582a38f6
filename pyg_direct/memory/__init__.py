"""Bytes that a GPU can address in host memory, and streams that hand tensors to each other."""

from pyg_direct.memory.errors import HostMappingError
from pyg_direct.memory.mapped import MappedArray, tensor_from_numpy
from pyg_direct.memory.registration import Registration, is_registered
from pyg_direct.memory.sending import InMessage

__all__ = [
    "HostMappingError",
    "InMessage",
    "MappedArray",
    "Registration",
    "is_registered",
    "tensor_from_numpy",
]
