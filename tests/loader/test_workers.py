"""Loaders with worker processes, and loaders that travel between processes."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch_geometric.data import HeteroData
from torch_geometric.sampler import NodeSamplerInput

from pyg_direct import DirectNeighborSampler, LinkNeighborLoader, NeighborLoader, from_data
from pyg_direct.loader.numbering import (
    Epochs,
    NumberedBatches,
    NumberedIndex,
    Positions,
    _take,
)
from tests.loader.graphs import assert_same_batches, make_data, make_hetero_data


def _options(data):
    nodes = torch.arange(40)
    input_nodes = ("paper", nodes) if isinstance(data, HeteroData) else nodes
    return {"input_nodes": input_nodes, "batch_size": 7, "seed": 5}


def _processes():
    return multiprocessing.active_children()


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (make_data, {}),
        (make_data, {"persistent_workers": True}),
        (make_data, {"filter_per_worker": True}),
        (make_data, {"filter_per_worker": True, "persistent_workers": True}),
        (make_hetero_data, {}),
    ],
    ids=["fork", "persistent", "gather in workers", "gather, persistent", "heterogeneous"],
)
def test_workers_give_the_same_batches(device, make, options, depth):
    if device.type == "cuda" and "filter_per_worker" in options:
        pytest.skip("refused, as another test says")
    data = make()
    stores = from_data(data, device)
    here = NeighborLoader(stores, [4, 3], depth=0, **_options(data))
    workers = NeighborLoader(
        stores, [4, 3], num_workers=2, depth=depth, **_options(data), **options
    )

    gc.disable()
    try:
        for _ in range(2):
            assert_same_batches(here, workers)
        del workers
        assert not _processes()
    finally:
        gc.enable()


def _note_start(worker_id):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("context", ["forkserver", "spawn"])
def test_workers_that_are_sent_the_tables(context):
    stores = from_data(make_data(), "cpu")
    options = {"batch_size": 30, "seed": 5}
    here = NeighborLoader(stores, [4, 3], **options)
    workers = NeighborLoader(
        stores, [4, 3], num_workers=2, filter_per_worker=True, multiprocessing_context=context,
        worker_init_fn=_note_start, **options,
    )  # fmt: skip

    assert_same_batches(here, workers)


def _check_threads(worker_id):
    if torch.get_num_threads() != 2:
        raise RuntimeError(f"a worker has {torch.get_num_threads()} threads")


@pytest.mark.slow
@pytest.mark.skipif(torch.get_num_threads() < 2, reason="PyG gives a worker no more than we have")
def test_pygs_multithreading_of_workers():
    stores = from_data(make_data(), "cpu")
    here = NeighborLoader(stores, [4, 3], batch_size=30, seed=5)
    workers = NeighborLoader(
        stores, [4, 3], batch_size=30, seed=5, num_workers=1, worker_init_fn=_check_threads
    )
    torch.multiprocessing.set_start_method("spawn", force=True)
    try:
        with workers.enable_multithreading(2):
            assert_same_batches(here, workers)
    finally:
        torch.multiprocessing.set_start_method(None, force=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "context"), [(NeighborLoader, "forkserver"), (LinkNeighborLoader, "spawn")]
)
def test_workers_of_other_start_methods(device, cls, context):
    stores = from_data(make_data(), device)
    options = {"batch_size": 30, "seed": 5}
    here = cls(stores, [4, 3], **options)
    workers = cls(stores, [4, 3], num_workers=1, multiprocessing_context=context, **options)

    assert_same_batches(here, workers)


def test_workers_get_no_table():
    stores = from_data(make_data(), "cpu")
    loader = NeighborLoader(stores, [4], num_workers=1)
    stores[0][None, "large", None] = torch.zeros(60, 100_000)

    assert len(pickle.dumps(loader.collate_fn)) < 100_000


def test_an_error_in_a_worker_comes_to_the_loop_and_leaves_no_process(device):
    stores = from_data(make_data(), device)
    sampler = _Failing(stores, [4, 3], device="cpu")
    loader = NeighborLoader(stores, [4], neighbor_sampler=sampler, num_workers=2, depth=2)

    with pytest.raises(ArithmeticError, match="in a worker"):
        list(loader)

    assert not _processes()


class _Failing(DirectNeighborSampler):
    def sample_from_nodes(self, inputs, **options):
        raise ArithmeticError("in a worker")


def test_leaving_the_loop_early_leaves_no_process(device):
    loader = NeighborLoader(from_data(make_data(), device), [4], num_workers=2)

    next(iter(loader))

    assert not _processes()


class _Left:
    """Garbage, as it is in a cycle; ends a process that is not its own, as an event would."""

    def __init__(self):
        self.itself, self.process = self, os.getpid()

    def __del__(self):
        if os.getpid() != self.process:
            os._exit(7)


def _collect(worker_id):
    gc.collect()


def test_workers_leave_alone_what_was_garbage_before(device):
    loader = NeighborLoader(
        from_data(make_data(), device), [4], num_workers=1, worker_init_fn=_collect
    )
    gc.disable()
    try:
        _Left()
        assert next(iter(loader)).batch_size == 1
    finally:
        gc.enable()


FORK = """
import gc, os, weakref
def allocate():
    gc.set_threshold(1)
    [[] for _ in range(99)]
