"""Work that a thread may do while another one sleeps.

Python lets one thread run at a time. Two that both launch work on a GPU hand its lock to and fro at
every operation, which costs both more than the launches. But a thread that trains sleeps for a good
part of a step: ``backward`` runs in threads of torch's own, and so does a wait for the GPU. What is
done just then costs it little: ``backward`` asks for the lock only to free what Python made.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
from numba import njit, types

# Linux has clocks of other threads; elsewhere work is done when it is settled.
CAN_WATCH = sys.platform == "linux"
# Clocks of threads have other numbers.
NOBODY = 0
# Microseconds between two looks at the clock of a thread.
SHORTEST_NAP, LONGEST_NAP = 10, 1000
# Of ``prctl``. Linux lets a thread sleep 50 us longer than it asked for, unless it asks for less.
PR_SET_TIMERSLACK, TIMER_SLACK_NS = 29, 1

_clock_gettime = types.ExternalFunction(
    "clock_gettime", types.int32(types.int32, types.CPointer(types.int64))
)
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def _wait_for_sleep(watched: np.ndarray, reading: np.ndarray) -> None:
    """Return when a thread's clock of CPU time stood still between two looks.

    Parameters
    ----------
    watched : int64 array, shape (2,)
        The clock, or ``NOBODY``; and whether to return now. Others write to it meanwhile.
    reading : int64 array, shape (2,)
        Gets seconds and nanoseconds.
    """
    last, nap = -1, SHORTEST_NAP
    while watched[1] == 0:
        now = -1
        if watched[0] != NOBODY:
            _clock_gettime(watched[0], reading.ctypes)
            now = reading[0] * 1_000_000_000 + reading[1]
            if now == last:
                return
        last = now
        _usleep(nap)
        nap = min(nap + 1, LONGEST_NAP)


class SpareTime:
    """Does work of one thread in another while the first one sleeps, or else in the first one.

    The thread that offers work, and settles it, is the one that is watched. The other one begins
    with the first offer, and knows nothing but the work.

    Parameters
    ----------
    begin : callable, optional
        Called first in the other thread.
    """

    def __init__(self, begin: Callable[[], None] | None = None) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._work: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._watched = np.array([NOBODY, False], np.int64)

    def offer(self, work: Callable[[], None]) -> None:
        """Leave work that may be done from now on; what was offered before must be settled."""
        self._work = work
        if not CAN_WATCH:
            return
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="pyg_direct spare time", daemon=True
            )
            self._thread.start()
        self._watched[0] = time.pthread_getcpuclockid(threading.get_ident())

    def settle(self) -> None:
        """Return when the offered work is done; its errors are raised here."""
        self._watched[0] = NOBODY
        with self._lock:
            work, self._work = self._work, None
            error, self._error = self._error, None
        if error is not None:
            raise error
        if work is not None:
            work()

    def close(self) -> None:
        """Drop what was offered, and end the thread; harmless twice."""
        self._watched[:] = NOBODY, True
        # The collector may run this in any thread.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._work = self._error = None

    def _run(self) -> None:
        if self._begin is not None:
            self._begin()
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS)
        reading = np.zeros(2, np.int64)
        while not self._watched[1]:
            _wait_for_sleep(self._watched, reading)
            with self._lock:
                work, self._work = self._work, None
                if work is None or self._watched[1]:
                    continue
                self._watched[0] = NOBODY
                try:
                    work()
                except BaseException as error:
                    self._error = error
                del work
