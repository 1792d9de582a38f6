"""What the kernels of one stream leave for the next kernel, and for the host."""

import threading
from functools import cache

import torch
from torch import Tensor

from pyg_direct.kernels.launch import Span
from pyg_direct.kernels.partition import MAX_BUCKETS, num_blocks, partition_ids
from pyg_direct.kernels.walk import GatherLaunch
from pyg_direct.memory import MappedArray
from pyg_direct.tables.plan import GatherPlan
from pyg_direct.tables.request import outside

# No id, right or wrong, that a user means.
NO_ID = -(2**63)


class StreamNotes:
    """Tickets and counts in device memory, and a word of the host's where kernels note wrong ids.

    Parameters
    ----------
    device : torch.device
        A CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._tickets = torch.zeros(2, dtype=torch.int64, device=device)
        self._counts = torch.zeros(MAX_BUCKETS + 1, dtype=torch.int64, device=device)
        self._lock = threading.Lock()
        self._wrong = MappedArray.empty((1,), torch.int64)
        self._wrong.cpu_view().fill_(NO_ID)
        self._spans = Span(self._tickets.data_ptr(), 16), Span(self._wrong.device_address, 8)

    def launch(self, plan: GatherPlan, stream: int, num_used: Tensor | None = None) -> GatherLaunch:
        """Return the launch of a plan on the stream of these notes; see ``GatherLaunch``."""
        return GatherLaunch(
            *self._spans, plan.rows_per_ticket, plan.num_warps, plan.max_blocks, stream, num_used
        )

    def partition(self, ids: Tensor, num_rows: int, stream: int) -> tuple[Tensor, Tensor]:
        """Return ids in order of address, roughly, and where each stands, on the stream of these.

        Parameters
        ----------
        ids : int32 or int64 tensor, shape (N,)
            On the device; one or more, less than ``2**31``.
        num_rows : int
            Below which ids should lie.
        stream : int
            Its CUDA handle.
        """
        partitioned = torch.empty_like(ids)
        places = torch.empty(ids.numel(), dtype=torch.int64, device=ids.device)
        shape = num_blocks(ids.numel()), MAX_BUCKETS
        firsts = torch.empty(shape, dtype=torch.int32, device=ids.device)
        # Threads may share the stream, and the counts are those of two launches.
        with self._lock:
            partition_ids(
                ids, num_rows, partitioned, places, counts=self._counts, firsts=firsts,
                stream=stream,
            )  # fmt: skip
        return partitioned, places

    def raise_if_wrong(self, name: str, num_rows: int) -> None:
        """Raise for the id that a kernel noted; the stream must have passed it.

        Raises
        ------
        IndexError
            Naming the table, the id and the number of rows.
        """
        wrong = int(self._wrong.cpu_view())
        if wrong != NO_ID:
            self._wrong.cpu_view().fill_(NO_ID)
            raise outside(name, wrong, num_rows)


@cache
def notes_of(device: torch.device, stream: int) -> StreamNotes:
    """Return the notes of a stream, by its CUDA handle; its kernels run one after the other."""
    return StreamNotes(device)
