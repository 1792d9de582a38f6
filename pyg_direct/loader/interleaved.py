"""Make batches ahead of their consumer, in the consumer's own thread.

For stages that only launch work on a GPU. A thread beside the consumer's would fight with it for
Python's lock, which costs both more than the launches; here they stand between two batches, and
what they launch runs while the consumer launches its own. Sampling is a batch ahead of gathering,
so that its sizes are there when the host asks for them.
"""

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from pyg_direct.loader.pipeline import Source, Stages, as_error


class Interleaved(Iterator[Any]):
    """Makes ``depth`` batches ahead of the one in use.

    Parameters
    ----------
    source : iterator
        What batches are made of.
    stages : Stages
        How they are made.
    depth : int
        1 or more. With the batch in use, ``depth + 1`` batches exist at a time, the last of them
        only sampled.

    Notes
    -----
    An error of the source or of a stage is raised at the batch where it came up, with its own
    traceback, and ends the iteration.
    """

    def __init__(self, source: Iterator[Any], stages: Stages, *, depth: int) -> None:
        # Its end may also be an error of a stage; the batches before that come first.
        self._source, self._stages, self._depth = Source(source), stages, depth
        self._started: deque[Any] = deque()
        self._products: deque[Any] = deque()
        self._released: Any = None
        self._finalizer = weakref.finalize(self, stages.close)

    def __next__(self) -> Any:
        if not self._finalizer.alive:
            raise StopIteration
        try:
            # The GPU must be done with the batch before the last: that bounds the host's lead.
            released, self._released = self._released, self._stages.release()
            while self._source.end is None and len(self._products) < self._depth:
                if not self._started:
                    self._start(released)
                self._gather()
                self._start(released)
            if not self._products:
                raise self._source.take_end()
            return self._stages.consume(self._products.popleft())
        except BaseException:
            self.close()
            raise

    def _start(self, released: Any) -> None:
        if self._source.end is not None:
            return
        item = self._source.next()
        if self._source.end is None:
            self._add(self._started, self._stages.start, item, released)

    def _gather(self) -> None:
        if self._started:
            self._add(self._products, self._stages.gather, self._started.popleft())

    def _add(self, batches: deque[Any], stage: Callable[..., Any], *arguments: Any) -> None:
        try:
            batches.append(stage(*arguments))
        except Exception as error:
            self._source.end = as_error(error)

    def close(self) -> None:
        """End the iteration; harmless twice."""
        self._source.close()
        self._started.clear()
        self._products.clear()
        self._finalizer()
