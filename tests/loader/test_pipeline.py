import gc
import itertools
import threading
import time
import traceback
import weakref

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from pyg_direct import DirectNeighborSampler, NeighborLoader, from_data
from pyg_direct.loader.interleaved import NUM_OWN_BATCHES, Interleaved
from pyg_direct.loader.pipeline import Pipeline, Synchronous
from pyg_direct.sampler import capture_cache
from tests.loader.graphs import assert_same_batches, make_data, make_hetero_data


class _Stages:
    """Stages that note what they do; items are numbers."""

    def __init__(self, fails_at=None, fails_in="start", error=KeyError):
        self.released, self.produced, self.closed = 0, [], 0
        self._fails_at, self._fails_in, self._error = fails_at, fails_in, error

    def release(self):
        self.released += 1
        return self.released

    def start(self, item, released):
        if item == self._fails_at and self._fails_in == "start":
            raise self._error("stage")
        self.produced.append((item, released))
        return item, threading.current_thread()

    def gather(self, started):
        if started[0] == self._fails_at:
            raise self._error("stage")
        return started

    def consume(self, product):
        return product

    def close(self):
        self.closed += 1


def _threads():
    return [each for each in threading.enumerate() if each.name.startswith("pyg_direct")]


def _loader(device, **options):
    data = make_data()
    return NeighborLoader(
        from_data(data, device), [4, 3], **{"batch_size": 7, "seed": 5, "depth": 2, **options}
    )


@pytest.fixture(params=[Pipeline, Interleaved])
def ahead(request):
    return request.param


class TestBothWays:
    def test_keeps_order_and_ends(self, ahead):
        stages = _Stages()

        items = [item for item, _ in ahead(iter(range(9)), stages, depth=3)]

        assert items == list(range(9))
        assert stages.closed == 1
        assert not _threads()

    def test_nothing_comes_of_nothing(self, ahead):
        assert list(ahead(iter(()), _Stages(), depth=3)) == []

    def test_draws_items_in_this_thread(self, ahead):
        drawn_in = []
        source = (drawn_in.append(threading.current_thread()) or i for i in range(4))

        list(ahead(source, _Stages(), depth=1))

        assert set(drawn_in) == {threading.current_thread()}

    @pytest.mark.parametrize("where", ["start", "gather"])
    def test_error_comes_at_its_batch_with_its_traceback(self, ahead, where):
        stages = _Stages(fails_at=2, fails_in=where)
        batches = ahead(iter(range(9)), stages, depth=3)

        assert [next(batches)[0] for _ in range(2)] == [0, 1]
        with pytest.raises(KeyError, match="stage") as caught:
            next(batches)

        assert f"in {where}" in "".join(traceback.format_exception(caught.value))
        assert list(batches) == []
        assert stages.closed == 1
        assert not _threads()

    @pytest.mark.parametrize("where", ["start", "gather"])
    def test_no_stage_can_end_the_loop_unseen(self, ahead, where):
        for make in (Synchronous, lambda *arguments: ahead(*arguments, depth=2)):
            batches = make(iter(range(9)), _Stages(2, where, error=StopIteration))

            with pytest.raises(RuntimeError, match="raised StopIteration"):
                list(batches)

    def test_error_of_the_source_comes_after_the_batches_before_it(self, ahead):
        def source():
            yield from range(2)
            raise OSError("source")

        batches = ahead(source(), _Stages(), depth=4)

        assert [next(batches)[0] for _ in range(2)] == [0, 1]
        with pytest.raises(OSError, match="source"):
            next(batches)
        assert not _threads()

    @pytest.mark.parametrize("num_items", [2, 3, 9])
    def test_ends_with_the_iterator_without_a_collection(self, ahead, num_items):
        stages = _Stages()
        gc.disable()
        try:
            batches = ahead(iter(range(num_items)), stages, depth=4)
            next(batches)
            del batches

            assert stages.closed == 1
            assert not _threads()
        finally:
            gc.enable()

    def test_an_error_before_a_batch_ends_it(self, ahead):
        stages = _Stages()
        batches = ahead(itertools.count(), stages, depth=1)
        next(batches)
        stages.release = lambda: [].pop()

        with pytest.raises(IndexError, match="pop from empty list"):
            next(batches)

        assert stages.closed == 1
        assert not _threads()

    def test_close_is_harmless_twice(self, ahead):
        for make in (Synchronous, lambda *arguments: ahead(*arguments, depth=1)):
            stages = _Stages()
            batches = make(iter(range(9)), stages)
            next(batches)

            batches.close()
            batches.close()

            assert list(batches) == []
            assert stages.closed == 1


