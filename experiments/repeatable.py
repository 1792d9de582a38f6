"""Sums that come out alike each time, also on a GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def repeatable_sums() -> Iterator[None]:
    """Let torch use deterministic algorithms within the enclosed block.

    Without it a GPU adds messages with atomics, in any order, so that losses of equal runs differ
    in their last digits. It costs time: no measurement of speed should use it.
    """
    before = torch.are_deterministic_algorithms_enabled()
    # cuBLAS demands this before its first use in the process.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
