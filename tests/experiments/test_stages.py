import time

import pytest

from experiments.stages import StageClock


def test_stage_clock_adds_up_seconds(device):
    clock = StageClock(device)

    for _ in range(2):
        with clock.stage("sleep"):
            time.sleep(0.01)

    assert 0.02 <= clock.seconds["sleep"] < 1


def test_stage_clock_lets_errors_through(device):
    clock = StageClock(device)

    with pytest.raises(KeyError), clock.stage("broken"):
        raise KeyError
