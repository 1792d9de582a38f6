"""Trainable rows in host memory, with the state of their optimizer beside them.

Shape legend: ``R`` rows, ``D`` elements a row, ``N`` ids of a batch.
"""

from typing import Any

import torch
from torch import Tensor

from pyg_direct.memory import MappedArray
from pyg_direct.tables import Request, TieredTable
from pyg_direct.tensors.operations import has_gpu
from pyg_direct.tensors.sparse_updates import SparseAdagrad, SparseUpdate


class DirectEmbedding(torch.nn.Module):
    """An embedding larger than device memory, trained row by row.

    Rows of a batch are gathered when it is looked up, and updated by ``step``, with their gradient
    and their state, on the device; all else stays in host memory.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        ``R`` and ``D``.
    update : SparseUpdate, optional
        ``SparseAdagrad()`` by default, or ``SparseAdam(...)``.
    device : torch.device or str, optional
        Where rows appear and are updated. None: the current GPU if there is one, else the CPU.
    weight : float tensor, shape (R, D), optional
        Initial rows, on the CPU; used in place and updated there. By default normal numbers, drawn
        by torch's generator, as ``torch.nn.Embedding`` does.

    Raises
    ------
    ValueError
        If ``weight`` has another shape, or holds no floating-point numbers.

    Notes
    -----
    Give ``parameters()`` of the other layers to an optimizer of torch; this one has none. Nothing
    reads rows between a backward pass and ``step``, or on another stream, without waiting.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        update: SparseUpdate | None = None,
        device: torch.device | str | None = None,
        weight: Tensor | None = None,
    ) -> None:
        super().__init__()
        shape = (num_embeddings, embedding_dim)
        if weight is None:
            weight = MappedArray.empty(shape, torch.get_default_dtype()).cpu_view().normal_()
        if tuple(weight.shape) != shape or not weight.is_floating_point():
            raise ValueError(
                f"weight is {weight.dtype} of shape {tuple(weight.shape)}, expected floating-point "
                f"numbers of shape {shape}"
            )
        self.update: SparseUpdate = SparseAdagrad() if update is None else update
        self.num_steps = 0
        self._device = _resolve(device)
        states = []
        for value in self.update.initial_state:
            state = MappedArray.empty(shape, weight.dtype)
            if value:
                state.cpu_view().fill_(value)
            states.append(state)
        arrays = [MappedArray(weight), *states]
        self._tables = [TieredTable(array, self._device, name="the embedding") for array in arrays]
        self._pending: list[tuple[Tensor, Tensor]] = []

    @property
    def weight(self) -> Tensor:
        """All rows, on the CPU, shape (R, D); waits for the GPU. Not to be written to."""
        self._wait()
        return self._tables[0].rows()

    def set_budget(self, budget_bytes: int, order: Tensor) -> None:
        """Keep the hottest rows and their state on the device, within a budget.

        Parameters
        ----------
        budget_bytes : int
            For rows and state together.
        order : int64 tensor
            Ids, the hottest first.
        """
        for table in self._tables:
            table.set_budget(budget_bytes // len(self._tables), order)

    def forward(self, index: Tensor) -> Tensor:
        """Return the rows with the given ids.

        Parameters
        ----------
        index : int32 or int64 tensor, any shape
            Ids in ``[0, R)``, on any device.

        Returns
        -------
        float tensor, shape (*index.shape, D)
            On the device. Its gradient is kept for ``step``.

        Raises
        ------
        IndexError
            If an id is not in ``[0, R)``.
        """
        flat = index.reshape(-1).to(self._device)
        ids, places = torch.unique(flat, return_inverse=True)
        rows = self._tables[0].gather(Request(ids, is_sorted=True))
        if torch.is_grad_enabled() and self.training:
            rows.requires_grad_()
            self._pending.append((ids, rows))
        return rows[places].view(*index.shape, rows.shape[1])

    @torch.no_grad()
    def step(self) -> None:
        """Update every row that got a gradient since the last step; does not wait for the GPU."""
        pending = [(ids, rows.grad) for ids, rows in self._pending if rows.grad is not None]
        self._pending.clear()
        if not pending:
            return
        self.num_steps += 1
        ids, gradient = _sum_by_id(pending)
        request = Request(ids, is_trusted=True, is_sorted=True, is_distinct=True)
        rows, *state = [table.gather(request) for table in self._tables]
        rows, state = self.update(rows, gradient, state, self.num_steps)
        for table, changed in zip(self._tables, [rows, *state], strict=True):
            table.scatter(request, changed)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget what was looked up since the last step."""
        super().zero_grad(set_to_none)
        self._pending.clear()

    def get_extra_state(self) -> dict[str, Any]:
        """Return rows, state and number of steps, without a copy, for ``state_dict``."""
        self._wait()
        return {"tables": [each.rows() for each in self._tables], "num_steps": self.num_steps}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Copy rows and state of ``load_state_dict`` over these.

        Raises
        ------
        ValueError
            If there are as many tables as another update needs.
        """
        if len(state["tables"]) != len(self._tables):
            raise ValueError(
                f"state has {len(state['tables'])} tables, expected {len(self._tables)} for "
                f"{self.update}; load it with the update that it was saved with"
            )
        self._wait()
        for table, rows in zip(self._tables, state["tables"], strict=True):
            table.rows().copy_(rows)
            table.refresh()
        self.num_steps = state["num_steps"]

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _sum_by_id(pending: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Add up what several lookups say about one row."""
    if len(pending) == 1:
        return pending[0]
    ids, places = torch.unique(torch.cat([ids for ids, _ in pending]), return_inverse=True)
    gradients = torch.cat([gradient for _, gradient in pending])
    total = gradients.new_zeros(ids.numel(), gradients.shape[1])
    return ids, total.index_add_(0, places, gradients)


def _resolve(device: torch.device | str | None) -> torch.device:
    device = torch.device(("cuda" if has_gpu() else "cpu") if device is None else device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
