"""The device of a run, which is never changed behind the user's back."""

import torch


def choose_device(name: str | None) -> torch.device:
    """Return the device that an option names.

    Parameters
    ----------
    name : str or None
        ``cpu``, ``cuda``, ``cuda:<number>``; None for the GPU if there is one, else the CPU.

    Raises
    ------
    ValueError
        If the name is no such device, or a GPU is asked for that torch does not see.
    """
    num_gpus = torch.cuda.device_count()
    if name is None:
        return torch.device("cuda" if num_gpus else "cpu")
    kind, _, number = str(name).partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise ValueError(f"device ({name}) is unknown, expected cpu, cuda, cuda:<number> or null")
    if kind == "cuda" and int(number or 0) >= num_gpus:
        raise ValueError(
            f"device ({name}) is not there: torch {torch.__version__} sees {num_gpus} GPUs; "
            "use device=cpu, or a torch built for CUDA on a machine with a GPU"
        )
    return torch.device(name)
