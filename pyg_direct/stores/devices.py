"""On which device rows appear."""

import torch


def resolve_device(device: torch.device | str | None) -> torch.device:
    """Return the device with its index; None means the current GPU, or the CPU where there is none.

    Raises
    ------
    ValueError
        If a CUDA device is asked for and there is none, or the device is of another kind.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {device}, expected 'cpu' or 'cuda'")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device is {device}, but torch sees no GPU; use device='cpu', or install a CUDA build "
            "of torch"
        )
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


def refuse_worker(device: torch.device) -> None:
    """Raise ``RuntimeError`` in a worker of a ``DataLoader`` if the device is a GPU."""
    if device.type == "cuda" and torch.utils.data.get_worker_info() is not None:
        raise RuntimeError(
            "a worker process of a DataLoader asked for rows on the GPU, which CUDA does not allow "
            "after a fork; give the loader filter_per_worker=False, so that the main process "
            "fetches them"
        )
