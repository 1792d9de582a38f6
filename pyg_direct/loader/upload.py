"""A sampler's output on its way from the CPU to a GPU."""

from typing import Any

import torch
from torch import Tensor


def upload(values: Any, device: torch.device) -> Any:
    """Copy the CPU tensors of a sampler's output to a GPU, on the current stream.

    Parameters
    ----------
    values : SamplerOutput, HeteroSamplerOutput, or what they hold
        Changed in place; what is on the GPU already is left alone.
    device : torch.device
        A CUDA device; for the CPU everything is left as it is.

    Returns
    -------
    object
        The same, with its tensors on the device. The host does not wait for them: they go through
        pinned memory, which torch keeps until they are there.
    """
    if device.type == "cpu":
        return values
    if isinstance(values, Tensor):
        if values.is_cuda:
            return values
        return values.pin_memory().to(device, non_blocking=True)
    if isinstance(values, dict):
        return {key: upload(value, device) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(upload(value, device) for value in values)
    if hasattr(values, "__dict__"):
        for name, value in vars(values).items():
            setattr(values, name, upload(value, device))
    return values
