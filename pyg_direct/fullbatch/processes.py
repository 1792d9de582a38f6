"""The processes of one training run, and how the others learn that one of them has died.

Assumption: one process a GPU. NCCL carries CUDA tensors, Gloo carries CPU tensors; a Gloo group
stands beside NCCL for checks, because only Gloo can name the rank that is missing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One process among the others.

    Attributes
    ----------
    rank, num_ranks : int
        Place within the group, not within the world.
    device : torch.device
        Where this rank computes.
    group, control : ProcessGroup or None
        Carry tensors and checks. ``None`` for a process on its own.
    timeout_s : float
        Longest wait for another rank, in seconds.
    """

    rank: int = 0
    num_ranks: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    group: dist.ProcessGroup | None = None
    control: dist.ProcessGroup | None = None
    timeout_s: float = 120.0

    def broadcast(self, tensor: Tensor, root: int) -> Any:
        """Start to send ``tensor`` of rank ``root`` to all, in place; return the work, unwaited."""
        try:
            source = dist.get_global_rank(self.group, root) if self.group else root
            return dist.broadcast(tensor, src=source, group=self.group, async_op=True)
        except RuntimeError as error:
            raise self._lost(f"the broadcast from rank {root}") from error

    def wait(self, work: Any, what: str) -> None:
        """Wait for ``work``: on the CPU until it is done, on CUDA only the current stream waits.

        Raises
        ------
        RuntimeError
            If a rank died or did not answer within ``timeout_s``.
        """
        try:
            work.wait()
        except RuntimeError as error:
            raise self._lost(what) from error

    def swap(self, outgoing: Tensor, incoming: Tensor, to: int, origin: int) -> Tensor:
        """Send ``outgoing`` to rank ``to`` and fill ``incoming`` from rank ``origin``; return it.

        Raises
        ------
        RuntimeError
            If a rank died or did not answer within ``timeout_s``.
        """
        if self.group is None:
            raise RuntimeError("swap() on a single rank; expected a group of two or more")
        peers = [dist.get_global_rank(self.group, peer) for peer in (to, origin)]
        # Point-to-point calls move nothing in an empty tensor, on either backend.
        calls = [
            dist.P2POp(operation, tensor, peer, self.group)
            for operation, tensor, peer in (
                (dist.isend, outgoing, peers[0]),
                (dist.irecv, incoming, peers[1]),
            )
            if tensor.numel()
        ]
        try:
            for work in dist.batch_isend_irecv(calls) if calls else []:
                work.wait()
        except RuntimeError as error:
            raise self._lost(f"a swap with ranks {to} and {origin}") from error
        return incoming

    def sum_in_place(self, tensor: Tensor) -> None:
        """Replace ``tensor`` on every rank by the sum over the ranks.

        Raises
        ------
        RuntimeError
            If a rank died or did not answer within ``timeout_s``.
        """
        if self.num_ranks == 1:
            return
        try:
            dist.all_reduce(tensor, group=self.group)
        except RuntimeError as error:
            raise self._lost("a sum over the ranks") from error

    def meet(self, what: str) -> None:
        """Wait until every rank is here; name the ranks that are not.

        Raises
        ------
        RuntimeError
            If a rank did not come within ``timeout_s``.
        """
        if self.num_ranks == 1:
            return
        try:
            timeout = timedelta(seconds=self.timeout_s)
            dist.monitored_barrier(self.control, timeout=timeout, wait_all_ranks=True)
        except RuntimeError as error:
            raise self._lost(what) from error

    def check_equal(self, name: str, value: object) -> None:
        """Compare ``value``, which must be the same on every rank.

        Raises
        ------
        ValueError
            On every rank, if two ranks differ.
        """
        if self.num_ranks == 1:
            return
        values: list[object] = [None] * self.num_ranks
        try:
            dist.all_gather_object(values, value, group=self.control)
        except RuntimeError as error:
            raise self._lost(f"the comparison of {name}") from error
        if any(other != values[0] for other in values):
            listed = dict(enumerate(values))
            raise ValueError(
                f"{name} differs between ranks: {listed}; start every rank with equal arguments"
            )

    def _lost(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"rank {self.rank} of {self.num_ranks} gave up on {what}: another rank died or did "
            f"not answer within {self.timeout_s:g} s; the first error is in that rank's output"
        )


@contextmanager
def joined_ranks(
    device_type: str,
    *,
    timeout_s: float = 120.0,
    num_ranks: int | None = None,
    store: dist.Store | None = None,
    rank: int | None = None,
) -> Iterator[Ranks]:
    """Join the processes that torchrun (or ``spawn_ranks``) started; leave them at the end.

    A process that nobody started with others is alone, and no group is made for it.

    Parameters
    ----------
    device_type : {"cpu", "cuda"}
        Gloo or NCCL. Each CUDA process takes the GPU of its ``LOCAL_RANK``.
    timeout_s : float
        Longest wait for another rank, in seconds.
    num_ranks : int, optional
        Expected number of ranks.
    store : torch.distributed.Store, optional
        Where the ranks find each other, with ``rank``; torchrun's environment without it.

    Raises
    ------
    ValueError
        If ``num_ranks`` is not the number of processes that were started.
    RuntimeError
        If a rank did not come within ``timeout_s``, or there is no GPU for this one.
    """
    rank = int(os.environ.get("RANK", "0")) if rank is None else rank
    started = int(os.environ.get("WORLD_SIZE", "1")) if store is None else num_ranks or 1
    if num_ranks is not None and num_ranks != started:
        raise ValueError(
            f"num_ranks = {num_ranks}, but {started} processes were started: "
            f"use torchrun --nproc-per-node {num_ranks}"
        )
    device = _device_of(device_type, rank if store else int(os.environ.get("LOCAL_RANK", "0")))
    if started == 1:
        yield Ranks(device=device, timeout_s=timeout_s)
        return
    _join(device, rank, started, timeout_s, store)
    try:
        yield world_ranks(device, timeout_s=timeout_s)
    finally:
        dist.destroy_process_group()


def world_ranks(device: torch.device, *, timeout_s: float = 120.0) -> Ranks:
    """Return all processes of the already initialized default group.

    Parameters
    ----------
    device : torch.device
        Where this rank computes; a CUDA device gets a Gloo group for checks beside NCCL.
    timeout_s : float
        Longest wait for another rank, in seconds.
    """
    group = dist.group.WORLD
    control = group
    if device.type == "cuda":
        control = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
    return Ranks(
        rank=dist.get_rank(),
        num_ranks=dist.get_world_size(),
        device=device,
        group=group,
        control=control,
        timeout_s=timeout_s,
    )


def _device_of(device_type: str, local_rank: int) -> torch.device:
    if device_type == "cpu":
        return torch.device("cpu")
    if device_type != "cuda":
        raise ValueError(f"device_type = {device_type!r}, expected 'cpu' or 'cuda'")
    if local_rank >= torch.cuda.device_count():
        raise RuntimeError(
            f"local rank {local_rank} has no GPU: {torch.cuda.device_count()} are visible, "
            f"expected one a process; start fewer ranks or choose device_type='cpu'"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _join(
    device: torch.device, rank: int, num_ranks: int, timeout_s: float, store: dist.Store | None
) -> None:
    backend = "nccl" if device.type == "cuda" else "gloo"
    timeout = timedelta(seconds=timeout_s)
    try:
        if store is None:
            dist.init_process_group(backend, timeout=timeout)
        else:
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=num_ranks, timeout=timeout
            )
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {rank} found fewer than {num_ranks} ranks within {timeout_s:g} s: "
            f"start as many processes as the world size says"
        ) from error
