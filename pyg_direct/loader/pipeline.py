"""Make batches ahead of their consumer, in a thread, a bounded number of them.

For stages that work on the CPU, whose kernels leave Python's lock to the consumer; see
``pyg_direct.loader.interleaved`` for those that do not. Whatever may draw random numbers or be a
user's own iteration - the order of the seeds - runs in the consumer's thread, so that a run repeats
whatever the depth.
"""

import threading
import weakref
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any, Protocol

from pyg_direct.sampler.capture_cache import bar_captures


class Stages(Protocol):
    """How a batch comes to be."""

    def release(self) -> Any:
        """Tell that the consumer is done with the last batch; returns what ``start`` waits for.

        Called in the consumer's thread, before each batch.
        """

    def start(self, item: Any, released: Any) -> Any:
        """Begin to sample; in the thread of the pipeline, if there is one."""

    def gather(self, started: Any) -> Any:
        """End sampling, and gather; in the same thread, in the order of ``start``."""

    def consume(self, product: Any) -> Any:
        """Hand over a product as a batch; in the consumer's thread."""

    def close(self) -> None:
        """Let go of what the epoch held; harmless twice."""


def as_error(error: BaseException) -> Any:
    """Return an error of a stage; ``StopIteration`` would end the consumer's loop unseen."""
    if not isinstance(error, StopIteration):
        return error
    wrong = RuntimeError("a sampler, or a function of the user's, raised StopIteration")
    wrong.__cause__ = error
    return wrong


class Source:
    """What batches are made of, advanced until something ends it.

    Parameters
    ----------
    items : iterator
        Advanced in the thread that calls.

    Attributes
    ----------
    end : Exception or None
        Why no more batches are begun: ``StopIteration``, or an error of the source or of a stage.
    """

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self.end: Exception | None = None

    def next(self) -> Any:
        """Return the next item; None if there is none, which ``end`` tells."""
        try:
            return next(self._items)
        except StopIteration:
            # Not the one that came, whose traceback would keep the consumer's iterator.
            self.end = StopIteration()
        except Exception as error:
            self.end = error
        return None

    def take_end(self) -> Exception:
        """Return the end to raise, and keep none that its own traceback leads to."""
        end, self.end = self.end or StopIteration(), StopIteration()
        return end

    def close(self) -> None:
        """End it; harmless twice."""
        self._items, self.end = iter(()), StopIteration()


class Synchronous(Iterator[Any]):
    """Makes each batch when it is asked for.

    Parameters
    ----------
    source : iterator
        What batches are made of.
    stages : Stages
        How they are made.
    """

    def __init__(self, source: Iterator[Any], stages: Stages) -> None:
        self._source, self._stages = source, stages
        self._finalizer = weakref.finalize(self, stages.close)

    def __next__(self) -> Any:
        if not self._finalizer.alive:
            raise StopIteration
        try:
            released = self._stages.release()
            item = next(self._source)
            try:
                product = self._stages.gather(self._stages.start(item, released))
            except StopIteration as error:
                raise as_error(error) from error
            return self._stages.consume(product)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the iteration; harmless twice."""
        self._source = iter(())
        self._finalizer()


class Pipeline(Iterator[Any]):
    """Makes ``depth`` batches ahead of the one in use.

    Parameters
    ----------
    source : iterator
        What batches are made of; advanced in the consumer's thread.
    stages : Stages
        How they are made.
    depth : int
        1 or more. With the batch in use, ``depth + 1`` batches exist at a time.

    Notes
    -----
    An error of the source or of a stage is raised in the consumer at the batch where it came up,
    with its own traceback, and ends the iteration. The thread ends after the last batch of the
    source, with ``close``, or with the iterator itself, after the batch that it is making.
    """

    def __init__(self, source: Iterator[Any], stages: Stages, *, depth: int) -> None:
        self._source, self._stages, self._depth = Source(source), stages, depth
        self._num_pending = 0
        self._lane = _Lane(stages)
        self._finalizer = weakref.finalize(self, _close, self._lane, stages)

    def __next__(self) -> Any:
        if not self._finalizer.alive:
            raise StopIteration
        try:
            released = self._stages.release()
            while self._source.end is None and self._num_pending <= self._depth:
                self._request(released)
            if self._num_pending == 0:
                raise self._source.take_end()
            self._num_pending -= 1
            return self._stages.consume(self._lane.take())
        except BaseException:
            self.close()
            raise

    def _request(self, released: Any) -> None:
        item = self._source.next()
        if self._source.end is not None:
            self._lane.finish()
            return
        self._lane.request(item, released)
        self._num_pending += 1

    def close(self) -> None:
        """End the iteration and its thread; harmless twice."""
        self._source.close()
        self._finalizer()


class _Lane:
    """A thread and its two queues; it knows no iterator, so that dropping one ends it."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._requests: SimpleQueue[tuple[Any, Any] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="pyg_direct pipeline", daemon=True)
        self._thread.start()

    def request(self, item: Any, released: Any) -> None:
        self._requests.put((item, released))

    def finish(self) -> None:
        """Let the thread end after what was requested, whoever still knows this lane."""
        self._requests.put(None)

    def take(self) -> Any:
        product, error = self._results.get()
        try:
            if error is not None:
                raise error
            return product
        finally:
            del error

    def _run(self) -> None:
        # A sampler that somebody made of ours may work on the GPU.
        bar_captures()
        while (request := self._requests.get()) is not None:
            if not self._is_closed:
                self._results.put(self._answer(*request))
            del request

    def _answer(self, item: Any, released: Any) -> tuple[Any, BaseException | None]:
        try:
            return self._stages.gather(self._stages.start(item, released)), None
        except BaseException as error:
            return None, as_error(error)

    def close(self) -> None:
        self._is_closed = True
        self.finish()
        # The collector may run this in any thread.
        if self._thread is not threading.current_thread():
            self._thread.join()
        # Errors that nobody took lead back here through their tracebacks, and to the loader.
        while not self._results.empty():
            self._results.get()


def _close(lane: _Lane, stages: Stages) -> None:
    lane.close()
    stages.close()
