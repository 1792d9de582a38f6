"""Seeds of many batches are packed at once, in the order of the epoch."""

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.sampler import NodeSamplerInput

from pyg_direct.kernels.random import batch_key
from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.sampler.runs import MAX_BATCHES, NodeRuns
from tests.sampler.graphs import make_data


class _Workplace:
    """Notes what it packs and starts; a started batch is its seeds."""

    def __init__(self, has_graph=True):
        self.packed, self._has_graph = [], has_graph

    def pack(self, kind, ids, keys, carried, **options):
        self.packed.append((kind, ids, keys, carried))
        return SimpleNamespace(words=list(zip(ids.tolist(), carried.tolist(), keys, strict=True)))

    def start_packed(self, run, place):
        return (lambda: run.words[place]) if self._has_graph else None


def _runs(workplace, nodes, num_nodes=1000):
    return NodeRuns(
        workplace, NodeSamplerInput(None, nodes, None, "paper"), num_nodes=num_nodes, seed=7,
        fanouts={}, draw=None, follower=None, make_output=lambda words: SimpleNamespace(
            metadata=words[1], words=words
        ),
    )  # fmt: skip


@pytest.mark.parametrize("size", [1, 4, 7])
def test_batches_are_the_seeds_of_the_order(size):
    nodes = torch.randperm(1000)[:301]
    order, first = torch.randperm(301), 3 << 32
    workplace = _Workplace()
    runs = _runs(workplace, nodes)

    for place in range(-(-301 // size)):
        positions = order[place * size : (place + 1) * size]
        start = place * size
        started = runs.start(first + place, order, start, start + len(positions))
        output = started()
        ids, carried, key = output.words
        assert ids == nodes[positions].tolist()
        assert carried == positions.tolist()
        assert key == batch_key(7, first + place)
        assert output.metadata == (positions.tolist(), None)
        assert started.whole is None

    num_full = 301 // size
    assert len(workplace.packed) == -(-num_full // MAX_BATCHES) + (301 % size > 0)
    assert {kind for kind, *_ in workplace.packed} == {"paper"}


def test_batches_without_a_graph_are_started_as_ever():
    runs = _runs(_Workplace(has_graph=False), torch.arange(90))

    started = [runs.start(batch, torch.arange(90), 9 * batch, 9 * batch + 9) for batch in range(10)]

    assert started == [None] * 10


@pytest.mark.parametrize("wrong", [-1, 1000])
def test_seeds_that_are_no_nodes_are_left_to_those_who_refuse_them(wrong):
    nodes = torch.arange(90)
    nodes[40] = wrong
    workplace = _Workplace()
    runs = _runs(workplace, nodes)

    started = [runs.start(batch, torch.arange(90), 9 * batch, 9 * batch + 9) for batch in range(10)]

    # From the one behind the wrong one on, batches are packed again.
    assert [each is None for each in started] == [True] * 5 + [False] * 5
    assert len(workplace.packed) == 1


@pytest.mark.parametrize(
    "options",
    [{"disjoint": True}, {"subgraph_type": "induced"}, {"subgraph_type": "bidirectional"}],
    ids=str,
)
def test_what_is_never_repeated(options):
    sampler = DirectNeighborSampler(make_data(), [2], device="cpu", **options)

    assert sampler.repeat_nodes(NodeSamplerInput(None, torch.arange(4)), None) is None


@pytest.mark.parametrize(
    "inputs",
    [(torch.arange(4), torch.arange(4)), (None, torch.arange(4), torch.arange(4))],
    ids=["with ids", "with times"],
)
def test_inputs_that_are_never_repeated(inputs):
    sampler = DirectNeighborSampler(make_data(), [2], device="cpu")

    assert sampler.repeat_nodes(NodeSamplerInput(*inputs), None) is None


def test_nothing_is_repeated_on_the_cpu():
    sampler = DirectNeighborSampler(make_data(), [2], device="cpu", seed=1)
    runs = sampler.repeat_nodes(NodeSamplerInput(None, torch.arange(20)), None)

    assert runs.start(0, torch.arange(20), 0, 5) is None
