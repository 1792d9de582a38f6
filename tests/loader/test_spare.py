import threading
import time

import numpy as np
import pytest

from pyg_direct.loader import spare
from pyg_direct.loader.spare import CAN_WATCH, NOBODY, SpareTime

pytestmark = pytest.mark.skipif(not CAN_WATCH, reason="needs clocks of other threads")


@pytest.fixture
def time_to_spare():
    time_to_spare = SpareTime()
    yield time_to_spare
    time_to_spare.close()


@pytest.fixture
def never(monkeypatch):
    """Let nobody ever be seen asleep."""

    def wait(watched, reading):
        while not watched[1]:
            time.sleep(1e-3)

    monkeypatch.setattr(spare, "_wait_for_sleep", wait)


class TestWaitForSleep:
    def _start(self, clock):
        watched = np.array([clock, False])
        thread = threading.Thread(
            target=spare._wait_for_sleep, args=(watched, np.zeros(2, np.int64)), daemon=True
        )
        thread.start()
        return watched, thread

    # A clock that always runs is one of a thread that never sleeps.
    @pytest.mark.parametrize("clock", [NOBODY, time.CLOCK_MONOTONIC])
    def test_waits_for_nobody_and_for_who_is_awake(self, clock):
        watched, thread = self._start(clock)

        thread.join(timeout=0.2)
        assert thread.is_alive()
        watched[1] = True
        thread.join(timeout=60)
        assert not thread.is_alive()

    def test_sees_a_thread_sleep(self):
        _, thread = self._start(time.pthread_getcpuclockid(threading.get_ident()))

        thread.join(timeout=60)

        assert not thread.is_alive()


class TestSpareTime:
    def test_work_is_done_while_the_one_who_offers_it_sleeps(self, time_to_spare):
        done_in = []
        for _ in range(3):
            done = threading.Event()

            def work(done=done):
                done_in.append(threading.current_thread())
                done.set()

            time_to_spare.offer(work)
            assert done.wait(timeout=60)
            time_to_spare.settle()

        assert len(done_in) == 3
        assert len({*done_in}) == 1
        assert threading.current_thread() not in done_in

    def test_what_is_left_is_done_when_it_is_settled(self, never, time_to_spare):
        done_in = []
        time_to_spare.offer(lambda: done_in.append(threading.current_thread()))

        time_to_spare.settle()
        time_to_spare.settle()

        assert done_in == [threading.current_thread()]

    def test_waits_for_work_that_has_begun(self, time_to_spare):
        has_begun, may_end, done = threading.Event(), threading.Event(), []

        def work():
            has_begun.set()
            assert may_end.wait(timeout=60)
            done.append(True)

        time_to_spare.offer(work)
        assert has_begun.wait(timeout=60)
        threading.Timer(0.05, may_end.set).start()
        time_to_spare.settle()

        assert done == [True]

    @pytest.mark.parametrize("error", [KeyError, SystemExit])
    def test_errors_of_either_thread_are_raised_once(self, time_to_spare, error):
        has_begun = threading.Event()

        def work():
            has_begun.set()
            raise error("work")

        time_to_spare.offer(work)
        assert has_begun.wait(timeout=60)

        with pytest.raises(error, match="work"):
            time_to_spare.settle()
        time_to_spare.settle()

    def test_errors_of_what_is_left_are_raised(self, never, time_to_spare):
        time_to_spare.offer(lambda: [].pop())

        with pytest.raises(IndexError):
            time_to_spare.settle()

    def test_close_drops_work_and_ends_the_thread(self, never, time_to_spare):
        done = []
        time_to_spare.offer(lambda: done.append(True))
        thread = time_to_spare._thread

        time_to_spare.close()
        time_to_spare.close()
        time_to_spare.settle()

        assert not thread.is_alive()
        assert not done
