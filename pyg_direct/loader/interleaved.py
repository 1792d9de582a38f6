"""Make batches ahead of their consumer, between two batches of its own thread or while it sleeps.

For stages that only launch work on a GPU; see ``pyg_direct.loader.spare``. What they launch runs
while the consumer launches its own. Sampling is a batch ahead of gathering, or more, so that its
sizes are there when the host asks for them.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pyg_direct.loader.pipeline import Source, Stages, as_error
from pyg_direct.loader.spare import SpareTime
from pyg_direct.sampler.capture_cache import bar_captures

# Of an iteration: kernels are loaded and graphs are captured by then, which is not for a thread.
NUM_OWN_BATCHES = 4


class Interleaved(Iterator[Any]):
    """Makes ``depth`` batches ahead of the one in use.

    Parameters
    ----------
    source : iterator
        What batches are made of; advanced in the consumer's thread.
    stages : Stages
        How they are made.
    depth : int
        1 or more. With the batch in use, at most ``depth + 2`` batches exist at a time.
    lead : int
        Of the batches that are made, so many, ``depth`` at most, are only started.

    Notes
    -----
    An error of the source or of a stage is raised at the batch where it came up, with its own
    traceback, and ends the iteration.
    """

    def __init__(self, source: Iterator[Any], stages: Stages, *, depth: int, lead: int = 1) -> None:
        self._ahead, self._num_products = _Ahead(Source(source), stages, lead), depth + 1 - lead
        self._stages, self._spare = stages, SpareTime(begin=bar_captures)
        self._num_batches = 0
        self._released: Any = None
        self._finalizer = weakref.finalize(self, _close, self._spare, self._ahead)

    def __next__(self) -> Any:
        if not self._finalizer.alive:
            raise StopIteration
        try:
            return self._next()
        except BaseException:
            self.close()
            raise

    def _next(self) -> Any:
        ahead = self._ahead
        # The GPU must be done with the batch before the last: that bounds the host's lead.
        released, self._released = self._released, self._stages.release()
        self._spare.settle()
        while len(ahead.products) < self._num_products and (turn := ahead.make_turn(released)):
            turn()
        batch = self._stages.consume(ahead.take())
        self._num_batches += 1
        if self._num_batches >= NUM_OWN_BATCHES and (turn := ahead.make_turn(self._released)):
            self._spare.offer(turn)
        return batch

    def close(self) -> None:
        """End the iteration; harmless twice."""
        self._finalizer()


class _Ahead:
    """Batches on their way; it knows no iterator, so that dropping one ends it."""

    def __init__(self, source: Source, stages: Stages, lead: int) -> None:
        # Its end may also be an error of a stage; the batches before that come first.
        self._source, self._stages, self._lead = source, stages, lead
        self._started: deque[Any] = deque()
        self.products: deque[Any] = deque()

    def make_turn(self, released: Any) -> Callable[[], None] | None:
        """Return what brings every batch a stage further; None if there are none and will be none.

        The item of the next batch is drawn here.
        """
        item = self._source.next() if self._source.end is None else None
        if self._source.end is None:
            return partial(self._turn, partial(self._stages.start, item, released))
        return self._turn if self._started else None

    def _turn(self, start: Callable[[], Any] | None = None) -> None:
        try:
            if len(self._started) >= self._lead or start is None:
                self.products.append(self._stages.gather(self._started.popleft()))
            if start is not None:
                self._started.append(start())
        except Exception as error:
            self._source.end = as_error(error)

    def take(self) -> Any:
        """Return the next batch, or raise what came instead of it."""
        if not self.products:
            raise self._source.take_end()
        return self.products.popleft()

    def close(self) -> None:
        self._source.close()
        self._started.clear()
        self.products.clear()
        self._stages.close()


def _close(spare: SpareTime, ahead: _Ahead) -> None:
    spare.close()
    ahead.close()