class TestPipeline:
    def test_is_depth_batches_ahead_and_no_more(self):
        stages = _Stages()
        pipeline = Pipeline(iter(range(9)), stages, depth=2)

        next(pipeline)
        next(pipeline)
        pipeline._lane.request("last", None)
        for _ in range(3):
            pipeline._lane.take()

        # A batch is made once the consumer is done with the one ``depth + 1`` before it.
        assert stages.produced == [(0, 1), (1, 1), (2, 1), (3, 2), ("last", None)]
        pipeline.close()

    def test_makes_batches_in_one_other_thread(self):
        made_in = {thread for _, thread in Pipeline(iter(range(4)), _Stages(), depth=1)}

        assert len(made_in) == 1
        assert threading.current_thread() not in made_in

    @pytest.mark.parametrize("end", [StopIteration, OSError])
    def test_the_thread_ends_with_the_source_though_somebody_keeps_the_iterator(self, end):
        def source():
            yield from range(3)
            if end is OSError:
                raise end

        pipeline = Pipeline(source(), _Stages(), depth=4)

        assert next(pipeline)[0] == 0
        for thread in _threads():
            thread.join(timeout=60)

        assert not _threads()
        assert [next(pipeline)[0] for _ in range(2)] == [1, 2]
        with pytest.raises(end):
            next(pipeline)

    def test_an_error_that_nobody_took_keeps_nothing(self):
        stages = _Stages(fails_at=1)
        alive = weakref.ref(stages)
        gc.disable()
        try:
            pipeline = Pipeline(itertools.count(), stages, depth=2)
            next(pipeline)
            del pipeline, stages

            assert alive() is None
            assert not _threads()
        finally:
            gc.enable()


