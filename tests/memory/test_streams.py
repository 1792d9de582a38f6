"""Streams take turns, and what one made is kept for another."""

from dataclasses import dataclass

import pytest
import torch
from torch_geometric.data import HeteroData

from pyg_direct import NeighborLoader, from_data
from pyg_direct.memory.streams import StreamPool, StreamTurn, bind_to_stream, keep_for
from tests.loader.graphs import make_data, make_hetero_data


class _Kept:
    def __init__(self, **values):
        vars(self).update(values)


@dataclass(slots=True)
class _Slots:
    e: torch.Tensor


class _Both(_Slots):
    pass


def _spy(monkeypatch):
    kept = []
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, _: kept.append(id(tensor)))
    return kept


def test_keep_for_finds_every_tensor(monkeypatch):
    a, b, c, d, e, f = (torch.zeros(1) for _ in range(6))
    kept, both = _spy(monkeypatch), _Both(e)
    both.f = f

    values = _Kept(node={"x": a}, metadata=(b, None, [c]), num=[1, 2, "text"], deep=_Kept(d=d))
    keep_for([values, both, torch.float32, len], None)

    assert sorted(kept) == sorted(id(each) for each in (a, b, c, d, e, f))


@pytest.mark.parametrize("make", [make_data, make_hetero_data])
def test_keep_for_finds_every_tensor_of_a_batch(monkeypatch, make):
    data = make()
    input_nodes = "paper" if isinstance(data, HeteroData) else None
    batch = next(iter(NeighborLoader(from_data(data, "cpu"), [4], input_nodes, batch_size=8)))
    expected = {
        id(value)
        for store in batch.stores
        for value in store.values()
        if isinstance(value, torch.Tensor)
    }
    kept = _spy(monkeypatch)

    keep_for(batch, None)

    assert set(kept) == expected


def test_bind_to_stream_without_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)

    def function():
        return 5

    assert bind_to_stream(function) is function


@pytest.mark.gpu
def test_turns_set_the_stream_and_put_it_back():
    device = torch.device("cuda", 0)
    before, side = torch.cuda.current_stream(), torch.cuda.Stream()
    turn = StreamTurn(device, side, name="test")

    for _ in range(2):
        with turn as stream:
            assert stream == side == torch.cuda.current_stream()
        assert torch.cuda.current_stream() == before
    with pytest.raises(ValueError, match="inside"), turn:
        raise ValueError("inside")
    assert torch.cuda.current_stream() == before
    with StreamTurn(device, name="test") as stream:
        assert stream == before


@pytest.mark.gpu
def test_a_bound_function_runs_on_its_stream():
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    seen = []

    def function():
        seen.append(torch.cuda.current_stream())
        torch.cuda._sleep(10_000_000)
        return [torch.full((1 << 16,), 7, device="cuda")]

    with torch.cuda.stream(side):
        bound = bind_to_stream(function)
    with torch.cuda.stream(other):
        (values,) = bound()
        doubled = values * 2
        del values

    other.synchronize()
    assert seen == [side]
    assert bool((doubled == 14).all())


@pytest.mark.gpu
def test_streams_are_used_again():
    pool = StreamPool(torch.device("cuda", 0))
    first, second = pool.take(2), pool.take(3)
    assert len({*first, *second}) == 5

    pool.put_back(first)

    assert pool.take(2) == first
