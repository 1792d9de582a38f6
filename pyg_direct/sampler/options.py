"""Check the sampler's own arguments."""

import torch

MAX_SEED = (1 << 63) - 1


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ``ValueError`` if an argument is not one of its choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {choices}")


def resolve_device(device: torch.device | str | None) -> torch.device:
    """Return the device to sample on: for None the current GPU if there is one, else the CPU.

    Raises
    ------
    RuntimeError
        If there is no GPU where one is asked for.
    ValueError
        If the device is neither a CPU nor a GPU.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError(f"device is {device}, but torch sees no GPU; use device='cpu'")
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.device("cuda", index)
    if device.type != "cpu":
        raise ValueError(f"device is {device}, expected a CPU or CUDA device")
    return device


def resolve_seed(seed: int | None) -> int:
    """Return the seed, for None one that torch's generator draws.

    Raises
    ------
    ValueError
        If it is not in ``[0, 2**63)``.
    """
    if seed is None:
        return int(torch.randint(MAX_SEED, (1,)))
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed is {seed}, expected a number in [0, 2**63)")
    return seed
