"""End worker processes with the iteration that needs them."""

import gc
import os
from collections.abc import Iterator
from multiprocessing import active_children
from typing import Any

# What was garbage at a fork may be events and graphs of a GPU, whose end in another process than
# their own is the end of that process: a forked one leaves it where it is.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=gc.freeze)


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
