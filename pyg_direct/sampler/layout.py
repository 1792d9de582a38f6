"""One array with all that a batch needs from the host, so that it takes one copy to a GPU.

It holds, in int64: the key of the random numbers; ``totals``, see ``pyg_direct.sampler.hops``; and
for each node type its seeds, in their order, followed on a GPU by the first position of each
distinct seed and the distinct seeds in ascending order; and whatever else is to come along.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
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


class BatchLayout(NamedTuple):
    """Where everything is in the array; batches of one layout differ in values alone.

    Parameters
    ----------
    num_seeds : tuple of (node type, int)
        For each node type of the graph.
    num_hops, num_relations : int
        Of the sampling.
    is_ranked : bool
        Whether distinct seeds are part of it.
    num_carried : int, optional
        Numbers that come along; None where there is nothing to carry.
    """

    num_seeds: tuple[tuple[NodeType, int], ...]
    num_hops: int
    num_relations: int
    is_ranked: bool
    num_carried: int | None = None

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

    @property
    def num_words(self) -> int:
        """Length of the array."""
        copies = 3 if self.is_ranked else 1
        num_seeds = sum(size for _, size in self.num_seeds)
        return 1 + self.num_totals + copies * num_seeds + (self.num_carried or 0)

    def pack(
        self,
        key: int,
        seeds: dict[NodeType, Tensor],
        carried: Tensor | None = None,
    ) -> Tensor:
        """Return the array of one batch, on the CPU, from what ``pack_all`` takes of many.

        Parameters
        ----------
        key : int
            In ``[0, 2**63)``.
        seeds : dict of int64 tensors
            On the CPU.
        carried : integer tensor, shape (num_carried,), optional
            On any device.
        """
        words = self.pack_all(
            np.array([key], np.int64),
            {kind: ids.numpy()[None] for kind, ids in seeds.items()},
            None if carried is None else carried.detach().cpu().numpy()[None],
        )
        return torch.from_numpy(words[0])

    def pack_all(
        self, keys: IdArray, seeds: dict[NodeType, IdArray], carried: IdArray | None = None
    ) -> IdArray:
        """Return the arrays of several batches, a row for each.

        Parameters
        ----------
        keys : int64 array, shape (num_batches,)
            Of the random numbers.
        seeds : dict of int64 arrays, shape (num_batches, number of seeds) each
            A type that is missing has none.
        carried : integer array, shape (num_batches, num_carried), optional
            What comes along.
        """
        words = np.zeros((len(keys), self.num_words), np.int64)
        words[:, 0], start = keys, 1 + self.num_totals
        for place, (kind, size) in zip(self.places().values(), self.num_seeds, strict=True):
            if size > 0:
                words[:, 1 + place + 1] = size
                ids, start = words[:, start : start + size], start + size
                ids[:] = seeds[kind]
                if self.is_ranked:
                    middle, stop = start + size, start + 2 * size
                    _rank(ids, words[:, start:middle], words[:, middle:stop])
                    start = stop
        if carried is not None:
            words[:, start:] = carried
        return words

    def unpack(self, words: Tensor) -> tuple[Tensor, Tensor, dict[NodeType, Seeds], Tensor]:
        """Return views of the key, the totals, the seeds of each type, and what was carried.

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
        return words[:1], words[1 : 1 + self.num_totals], seeds, words[start:]


def _rank(ids: IdArray, first: IdArray, unique: IdArray) -> None:
    """Write the first position of each distinct id of a row, and these ids in ascending order."""
    # Positions in the low bits: no memory holds so many nodes that an id needs those.
    size = ids.shape[1]
    bits = size.bit_length()
    unique[:] = ids << bits | np.arange(size)
    # NumPy sorts whole vectors at once, several times as fast as a compiled loop would.
    unique.sort(axis=1)
    _part_all(unique, bits, first)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _part_all(keys: IdArray, bits: int, first: IdArray) -> None:
    for row in range(len(keys)):
        _part(keys[row], bits, first[row])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _part(keys: IdArray, bits: int, first: IdArray) -> None:
    """Replace sorted keys by their distinct ids, and write the position of the first of each."""
    size, last = 0, -1
    for key in keys:
        if key >> bits != last:
            last = key >> bits
            first[size] = key & ((1 << bits) - 1)
            keys[size] = last
            size += 1
    first[size:], keys[size:] = first[size - 1], last
