"""How long each stage of a training step takes."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StageClock:
    """Adds up seconds by stage; a stage ends when the GPU has done its work.

    Parameters
    ----------
    device : torch.device
        Where the stages run.

    Notes
    -----
    Waiting for the GPU at the end of each stage keeps stages from overlapping: their times add up
    to the time of an epoch.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the enclosed block to the stage ``name``."""
        start_s = time.perf_counter()
        yield
        wait_for(self._device)
        self.seconds[name] += time.perf_counter() - start_s


def wait_for(device: torch.device) -> None:
    """Wait until a device has done all its work; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