class TestInterleaved:
    @pytest.mark.parametrize(("depth", "lead"), [(1, 1), (2, 1), (2, 2), (4, 1), (4, 4)])
    def test_starts_one_batch_further_than_depth(self, depth, lead):
        stages = _Stages()
        batches = Interleaved(iter(range(20)), stages, depth=depth, lead=lead)

        for number in range(NUM_OWN_BATCHES - 1):
            item, thread = next(batches)

            assert (item, thread) == (number, threading.current_thread())
            assert len(stages.produced) == number + depth + 1
        batches.close()

        # What a batch waits for was said one batch before.
        assert stages.produced[-2:] == [(depth + 1, 1), (depth + 2, 2)]

    @pytest.mark.parametrize("depth", [1, 3])
    def test_goes_on_while_the_consumer_sleeps(self, depth):
        stages = _Stages()
        threads = []
        for number, (item, thread) in enumerate(Interleaved(iter(range(20)), stages, depth=depth)):
            assert item == number
            threads.append(thread)
            last = min(number + depth + 2, 20)
            while number + 1 >= NUM_OWN_BATCHES and len(stages.produced) < last:
                time.sleep(1e-3)
            assert len(stages.produced) <= last

        assert number == 19
        own = NUM_OWN_BATCHES + depth
        assert {*threads[:own]} == {threading.current_thread()}
        assert threading.current_thread() not in threads[own:]
        assert not _threads()

    @pytest.mark.parametrize("lead", [1, 3])
    def test_gathers_behind_the_batches_that_are_only_started(self, lead):
        stages, leads = _Stages(), []
        stages.gather = lambda started: leads.append(len(stages.produced) - started[0]) or started

        items = [item for item, _ in Interleaved(iter(range(9)), stages, depth=3, lead=lead)]

        assert items == list(range(9))
        # The last ones have nobody behind them.
        assert leads == [lead] * (10 - lead) + list(range(lead - 1, 0, -1))

    @pytest.mark.parametrize("where", ["start", "gather"])
    def test_error_in_the_other_thread_comes_at_its_batch(self, where):
        stages = _Stages(fails_at=9, fails_in=where)
        seen = []

        def train():
            for item, _ in Interleaved(itertools.count(), stages, depth=2):
                seen.append(item)
                time.sleep(0.01)

        with pytest.raises(KeyError, match="stage") as caught:
            train()

        assert seen == list(range(9))
        assert f"in {where}" in "".join(traceback.format_exception(caught.value))
        assert not _threads()

    def test_draws_every_item_in_the_thread_of_the_consumer(self):
        drawn_in = []
        source = (drawn_in.append(threading.current_thread()) or i for i in range(20))

        for _ in Interleaved(source, _Stages(), depth=2):
            time.sleep(1e-3)

        assert {*drawn_in} == {threading.current_thread()}


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("make", [make_data, make_hetero_data], ids=["homogeneous", "hetero"])
def test_every_depth_gives_the_same_batches(device, make, depth):
    stores = from_data(make(), device)
    input_nodes = None if make is make_data else "paper"
    epochs = []
    for each in (0, depth):
        torch.manual_seed(1)
        loader = NeighborLoader(
            stores, [4, 3], input_nodes, batch_size=7, seed=5, shuffle=True, depth=each
        )
        epochs.append([batch for _ in range(3) for batch in loader])

    assert_same_batches(*epochs)


def test_a_seed_orders_batches_as_in_pygs_loader(device):
    orders = []
    for depth in (None, 0, 2):
        torch.manual_seed(3)
        loader = _loader(device, shuffle=True, depth=depth)
        orders.append([batch.input_id.tolist() for _ in range(2) for batch in loader])
    torch.manual_seed(3)
    stock = torch.utils.data.DataLoader(range(60), 7, shuffle=True)
    expected = [index.tolist() for _ in range(2) for index in stock]

    assert orders == [expected] * 3


@pytest.mark.parametrize("depth", [0, 2])
def test_random_numbers_of_the_loop_repeat(device, depth):
    noise = []
    for _ in range(2):
        torch.manual_seed(3)
        loader = _loader(device, shuffle=True, depth=depth)
        noise.append([(batch.n_id.tolist(), torch.rand(1).item()) for batch in loader])

    assert noise[0] == noise[1]


@pytest.mark.parametrize("depth", [0, 2])
def test_generator_drop_last_and_samplers(device, depth):
    orders = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(8)
        loader = _loader(device, shuffle=True, generator=generator, drop_last=True, depth=depth)
        orders.append([batch.input_id.tolist() for batch in loader])
        assert len(loader) == 8
    assert orders[0] == orders[1]
    assert [len(order) for order in orders[0]] == [7] * 8

    backwards = _loader(device, sampler=range(59, -1, -1), depth=depth)
    assert next(iter(backwards)).input_id.tolist() == list(range(59, 52, -1))

    pairs = _loader(device, batch_sampler=[[3, 1], torch.tensor([5])], batch_size=1, depth=depth)
    assert [batch.input_id.tolist() for batch in pairs] == [[3, 1], [5]]
    batches = BatchSampler(RandomSampler(range(60)), 50, drop_last=False)
    assert sum(b.batch_size for b in _loader(device, batch_sampler=batches, batch_size=1)) == 60
    assert len(_loader(device, sampler=SequentialSampler(range(20)))) == 3


