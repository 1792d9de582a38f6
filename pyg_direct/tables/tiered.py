"""A table in two tiers: every row in host memory, and copies of hot rows where they are wanted.

Shape legend: ``R`` rows of a table, ``H`` hot rows, ``N`` requested rows.
Assumption: whoever writes into the memory of the rows, other than by ``scatter``, says so by
``refresh``.
"""

from typing import Any

import torch
from torch import Tensor

from pyg_direct.kernels.gather import scatter_rows
from pyg_direct.kernels.tiers import gather_tiers, gather_tiers_cpu
from pyg_direct.kernels.walk import GatherLaunch
from pyg_direct.memory import MappedArray
from pyg_direct.memory.streams import current_handle, on_device
from pyg_direct.tables.device import DeviceTable
from pyg_direct.tables.host import HostTable
from pyg_direct.tables.hot import HitCount, Tier, num_hot_rows
from pyg_direct.tables.notes import notes_of
from pyg_direct.tables.plan import MANY_HITS_SHARE, GatherPlan
from pyg_direct.tables.request import Request
from pyg_direct.tables.words import as_bytes, as_words, word_bytes

MAX_HOT_ROWS = 2**31 - 1
# No plan counts on fewer misses than these, nor on nothing but misses.
LEAST_HOST_SHARE, MOST_HOST_SHARE = 1e-2, 0.999


