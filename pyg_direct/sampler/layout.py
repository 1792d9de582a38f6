"""One array with all that a batch needs from the host, so that it takes one copy to a GPU.

It holds, in int64: the key of the random numbers; ``totals``, see ``pyg_direct.sampler.hops``; and
for each node type its seeds, in their order, followed on a GPU by the first position of each
distinct seed and the distinct seeds in ascending order.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_direct.sampler.relation import NodeType

IdArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds of one type, shape (num_seeds,) each, on the sampler's device.

    ``first`` and ``unique`` are padded with their last entry, and empty where nobody asks for them.
    """

    node: Tensor
    first: Tensor
    unique: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLayout:
    """Where everything is in the array; batches of one layout differ in values alone.

    Parameters
    ----------
    num_seeds : tuple of (node type, int)
        For each node type of the graph.
    num_hops, num_relations : int
        Of the sampling.
    is_ranked : bool
        Whether distinct seeds are part of it.
    """

    num_seeds: tuple[tuple[NodeType, int], ...]
    num_hops: int
    num_relations: int
    is_ranked: bool

    @property
    def edges_start(self) -> int:
        """Where in ``totals`` the numbers of edges begin."""
        return len(self.num_seeds) * (self.num_hops + 2)

    @property
    def num_totals(self) -> int:
        """Length of ``totals``."""
        return self.edges_start + self.num_relations * self.num_hops

    def places(self) -> dict[NodeType, int]:
        """Return where in ``totals`` the levels of each node type begin."""
        return {kind: i * (self.num_hops + 2) for i, (kind, _) in enumerate(self.num_seeds)}

    def pack(self, key: int, seeds: dict[NodeType, Tensor]) -> Tensor:
        """Return the array of a batch, on the CPU.

        Parameters
        ----------
        key : int
            In ``[0, 2**63)``.
        seeds : dict of int64 tensors
            On the CPU; a type that is missing has none.
        """
        totals = np.zeros(self.num_totals, np.int64)
        parts = [np.array([key]), totals]
        for place, (kind, num_seeds) in zip(self.places().values(), self.num_seeds, strict=True):
            if num_seeds > 0:
                totals[place + 1] = num_seeds
                ids = seeds[kind].numpy()
                parts += [ids, *_rank(ids)] if self.is_ranked else [ids]
        return torch.from_numpy(np.concatenate(parts))

    def unpack(self, words: Tensor) -> tuple[Tensor, Tensor, dict[NodeType, Seeds]]:
        """Return views of the key, the totals and the seeds of each type.

        Parameters
        ----------
        words : int64 tensor
            What ``pack`` returned, on any device.
        """
        start = 1 + self.num_totals
        seeds = {}
        for kind, num_seeds in self.num_seeds:
            ranked = num_seeds if self.is_ranked else 0
            node, first, unique, _ = words[start:].split(
                [num_seeds, ranked, ranked, words.numel() - start - num_seeds - 2 * ranked]
            )
            seeds[kind] = Seeds(node, first, unique)
            start += num_seeds + 2 * ranked
        return words[:1], words[1 : 1 + self.num_totals], seeds


def _rank(ids: IdArray) -> list[IdArray]:
    """Return the first position of each distinct id, and the distinct ids in ascending order."""
    order = ids.argsort()
    ranked = ids[order]
    heads = np.concatenate([[0], np.flatnonzero(ranked[1:] != ranked[:-1]) + 1])
    # The sort leaves open how equal ids are ordered.
    first = np.minimum.reduceat(order, heads)
    places = np.minimum(np.arange(len(ids)), len(heads) - 1)
    return [first[places], ranked[heads[places]]]