@pytest.mark.parametrize("where", ["host", "device"])
def test_no_batch_holds_half_a_write(device, where):
    stores = from_data(make_data(3000, 60_000), device)
    rows = torch.zeros(3000, 256)
    stores[0][None, "x", None] = rows.to(device) if where == "device" else rows
    loader = NeighborLoader(stores, [10, 10], batch_size=128, seed=2, depth=2)
    seen = []
    for number, batch in enumerate(loader):
        # Every write gives all elements of all rows one value.
        seen.append(batch.x.unique().tolist())
        if number % 5 == 0:
            stores[0].put_tensor(torch.full((3000, 256), -1.0 - number), None, "x", index=None)
        else:
            rows = torch.full((3000, 256), 1.0 + number)
            stores[0].update_tensor(rows, None, "x", index=torch.arange(3000))

    assert [len(values) for values in seen] == [1] * len(loader)
    # A write reaches the batches that are made after it.
    assert len({values[0] for values in seen}) > len(loader) - 4


def test_leaving_the_loop_early_leaves_no_thread(device):
    loader = _loader(device)

    for batch in loader:
        assert batch.batch_size == 7
        break

    assert not _threads()
    assert len(list(loader)) == len(loader) == 9


@pytest.mark.parametrize("depth", [0, 2])
def test_close_ends_what_somebody_keeps(device, depth):
    loader = _loader(device, depth=depth)
    first, second = iter(loader), iter(loader)
    next(first), next(second)

    loader.close()
    loader.close()

    assert not _threads()
    assert list(first) == list(second) == []
    with loader:
        assert next(iter(loader)).batch_size == 7
    assert len(list(loader)) == 9


def test_two_iterators_at_once(device):
    loader, again = _loader(device), _loader(device)
    expected = [list(again), list(again)]

    first, second = iter(loader), iter(loader)
    mixed = list(zip(first, second, strict=True))

    for epoch, batches in zip(expected, zip(*mixed, strict=True), strict=True):
        assert_same_batches(epoch, batches)
    assert not _threads()


def test_an_epoch_left_early_does_not_change_the_next(device):
    loader, again = _loader(device), _loader(device, depth=0)
    next(iter(loader))
    list(again)

    assert_same_batches(loader, again)


def test_an_epoch_can_be_repeated(device):
    loader = _loader(device)
    first = list(loader)

    loader.epoch = 0

    assert_same_batches(first, loader)
    with pytest.raises(ValueError, match="epoch is -1"):
        loader.epoch = -1


def test_a_batch_by_index(device):
    loader = _loader(device)

    batch = loader(torch.tensor([4, 2]))

    assert batch.input_id.tolist() == [4, 2]
    assert loader([3]).n_id[0] == 3


class _Failing(DirectNeighborSampler):
    def sample_from_nodes(self, inputs, **options):
        if 30 in inputs.node:
            raise ArithmeticError("in the sampler")
        return super().sample_from_nodes(inputs, **options)


def _fail_in_transform(batch):
    if 30 in batch.input_id:
        raise ArithmeticError("in the transform")
    return batch


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("where", ["sampler", "transform", "loop"])
def test_errors_leave_no_thread_and_a_loader_that_works(device, where, depth):
    stores = from_data(make_data(), device)
    options = {"neighbor_sampler": _Failing(stores, [4, 3], device=device)}
    loader = NeighborLoader(
        stores,
        [4, 3],
        batch_size=7,
        depth=depth,
        transform=_fail_in_transform if where == "transform" else None,
        **(options if where == "sampler" else {}),
    )
    seen = []

    def train():
        for batch in loader:
            seen.append(batch.batch_size)
            if where == "loop" and len(seen) == 4:
                raise ArithmeticError("in the loop")

    with pytest.raises(ArithmeticError, match=f"in the {where}") as caught:
        train()

    assert seen == [7] * 4
    if where != "loop":
        assert "raise ArithmeticError" in "".join(traceback.format_exception(caught.value))
        assert not _threads()
    del caught
    assert next(iter(loader)).batch_size == 7
    assert not _threads()