class TieredTable(HostTable):
    """Rows in host memory, some of them with a copy on the device, all read by one launch.

    Parameters
    ----------
    array : MappedArray
        At least one dimension. The table keeps the memory; the caller may close the array.
    device : torch.device
        Where rows appear and hot rows stand. On the CPU hot rows are copies in memory, which pays
        where ``array`` stands on a file.
    name : str
        What error messages call the table.
    max_sms : int, optional
        How many multiprocessors of the GPU a gather may keep busy; all by default.

    Raises
    ------
    HostMappingError
        If CUDA refuses to register the memory.

    Notes
    -----
    No row is hot at first. Hot rows may change at any time between gathers; the rows that come out
    are the same whatever is hot. Where every row is, torch gathers them, on as many
    multiprocessors as it likes. Another process, to which the table is sent, starts without any.
    """

    def __init__(
        self,
        array: MappedArray,
        device: torch.device,
        *,
        name: str = "table",
        max_sms: int | None = None,
    ) -> None:
        super().__init__(array, device, name=name, max_sms=max_sms)
        self._tier: Tier | None = None
        self._counts: Tensor | None = None

    @property
    def num_hot(self) -> int:
        """``H``."""
        return 0 if self._tier is None else self._tier.hot.shape[0]

    def hot_rows(self) -> Tensor:
        """Return the hot rows, shape (H, ...), in order of id; not to be written to."""
        if self._tier is None:
            return torch.empty((0, *self.shape[1:]), dtype=self.dtype, device=self.device)
        return self._tier.hot

    @property
    def hot_bytes(self) -> int:
        """Bytes on the device: of hot rows, and of the table that finds them."""
        return 0 if self._tier is None else self._tier.num_bytes

    def set_budget(
        self, budget_bytes: int, order: Tensor, *, host_share: float | None = None
    ) -> None:
        """Keep as many rows hot as the budget allows; the call waits for the GPU.

        Parameters
        ----------
        budget_bytes : int
            For hot rows and the table of 4 bytes a row that finds them, which is not needed where
            every row is hot.
        order : int32 or int64 tensor, shape (R,) or less
            Ids, the hottest first, each once; on any device.
        host_share : float, optional
            See ``set_hot``.

        Raises
        ------
        ValueError, IndexError
            As ``set_hot``; or if the budget is negative.
        torch.OutOfMemoryError
            As ``set_hot``.
        """
        num_hot = num_hot_rows(budget_bytes, self.num_rows, self.row_bytes)
        self.set_hot(order[:num_hot], host_share=host_share)

    def set_hot(self, ids: Tensor, *, host_share: float | None = None) -> None:
        """Keep copies of these rows on the device, and no others; the call waits for the GPU.

        Parameters
        ----------
        ids : int32 or int64 tensor, shape (H,)
            Each once, in any order, on any device. None at all is fine.
        host_share : float, optional
            Expected share of the rows of a request that are not hot, for plans. By default the
            share of the rows of the table, but at most a half: hot rows are chosen to be hit.

        Raises
        ------
        ValueError
            If an id comes twice, there are ``2**31`` or more, or the table is closed.
        IndexError
            If an id is not in ``[0, R)``.
        torch.OutOfMemoryError
            If the copies do not fit. No row is hot then, and every row is still there.
        """
        self._check_open()
        self.version += 1
        self._tier = None
        ids = self._checked(ids)
        if ids.numel() and self.row_bytes:
            self._tier = self._make_tier(ids, host_share)

    def refresh(self) -> None:
        """Copy the hot rows again, after somebody wrote into the memory of the rows."""
        if self._tier is not None:
            self.set_hot(self._tier.ids, host_share=self._tier.host_share)

    def count_hits(self, is_counting: bool = True) -> None:
        """Begin to count hits, from zero, or stop; nobody waits for the GPU, but kernels are added.

        Parameters
        ----------
        is_counting : bool
            Whether to count.
        """
        self.version += 1
        self._counts = (
            torch.zeros(2, dtype=torch.int64, device=self.device) if is_counting else None
        )

    @property
    def is_repeatable(self) -> bool:  # docstring inherited
        return self._counts is None and super().is_repeatable

    @property
    def hits(self) -> HitCount:
        """What was counted since ``count_hits``; waits for the GPU."""
        num_rows, num_hits = (0, 0) if self._counts is None else self._counts.tolist()
        return HitCount(int(num_rows), int(num_hits))

    def _host_share(self) -> float:
        tier = self._tier
        if tier is None:
            return 1.0
        return 0.0 if tier.slots is None else tier.host_share

    def _checked(self, ids: Tensor) -> Tensor:
        """Return ids in ascending order, on the device."""
        Request(ids).check(self.name, self.num_rows)
        ids = ids.to(self.device, torch.int64).sort().values
        if ids.numel() > MAX_HOT_ROWS or bool((ids[1:] == ids[:-1]).any()):
            raise ValueError(
                f"ids of hot rows of {self.name} are {ids.numel()}, some more than once or too "
                f"many; expected at most {MAX_HOT_ROWS}, each once"
            )
        return ids

    def _make_tier(self, ids: Tensor, host_share: float | None) -> Tier:
        hot = torch.empty((ids.numel(), *self.shape[1:]), dtype=self.dtype, device=self.device)
        super()._gather(Request(ids, is_trusted=True, is_sorted=True), hot)
        slots = None
        if ids.numel() < self.num_rows:
            slots = torch.full((self.num_rows,), -1, dtype=torch.int32, device=self.device)
            slots[ids] = torch.arange(ids.numel(), dtype=torch.int32, device=self.device)
        if host_share is None:
            host_share = min(MANY_HITS_SHARE, 1 - ids.numel() / self.num_rows)
        if self.device.type == "cuda":
            # Whatever stream gathers next finds the copies complete.
            torch.cuda.current_stream(self.device.index).synchronize()
        ignored = torch.zeros(1, dtype=torch.int64, device=self.device)
        host_share = min(MOST_HOST_SHARE, max(LEAST_HOST_SHARE, host_share))
        # The ids are kept for ``refresh`` alone, so not where memory is scarce.
        return Tier(ids.cpu(), DeviceTable(hot, name=self.name), slots, ignored, host_share)

    def _gather_new(self, request: Request) -> Tensor:
        # docstring inherited
        tier = self._tier
        if tier is None or tier.slots is not None:
            return super()._gather_new(request)
        self._count(request)
        return tier.table._gather_new(request)

    def pair_plan(self, request: Request) -> GatherPlan | None:
        # docstring inherited
        is_plain = self._tier is None and self._counts is None
        return super().pair_plan(request) if is_plain else None

    def _gather(self, request: Request, out: Tensor) -> None:
        tier = self._tier
        self._count(request)
        if tier is None or tier.slots is not None:
            super()._gather(request, out)
            return
        tier.table._gather(request, out)

    def _count(self, request: Request) -> None:
        if self._counts is not None:
            self._counts[0] += len(request)
            self._counts[1] += self.num_hits(request)

    def _gather_cpu(self, ids: Tensor, out: Tensor) -> None:
        tier = self._tier
        if tier is None or tier.slots is None:
            super()._gather_cpu(ids, out)
            return
        gather_tiers_cpu(
            self._numpy_bytes(), as_bytes(tier.hot).numpy(), tier.slots.numpy(), ids.numpy(),
            as_bytes(out).numpy(),
        )  # fmt: skip

    def _launch_gather(
        self, ids: Tensor, out: Tensor, launch: GatherLaunch, places: Tensor | None
    ) -> None:
        tier = self._tier
        if tier is None or tier.slots is None:
            super()._launch_gather(ids, out, launch, places)
            return
        gather_tiers(
            self._device_span(), ids, out, hot=tier.hot, slots=tier.slots,
            row_bytes=self.row_bytes, launch=launch, places=places,
        )  # fmt: skip

    def num_hits(self, request: Request) -> int | Tensor:  # docstring inherited
        tier = self._tier
        if tier is None or tier.slots is None:
            return 0 if tier is None else len(request)
        ids = request.ids(self.device).clamp(0, self.num_rows - 1)
        return (tier.slots[ids] >= 0).sum()

    def _scatter(self, index: Tensor, rows: Tensor) -> None:
        super()._scatter(index, rows)
        tier = self._tier
        if tier is None:
            return
        slots = index if tier.slots is None else tier.slots[index]
        if self.device.type == "cuda":
            with on_device(self.device):
                self._scatter_hot_cuda(tier, slots, rows)
            return
        places = (slots >= 0).nonzero().view(-1)
        size = word_bytes(self.row_bytes, tier.hot.data_ptr(), rows.data_ptr())
        hot, words = as_words(tier.hot, size), as_words(rows, size)
        hot.index_copy_(0, slots[places].long(), words[places])

    def _scatter_hot_cuda(self, tier: Tier, slots: Tensor, rows: Tensor) -> None:
        stream = current_handle()
        plan = self._plan(slots.numel(), LEAST_HOST_SHARE)
        launch = notes_of(self.device, stream).launch(plan, stream)
        # The kernel leaves out rows without a slot, so nobody waits to count them; that it notes
        # such "ids" is of no interest.
        launch = launch._replace(wrong=tier.ignored)
        scatter_rows(tier.hot, slots, rows, row_bytes=self.row_bytes, launch=launch)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_tier": None, "_counts": None}

    def close(self) -> None:  # docstring inherited
        self._tier = self._counts = None
        super().close()
