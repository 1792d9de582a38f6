"""Adagrad and Adam on the rows that a batch touched, as torch's sparse optimizers do them.

An update is arithmetic on rows alone: it neither knows nor cares where the tables are.

Shape legend: ``N`` distinct rows of a step, ``D`` elements a row.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class SparseUpdate(Protocol):
    """What one step does to rows and to their state."""

    @property
    def initial_state(self) -> tuple[float, ...]:
        """What each state tensor of a row is filled with before its first step."""
        ...

    def __call__(
        self, rows: Tensor, gradient: Tensor, state: list[Tensor], step: int
    ) -> tuple[Tensor, list[Tensor]]:
        """Return new rows and new state.

        Parameters
        ----------
        rows, gradient : float tensors, shape (N, D)
            Of distinct rows; kept as they are.
        state : list of float tensors, shape (N, D)
            One for each of ``initial_state``; kept as they are.
        step : int
            Number of the step, from 1.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseAdagrad:
    """As ``torch.optim.Adagrad`` with a sparse gradient (Duchi et al. 2011).

    Attributes
    ----------
    lr, lr_decay, initial_accumulator_value, eps : float
        As torch has them.
    """

    lr: float = 1e-2
    lr_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    @property
    def initial_state(self) -> tuple[float, ...]:
        # docstring inherited
        return (self.initial_accumulator_value,)

    def __call__(
        self, rows: Tensor, gradient: Tensor, state: list[Tensor], step: int
    ) -> tuple[Tensor, list[Tensor]]:
        # docstring inherited
        total = state[0] + gradient.square()
        rate = self.lr / (1 + (step - 1) * self.lr_decay)
        return rows - rate * gradient / (total.sqrt() + self.eps), [total]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseAdam:
    """As ``torch.optim.SparseAdam``: moments of rows without a gradient stay as they are.

    Attributes
    ----------
    lr, betas, eps : float
        As torch has them (Kingma, Ba 2015).
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    @property
    def initial_state(self) -> tuple[float, ...]:
        # docstring inherited
        return (0.0, 0.0)

    def __call__(
        self, rows: Tensor, gradient: Tensor, state: list[Tensor], step: int
    ) -> tuple[Tensor, list[Tensor]]:
        # docstring inherited
        first_decay, second_decay = self.betas
        first = state[0].lerp(gradient, 1 - first_decay)
        second = state[1].lerp(gradient.square(), 1 - second_decay)
        corrected: float = (1 - second_decay**step) ** 0.5 / (1 - first_decay**step)
        return rows - self.lr * corrected * first / (second.sqrt() + self.eps), [first, second]
