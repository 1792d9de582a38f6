"""What the record of an epoch makes of the times that it is given."""

import pytest
import torch
from torch_geometric.data import Data

from pyg_direct import from_data
from pyg_direct.loader.record import MAX_SPANS, NUM_TIMED, TIMED_STEP, EpochRecord
from pyg_direct.loader.stats import GATHER, SAMPLE, TRAIN, GatherCount

EDGES = torch.tensor([[0, 1], [1, 2]])


class _Event:
    """A moment that the GPU has passed, in milliseconds."""

    def __init__(self, at_ms):
        self.at_ms = at_ms

    def elapsed_time(self, later):
        return later.at_ms - self.at_ms

    def query(self):
        return True

    def synchronize(self):
        pass


@pytest.mark.parametrize("add", [EpochRecord.add_passed, EpochRecord.add_events])
@pytest.mark.parametrize("num_batches", [0, 1, NUM_TIMED, NUM_TIMED + 1, 200, 1003])
def test_some_batches_stand_for_others(num_batches, add):
    record = EpochRecord(3)
    record.start(0.0, _Event(0))
    for place in range(num_batches):
        if record.is_due(GATHER):
            add(record, GATHER, _Event(1000 * place), _Event(1000 * place + place % 5))
        record.catch_up()

    timed = range(NUM_TIMED, num_batches, TIMED_STEP)
    expected_ms = sum(place % 5 for place in range(min(num_batches, NUM_TIMED)))
    if timed:
        num_later = num_batches - NUM_TIMED
        expected_ms += sum(place % 5 for place in timed) / len(timed) * num_later
    stats = record.stats()
    assert stats.gather_s == pytest.approx(expected_ms / 1e3)
    assert stats.sample_s == stats.train_s == stats.wait_s == 0
    assert len(stats.spans) == min(MAX_SPANS, min(num_batches, NUM_TIMED) + len(timed))


def test_every_batch_counts_if_the_cpu_measures():
    record = EpochRecord(0)
    record.start(10.0)
    for place in range(1000):
        record.add(SAMPLE, 10.0 + place, 10.0 + place + 0.5)

    stats = record.stats()

    assert stats.sample_s == 500
    assert stats.spans[1].start_s == 1
    assert stats.spans[1].stop_s == 1.5


def test_a_gpu_that_ends_later_than_the_host():
    record = EpochRecord(0)
    record.start(0.0, _Event(5))
    record.stop(_Event(3e12))

    assert record.stats().epoch_s == pytest.approx(3e9)


def test_the_clock_stops_once():
    record = EpochRecord(0)
    record.start(0.0)
    record.stop()
    first = record.stats().epoch_s
    record.stop(_Event(1))

    assert record.stats().epoch_s == first


def test_hot_rows_of_batches_that_did_not_ask_are_counted_in_proportion(device):
    store = from_data(Data(x=torch.rand(20, 3), num_nodes=20, edge_index=EDGES), device)[0]
    store.set_hot(None, "x", torch.arange(5))
    table, ids = store.table(None, "x"), torch.arange(20, device=device)
    record = EpochRecord(0)
    for asks_hits in (True, False, False):
        count = GatherCount(asks_hits=asks_hits)
        count.add(table, ids)
        if device.type == "cuda":
            torch.cuda.synchronize()
        record.add_batch(count)

    stats = record.stats()

    assert stats.num_rows == stats.num_host_rows == 60
    assert stats.num_hot_rows == 15
    assert stats.host_bytes == 45 * 12
    assert stats.hit_share == 0.25


def test_stages_are_timed_apart():
    record = EpochRecord(0)

    due = [record.is_due(GATHER) for _ in range(NUM_TIMED + 2)]

    assert due == [True] * (NUM_TIMED + 1) + [False]
    assert [record.is_due(TRAIN) for _ in range(NUM_TIMED)] == [True] * NUM_TIMED