@pytest.mark.gpu
class TestOnGpu:
    def test_rows_are_right_while_the_stream_is_busy(self):
        data = make_data(3000, 60_000)
        loader = NeighborLoader(
            from_data(data, "cuda"), [10, 10], batch_size=256, seed=2, shuffle=True, depth=3
        )
        x, wrong = data.x.cuda(), torch.zeros((), dtype=torch.int64, device="cuda")
        weight = torch.randn(2048, 2048, device="cuda")

        for _ in range(5):
            for batch in loader:
                # Long work before the batch is read, and memory that is freed and asked for again.
                for _ in range(10):
                    weight = torch.nn.functional.normalize(weight @ weight)
                wrong += (batch.x != x[batch.n_id]).sum()
                del batch

        assert int(wrong) == 0

    def test_memory_is_bounded_by_depth(self):
        data = make_data(20_000, 400_000)
        data.x = torch.randn(20_000, 512)
        stores = from_data(data, "cuda")
        peaks = []
        for num_epochs in (2, 8):
            loader = NeighborLoader(stores, [10], batch_size=500, seed=2, depth=2)
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            for _ in range(num_epochs):
                for batch in loader:
                    batch.x.sum()
            torch.cuda.synchronize()
            peaks.append(torch.cuda.max_memory_allocated())

        assert peaks[1] < 1.3 * peaks[0]

    def test_works_on_a_stream_of_the_users(self):
        data = make_data()
        with torch.cuda.stream(torch.cuda.Stream()):
            batches = list(NeighborLoader(from_data(data, "cuda"), [4, 3], batch_size=7, depth=2))

        for batch in batches:
            assert batch.x.cpu().equal(data.x[batch.n_id.cpu()])

    def test_epochs_share_streams_and_captured_batches(self):
        stores = from_data(make_data(400, 4000), "cuda")
        sampler = DirectNeighborSampler(stores, [4, 3], device="cuda")
        loader = NeighborLoader(stores, [4, 3], batch_size=50, neighbor_sampler=sampler, depth=2)

        for _ in range(4):
            list(loader)

        assert len(sampler._workplace._captures._captured) == 3
        assert len(loader._stream_pool._free) == 3

    def test_captures_leave_the_random_numbers_of_the_model_alone(self):
        stores = from_data(make_data(400, 4000), "cuda")
        masks = []
        for depth in (0, 1, 2, 3):
            # Two sizes of batches: what is captured for the last one of an epoch comes late.
            torch.manual_seed(9)
            loader = NeighborLoader(stores, [4, 3], batch_size=30, seed=1, depth=depth)
            drawn = []
            for _ in range(5):
                for batch in loader:
                    for _ in range(20):
                        drawn.append(torch.nn.functional.dropout(batch.x, 0.5).sum())
            captured = loader.node_sampler._workplace._captures
            assert len(captured._captured) == depth + 2
            masks.append(torch.stack(drawn))

        for each in masks[1:]:
            assert torch.equal(each, masks[0])


@pytest.mark.parametrize("depth", [0, 2])
def test_only_the_thread_of_the_loop_captures(device, depth, monkeypatch):
    loader = _loader(device, depth=depth)
    seen, start = [], loader._sample_batch.start

    def note(index, **options):
        is_barred = getattr(capture_cache._this_thread, "is_barred", False)
        seen.append((threading.current_thread() is threading.main_thread(), is_barred))
        return start(index, **options)

    monkeypatch.setattr(loader._sample_batch, "start", note)
    for _ in loader:
        time.sleep(0.01)

    assert len(seen) == len(loader)
    assert all(is_main != is_barred for is_main, is_barred in seen)
    assert any(is_barred for _, is_barred in seen) == (depth > 0)
