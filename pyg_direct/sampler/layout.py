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
        """Return the array of a batch, on the CPU.

        Parameters
        ----------
        key : int
            In ``[0, 2**63)``.
        seeds : dict of int64 tensors
            On the CPU; a type that is missing has none.
        carried : integer tensor, shape (num_carried,), optional
            What comes along.
        """
        out = torch.empty(self.num_words, dtype=torch.int64)
        words: IdArray = out.numpy()
        start = 1 + self.num_totals
        words[0], words[1:start] = key, 0
        for place, (kind, size) in zip(self.places().values(), self.num_seeds, strict=True):
            if size > 0:
                words[1 + place + 1] = size
                stop = start + (3 if self.is_ranked else 1) * size
                words[start : start + size] = ids = seeds[kind].numpy()
                if self.is_ranked:
                    _rank(ids, words[start + size : stop])
                start = stop
        if carried is not None:
            words[start:] = carried.detach().cpu().numpy()
        return out

    def pack_all(self, keys: IdArray, ids: IdArray, carried: IdArray) -> IdArray:
        """Return the arrays of several batches, a row for each.

        Parameters
        ----------
        keys : int64 array, shape (num_batches,)
        ids, carried : int64 array, shape (num_batches, num_seeds)
            Seeds of the one type that has any, and as many numbers that come along.
        """
        words = np.zeros((len(keys), self.num_words), np.int64)
        size, start = ids.shape[1], 1 + self.num_totals
        (place,) = [
            place for place, (_, each) in zip(self.places().values(), self.num_seeds, strict=True)
            if each
        ]  # fmt: skip
        words[:, 0], words[:, 1 + place + 1] = keys, size
        parts = [words[:, start + i * size : start + (i + 1) * size] for i in range(4)]
        parts[0][:], parts[3][:] = ids, carried
        bits = size.bit_length()
        parts[2][:] = ids << bits | np.arange(size)
        parts[2].sort(axis=1)
        _part_all(parts[2], bits, parts[1])
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


def _rank(ids: IdArray, out: IdArray) -> None:
    """Write the first position of each distinct id, then the distinct ids in ascending order."""
    first, unique = out[: len(ids)], out[len(ids) :]
    # Positions in the low bits: no memory holds so many nodes that an id needs those.
    bits = len(ids).bit_length()
    _join(ids, bits, unique)
    # NumPy sorts whole vectors at once, several times as fast as a compiled loop would.
    unique.sort()
    _part(unique, bits, first)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _join(ids: IdArray, bits: int, keys: IdArray) -> None:
    """Write each id with its position in the low bits."""
    for place in range(len(ids)):
        keys[place] = ids[place] << bits | place


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
