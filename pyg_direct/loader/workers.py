"""End worker processes with the iteration that needs them."""

from collections.abc import Iterator
from multiprocessing import active_children
from typing import Any


def ending(outputs: Any) -> Iterator[Any]:
    """End torch's workers with the iteration; an error's traceback would keep them otherwise."""
    try:
        yield from outputs
    finally:
        end_workers(outputs)


def end_workers(outputs: Any) -> None:
    """End torch's workers; it gives up on those that are slow to go."""
    try:
        outputs.__del__()
    finally:
        # A forked worker inherits iterators, whose workers are not its own.
        for worker in {*getattr(outputs, "_workers", ())} & {*active_children()}:
            worker.kill()
            worker.join()
