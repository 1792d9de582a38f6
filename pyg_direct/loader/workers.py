"""Worker processes: what they do not touch of what they inherit, and how they end."""

import gc
import os
import threading
from collections.abc import Iterator
from multiprocessing import active_children
from typing import Any

_this_thread = threading.local()


def _before_fork() -> None:
    _this_thread.was_collecting = gc.isenabled()
    gc.disable()


def _after_fork() -> None:
    if _this_thread.was_collecting:
        gc.enable()


def _after_fork_in_child() -> None:
    # What is garbage by now may be events and graphs of a GPU. They end a process that is not
    # their own when it collects them, so it leaves them where they are.
    gc.freeze()
    _after_fork()


# Collecting begins again behind all others' handlers, which is why it stops before.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
    )


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
