"""Which batches are worth a CUDA graph, and the graphs that there are."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from pyg_direct.sampler.capture import CapturedBatches, Follower
from pyg_direct.sampler.hops import HopSampler
from pyg_direct.sampler.layout import BatchLayout, IdArray
from pyg_direct.sampler.relation import EdgeType

# For each stream. Each keeps the memory of a batch, with bounds for sizes.
MAX_CAPTURED = 2
# Link loaders have a size of their own for almost every batch.
MAX_SEEN = 1000

_this_thread = threading.local()


class CaptureKey(NamedTuple):
    """What batches must share to be repeated by one graph."""

    layout: BatchLayout
    fanouts: tuple[tuple[EdgeType, tuple[int, ...]], ...]
    method: int
    edge_form: int
    stream: int
    follower: Follower | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRun:
    """Batches of one layout, packed for the graphs that repeat them, one on each stream.

    Attributes
    ----------
    key : CaptureKey
        Of all, but for the stream.
    words : int64 array, shape (num_batches, num_words)
        See ``BatchLayout.pack_all``.
    make_sampler : callable
        See ``CapturedBatches``.
    captured : dict
        The graphs that were found, by stream.
    """

    key: CaptureKey
    words: IdArray
    make_sampler: Callable[[], HopSampler]
    captured: dict[int, CapturedBatches] = field(default_factory=dict)


class CaptureCache:
    """Decides which batches are worth a graph, and keeps the graphs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By key without its stream.
        self._num_seen: dict[CaptureKey, int] = {}
        self._captured: dict[CaptureKey, CapturedBatches] = {}

    def find(
        self,
        key: CaptureKey,
        make_sampler: Callable[[], HopSampler],
        device: torch.device,
        words: IdArray,
    ) -> CapturedBatches | None:
        """Return the graph for a key, captured now if batches like it were seen twice before.

        Parameters
        ----------
        key : CaptureKey
            Of a batch. No graph is found for a follower that is not current.
        make_sampler, device, words
            See ``CapturedBatches``.
        """
        if key.follower is not None and not key.follower.is_current():
            return None
        with self._lock:
            if key not in self._captured:
                is_new = self._num_seen.get(key._replace(stream=0), 0) < 2
                if is_new or getattr(_this_thread, "is_barred", False):
                    return None
                self._drop_stale()
                if sum(each.stream == key.stream for each in self._captured) >= MAX_CAPTURED:
                    return None
                self._captured[key] = CapturedBatches(
                    key.layout, make_sampler, device, words, key.follower
                )
            return self._captured[key]

    def _drop_stale(self) -> None:
        for key in [key for key, each in self._captured.items() if not each.is_current]:
            del self._captured[key]

    def note(self, key: CaptureKey) -> None:
        """Remember a batch that was made without a graph, and never waited in between."""
        key = key._replace(stream=0)
        with self._lock:
            if len(self._num_seen) >= MAX_SEEN:
                self._num_seen.clear()
            self._num_seen[key] = self._num_seen.get(key, 0) + 1


def bar_captures() -> None:
    """Let this thread capture nothing: batches that want it are launched kernel by kernel.

    During a capture torch lets no thread draw random numbers on the GPU, so a thread that samples
    beside a model, with its dropout, must not capture.
    """
    _this_thread.is_barred = True
