"""Batches that a CUDA graph repeats are those that the host would have launched."""

import threading
import time

import numpy as np
import pytest
import torch
from torch_geometric.sampler import NodeSamplerInput

from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.sampler.capture import NOT_YET, wait_for_notes
from pyg_direct.sampler.capture_cache import CaptureCache, CaptureKey
from pyg_direct.sampler.layout import BatchLayout
from tests.sampler.graphs import MODES, assert_same, make_data, make_hetero

CAPTURED = ["uniform", "replaced", "weighted", "weighted-replaced", "backward", "bidirectional"]


def _inputs(batch, input_type, num_seeds=20):
    generator = torch.Generator().manual_seed(batch)
    seeds = torch.randint(20, (num_seeds,), generator=generator)
    return NodeSamplerInput(None, seeds, None, input_type)


def _samplers(data, num_neighbors, **options):
    """The same on the CPU and on the GPU."""
    return [
        DirectNeighborSampler(data, num_neighbors, device=device, **options)
        for device in ("cpu", "cuda")
    ]


def _captures(sampler):
    return sampler._workplace._captures._captured


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional:UserWarning")
@pytest.mark.parametrize("mode", CAPTURED)
@pytest.mark.parametrize("hetero", [False, True], ids=["homogeneous", "heterogeneous"])
def test_captured_batches_equal_the_cpu(mode, hetero):
    data = make_hetero(40, 400) if hetero else make_data(400, 4000)
    options = {"seed": 3, **MODES[mode]}
    on_cpu, on_gpu = _samplers(data, [4, 3, 2], **options)

    for batch in range(8):
        inputs = _inputs(batch, "a" if hetero else None)
        expected = on_cpu.sample_from_nodes(inputs, batch=batch)
        assert_same(expected, on_gpu.sample_from_nodes(inputs, batch=batch))
    assert len(_captures(on_gpu)) == 1


@pytest.mark.gpu
def test_captured_batches_of_changing_size():
    on_cpu, on_gpu = _samplers(make_data(400, 4000), [4, 3], seed=3)

    for batch in range(15):
        inputs = _inputs(batch, None, num_seeds=(20, 20, 7)[batch % 3])
        expected = on_cpu.sample_from_nodes(inputs, batch=batch)
        assert_same(expected, on_gpu.sample_from_nodes(inputs, batch=batch))
    assert len(_captures(on_gpu)) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("num_neighbors", [[4, -1], [0]], ids=str)
def test_unbounded_batches_are_not_captured(num_neighbors):
    sampler = DirectNeighborSampler(make_data(), num_neighbors, device="cuda")

    for batch in range(5):
        sampler.sample_from_nodes(_inputs(batch, None))

    assert len(_captures(sampler)) == int(-1 not in num_neighbors)


@pytest.mark.gpu
def test_earlier_batches_are_left_alone():
    sampler = DirectNeighborSampler(make_data(400, 4000), [4, 3], device="cuda", seed=3)
    batches = [sampler.sample_from_nodes(_inputs(0, None), batch=0) for _ in range(5)]
    first = [batch.node.clone() for batch in batches]

    for batch in range(1, 4):
        sampler.sample_from_nodes(_inputs(batch, None), batch=batch)

    for batch, node in zip(batches, first, strict=True):
        assert torch.equal(batch.node, node)


@pytest.mark.gpu
def test_threads_on_streams_of_their_own():
    on_cpu, on_gpu = _samplers(make_data(400, 4000), [4, 3], seed=3)
    results = {}

    def work(number):
        with torch.cuda.stream(torch.cuda.Stream()):
            for batch in range(number, 24, 2):
                out = on_gpu.sample_from_nodes(_inputs(batch, None), batch=batch)
                torch.cuda.current_stream().synchronize()
                results[batch] = out

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for batch in range(24):
        expected = on_cpu.sample_from_nodes(_inputs(batch, None), batch=batch)
        assert_same(expected, results[batch])


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ["uniform", "disjoint", "induced"])
def test_batches_started_on_one_stream_and_finished_on_another(mode):
    data, options = make_data(400, 4000), {"seed": 3, **MODES[mode]}
    on_cpu, on_gpu = _samplers(data, [4, 3], **options)
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    results = []

    for batch in range(12):
        with torch.cuda.stream(one):
            finish = on_gpu.start_from_nodes(_inputs(batch, None), batch=batch)
        with torch.cuda.stream(other):
            # What the next batch does must wait for these copies.
            torch.cuda._sleep(2_000_000)
            out = finish()
            results.append((batch, out, out.node * 2))
        del finish

    other.synchronize()
    for batch, out, doubled in results:
        expected = on_cpu.sample_from_nodes(_inputs(batch, None), batch=batch)
        assert_same(expected, out)
        assert torch.equal(doubled.cpu(), expected.node * 2)


@pytest.mark.gpu
def test_batches_that_nobody_finishes():
    on_cpu, on_gpu = _samplers(make_data(400, 4000), [4, 3], seed=3)

    for batch in range(20):
        finish = on_gpu.start_from_nodes(_inputs(batch, None), batch=batch)
        if batch % 3 == 2:
            expected = on_cpu.sample_from_nodes(_inputs(batch, None), batch=batch)
            assert_same(expected, finish())


@pytest.mark.gpu
def test_without_cuda_graph():
    sampler = DirectNeighborSampler(make_data(), [2], device="cuda", cuda_graph=False)

    sampler.sample_from_nodes(_inputs(0, None))

    assert sampler._workplace._captures is None


def test_find_waits_until_a_batch_was_seen_twice():
    layout = BatchLayout(num_seeds=((None, 4),), num_hops=1, num_relations=1, is_ranked=True)
    key = CaptureKey(
        layout=layout, fanouts=((None, (2,)),), method=0, edge_form=1, stream=0, follower=None
    )
    cache = CaptureCache()

    for _ in range(2):
        assert cache.find(key, lambda: None, torch.device("cpu"), None) is None
        cache.note(key)

    assert cache._num_seen[key] == 2


class _Stream:
    """Notes words one by one, some time after it was asked how far it is."""

    def __init__(self, noted, words, num_looks):
        self._noted, self._words, self._num_looks = noted, words, num_looks

    def query(self):
        self._num_looks -= 1
        if self._num_looks < 0:
            self._noted[: len(self._words)] = self._words
        return self._num_looks < 0


@pytest.mark.parametrize("num_looks", [0, 3])
def test_wait_for_notes_returns_all_of_them(num_looks):
    noted = np.full(3, NOT_YET)
    noted[1] = 5

    assert wait_for_notes(noted, _Stream(noted, [2, 0, 9], num_looks)) == [2, 0, 9]


def test_wait_for_notes_that_are_there_asks_nobody():
    assert wait_for_notes(np.array([7, 0]), stream=None) == [7, 0]


def test_wait_for_notes_sees_what_another_thread_writes():
    noted = np.full(2, NOT_YET)

    def write():
        for place in range(2):
            time.sleep(2e-3)
            noted[place] = place

    thread = threading.Thread(target=write)
    thread.start()
    assert wait_for_notes(noted, _Stream(noted, [], 1000)) == [0, 1]
    thread.join()


def test_wait_for_notes_of_a_stream_that_ends_without_them():
    noted = np.full(3, NOT_YET)

    with pytest.raises(RuntimeError, match="ended without its batch"):
        wait_for_notes(noted, _Stream(noted, [4, 4], 1))