os.register_at_fork(after_in_child=allocate)
from tests.loader.test_workers import _Left
gc.collect()
left = weakref.ref(_Left())
child = os.fork()
if child == 0:
    os._exit(0 if gc.isenabled() else 1)
assert left() is not None and gc.isenabled()
assert os.waitpid(child, 0)[1] == 0, "the child collected"
"""


@pytest.mark.slow
def test_nothing_is_collected_while_others_handle_a_fork():
    subprocess.run([sys.executable, "-c", FORK], check=True)


@pytest.mark.parametrize(
    "options",
    [{}, {"persistent_workers": True}, {"filter_per_worker": True}, {"depth": 2}],
    ids=str,
)
def test_close_ends_the_workers_of_an_iterator_that_somebody_keeps(options):
    loader = NeighborLoader(from_data(make_data(), "cpu"), [4], num_workers=2, **options)
    batches = iter(loader)
    next(batches)

    loader.close()

    assert not _processes()
    assert next(iter(loader)).batch_size == 1
    loader.close()


@pytest.mark.parametrize("cls", [NeighborLoader, LinkNeighborLoader])
def test_loaders_pickle(device, cls):
    loader = cls(from_data(make_data(), device), [4, 3], batch_size=30, seed=5)
    list(loader)

    again = pickle.loads(pickle.dumps(loader))

    assert again.epoch == loader.epoch == 1
    assert again.stats() == []
    assert_same_batches(loader, again)


def test_shared_tables_are_not_copied_when_a_loader_is_sent():
    data = make_data()
    data.x.share_memory_()
    loader = NeighborLoader(from_data(data, "cpu"), [2], seed=1)

    again = pickle.loads(ForkingPickler.dumps(loader))
    again.data[0].table(None, "x").tensor()[3] = 7

    assert data.x[3].eq(7).all()


class TestNumberedIndex:
    def test_keeps_its_number_in_a_pickle(self):
        index = pickle.loads(pickle.dumps(NumberedIndex(torch.tensor([3, 1]), 5)))

        assert index.positions == [3, 1]
        assert index.number == 5

    def test_batches_are_numbered_by_epoch_and_place(self):
        epochs = Epochs()
        batches = NumberedBatches([[1], [2, 3]], epochs)
        epochs.begin()

        assert [index.number for index in batches] == [0, 1]
        epochs.next = 3
        epochs.begin()
        assert [index.number for index in batches] == [3 << 32, (3 << 32) + 1]
        assert len(batches) == 2

    @pytest.mark.parametrize("is_seeded", [False, True])
    @pytest.mark.parametrize(
        "options", [{}, {"num_samples": 25}, {"replacement": True}, None], ids=str
    )
    def test_the_order_is_that_of_torchs_samplers(self, options, is_seeded):
        def positions(as_lists):
            torch.manual_seed(3)
            generator = torch.Generator().manual_seed(4) if is_seeded else None
            order = (
                SequentialSampler(range(10))
                if options is None
                else RandomSampler(range(10), generator=generator, **options)
            )
            batches = BatchSampler(order, batch_size=4, drop_last=False)
            if as_lists:
                return list(batches), torch.rand(1)
            numbered = [index.positions.tolist() for index in NumberedBatches(batches, Epochs())]
            return numbered, torch.rand(1)

        assert positions(False) == positions(True)

    @pytest.mark.parametrize("options", [{}, {"input_id": True}, {"time": True}], ids=str)
    @pytest.mark.parametrize(
        "index", [torch.tensor([3, 1, 3]), [3, 1], torch.tensor([], dtype=torch.int64)], ids=str
    )
    def test_inputs_are_taken_as_pyg_takes_them(self, options, index):
        columns = {name: torch.arange(5) * 7 for name in options}
        inputs = NodeSamplerInput(
            columns.get("input_id"), torch.arange(5) * 3, columns.get("time"), "paper"
        )

        taken, expected = _take(inputs, index), inputs[index]

        assert taken.input_type == "paper"
        for name in ("input_id", "node", "time"):
            ours, theirs = getattr(taken, name), getattr(expected, name)
            assert ours is theirs is None or ours.equal(theirs)

    def test_positions_leave_an_index_as_it_is(self):
        positions, index = Positions(4), NumberedIndex([1], 2)

        assert positions.__getitems__(index) is index
        assert list(positions) == [0, 1, 2, 3]
        assert len(positions) == 4


class _Stuck(DirectNeighborSampler):
    def sample_from_nodes(self, inputs, **options):
        if 5 in inputs.node:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        return super().sample_from_nodes(inputs, **options)


@pytest.mark.slow
def test_a_worker_that_does_not_go_is_killed(monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    stores = from_data(make_data(), "cpu")
    sampler = _Stuck(stores, [4], device="cpu")
    loader = NeighborLoader(stores, [4], neighbor_sampler=sampler, num_workers=1)

    batches = iter(loader)
    for _ in range(5):
        next(batches)
    del batches

    assert not _processes()
