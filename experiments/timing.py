"""The median time of an epoch, and the peak of the device memory meanwhile."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTimes:
    """What a number of epochs took.

    Attributes
    ----------
    times_ms : tuple of float
        One an epoch, warm-up left out.
    peak_bytes : int
        Largest sum of allocations on the device, warm-up included; 0 on the CPU.
    loss : float
        Of the last epoch.
    """

    times_ms: tuple[float, ...]
    peak_bytes: int
    loss: float

    def row(self) -> dict[str, float]:
        """Return median and spread as columns of a result table."""
        return {
            "epoch_ms": median(self.times_ms),
            "min_ms": min(self.times_ms),
            "max_ms": max(self.times_ms),
            "peak_gib": self.peak_bytes / 2**30,
            "loss": self.loss,
        }


def time_epochs(
    epoch: Callable[[], Tensor], *, device: torch.device, warmup: int, repeats: int
) -> EpochTimes:
    """Run ``warmup + repeats`` epochs and time the last ``repeats`` one by one.

    Parameters
    ----------
    epoch : callable
        Runs one epoch and returns its loss, shape ().
    device : torch.device
    warmup, repeats : int
    """
    on_cuda = device.type == "cuda"
    if on_cuda:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    times, loss = [], torch.zeros(())
    for _ in range(warmup + repeats):
        start = time.perf_counter()
        loss = epoch()
        if on_cuda:
            torch.cuda.synchronize(device)
        times.append(1e3 * (time.perf_counter() - start))
    return EpochTimes(
        times_ms=tuple(times[warmup:]),
        peak_bytes=torch.cuda.max_memory_allocated(device) if on_cuda else 0,
        loss=float(loss),
    )
