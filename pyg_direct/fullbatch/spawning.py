"""Start the ranks of a run on this machine, on a port that the system picked as free."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from pyg_direct.fullbatch.processes import joined_ranks

LOOPBACK = "127.0.0.1"


def spawn_ranks(
    function: Callable[..., None],
    num_ranks: int,
    *,
    args: tuple[Any, ...] = (),
    device_type: str = "cpu",
    timeout_s: float = 120.0,
) -> None:
    """Run ``function(ranks, *args)`` in ``num_ranks`` new processes and wait for them.

    The processes meet at a port that the system picked as free. The first that fails ends the
    others.

    Parameters
    ----------
    function : callable
        Importable by its name, for it runs in a spawned process.
    num_ranks : int
        Number of processes.
    args : tuple
        Passed on; must be picklable.
    device_type, timeout_s
        As in ``joined_ranks``.

    Raises
    ------
    torch.multiprocessing.ProcessRaisedException, torch.multiprocessing.ProcessExitedException
        If a rank raised or was killed.
    """
    # Port 0 asks the system, and the server keeps the port: no other process can take it between.
    server = dist.TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    rank_args = (function, num_ranks, server.port, device_type, timeout_s, args)
    mp.spawn(_run_rank, args=rank_args, nprocs=num_ranks)


def _run_rank(
    rank: int,
    function: Callable[..., None],
    num_ranks: int,
    port: int,
    device_type: str,
    timeout_s: float,
    args: tuple[Any, ...],
) -> None:
    # Ranks share the cores of one machine.
    torch.set_num_threads(max(1, torch.get_num_threads() // num_ranks))
    store = dist.TCPStore(LOOPBACK, port, is_master=False, timeout=timedelta(seconds=timeout_s))
    with joined_ranks(
        device_type, timeout_s=timeout_s, num_ranks=num_ranks, store=store, rank=rank
    ) as ranks:
        function(ranks, *args)
