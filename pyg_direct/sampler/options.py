"""Check the sampler's own arguments."""

import torch
from torch.utils.data import get_worker_info

from pyg_direct.kernels import sample

MAX_SEED = (1 << 63) - 1
STRATEGIES = ("uniform", "last")
DIRECTIONS = ("forward", "backward")


def check_options(*, temporal_strategy: str, sample_direction: str, is_fixed: bool) -> None:
    """Check arguments that have few values.

    Parameters
    ----------
    temporal_strategy, sample_direction : str
        As the sampler has them.
    is_fixed : bool
        Whether ``"last"`` decides alone which edges are taken.

    Raises
    ------
    ValueError
        If one has another value, or the strategy contradicts others.
    """
    _check_choice("temporal_strategy", temporal_strategy, STRATEGIES)
    _check_choice("sample_direction", sample_direction, DIRECTIONS)
    if temporal_strategy == "last" and not is_fixed:
        raise ValueError(
            "temporal_strategy is 'last', which leaves nothing to draw: expected replace=False and "
            "weight_attr=None"
        )


def draw_method(is_replaced: bool, is_temporal: bool, temporal_strategy: str) -> int:
    """Return how edges are drawn, as ``pyg_direct.kernels.sample`` numbers it."""
    if is_replaced:
        return sample.REPLACED
    return sample.LAST if is_temporal and temporal_strategy == "last" else sample.DISTINCT


def worker_seed() -> int:
    """Return the seed of this worker of a ``DataLoader``, 0 elsewhere."""
    worker = get_worker_info()
    return 0 if worker is None else int(worker.seed)


def refuse_worker(device: torch.device) -> None:
    """Raise ``RuntimeError`` in a worker of a ``DataLoader`` if the device is a GPU."""
    if device.type == "cuda" and get_worker_info() is not None:
        raise RuntimeError(
            f"a sampler on {device} cannot work in a DataLoader worker; expected num_workers=0, or "
            "a sampler with device='cpu'"
        )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {choices}")


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
