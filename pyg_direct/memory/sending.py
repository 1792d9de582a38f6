"""Send a tensor to another process without moving its memory, which a GPU may read in place."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


class InMessage:
    """Pickles as the bytes of a tensor, and arrives as a tensor with memory of its own.

    A copy that torch shares would not do: it is gone, and the descriptor of its file closed, when
    the message is written, before a spawned process gets it.

    Parameters
    ----------
    tensor : torch.Tensor
        On the CPU, contiguous.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        tensor = self._tensor
        return _arrive, (_bytes_of(tensor).numpy(), tensor.dtype, tuple(tensor.shape))


def _arrive(sent: np.ndarray[Any, Any], dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    _bytes_of(tensor).numpy()[:] = sent
    return tensor


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().as_subclass(Tensor).reshape(-1).view(torch.uint8)
