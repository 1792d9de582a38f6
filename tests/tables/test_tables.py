import resource
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyg_direct.memory import MappedArray
from pyg_direct.tables import DeviceTable, HostTable, Request
from pyg_direct.tables.plan import AS_REQUESTED, INDEX_SELECT, PARTITIONED, SORTED


@pytest.fixture(params=["host", "device"])
def make_table(request, device):
    def make(tensor):
        if request.param == "host":
            return HostTable(MappedArray(tensor.clone()), device, name="x")
        return DeviceTable(tensor.clone().to(device), name="x")

    return make


def test_gather_fills_out(make_table, device):
    x = torch.rand(37, 3)
    table, out = make_table(x), torch.full((2, 3), torch.nan, device=device)

    rows = table.gather(torch.tensor([4, 1], dtype=torch.int32), out)

    assert rows is out
    assert out.cpu().equal(x[[4, 1]])


def test_a_graph_repeats_gathers_of_a_gpu_alone(make_table, device):
    table = make_table(torch.rand(37, 3))

    assert table.is_repeatable == (device.type == "cuda")
    table.close()
    assert not table.is_repeatable


@pytest.mark.gpu
@pytest.mark.parametrize("row_bytes", [4, 12, 400])
@pytest.mark.parametrize("where", ["host", "device"])
def test_only_the_ids_in_use_are_gathered(where, row_bytes):
    device, x = torch.device("cuda", 0), torch.rand(37, row_bytes // 4)
    table = HostTable(MappedArray(x.clone()), device) if where == "host" else None
    table = table or DeviceTable(x.to(device))
    ids, num_used = torch.arange(30, device=device), torch.tensor([7], device=device)
    request = Request(
        ids, is_trusted=True, is_sorted=True, is_background=True, num_used=num_used
    )  # fmt: skip
    out = torch.full((30, row_bytes // 4), -1.0, device=device)

    table.gather(request, out)

    assert out[:7].cpu().equal(x[:7])
    assert where == "device" or bool((out[7:] == -1).all())


def test_gather_takes_ids_from_either_side(make_table, device):
    x = torch.rand(37, 3)

    assert make_table(x).gather(torch.tensor([4, 1], device=device)).cpu().equal(x[[4, 1]])


@pytest.mark.parametrize(
    "out",
    [
        torch.zeros(2, 4),
        torch.zeros(3, 3),
        torch.zeros(2, 3, dtype=torch.int32),
        torch.zeros(3, 2).t(),
        torch.zeros(2, 3, device="meta"),
    ],
    ids=["row", "rows", "dtype", "strides", "device"],
)
def test_gather_rejects_wrong_out(make_table, device, out):
    out = out if out.is_meta else out.to(device)

    with pytest.raises(ValueError, match=r"out is .*expected \(\(2, 3\), torch.float32"):
        make_table(torch.rand(37, 3)).gather(torch.tensor([4, 1]), out)


def test_gather_rejects_wrong_index(make_table):
    table = make_table(torch.rand(37, 3))

    with pytest.raises(TypeError, match=r"index holds torch.float32"):
        table.gather(torch.tensor([1.0]))
    with pytest.raises(ValueError, match=r"index has shape \(1, 1\)"):
        table.gather(torch.tensor([[1]]))


@pytest.mark.parametrize("num_ids", [0, 1, 31, 33, 257])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_gather_then_scatter_from_any_address(device, num_ids, offset):
    memory = torch.randint(0, 256, (37 * 29 + 3,), dtype=torch.uint8)
    x = memory[offset : offset + 37 * 29].view(37, 29)
    table, expected = HostTable(MappedArray(x), device), x.clone()
    index = torch.from_numpy(np.random.default_rng(0).integers(0, 37, num_ids))

    rows = table.gather(index)
    table.scatter(index, rows + 1)

    assert rows.cpu().equal(expected[index])
    expected[index] += 1
    if device.type == "cuda":
        torch.cuda.synchronize()
    assert x.equal(expected)


def test_scatter_keeps_the_last_of_equal_ids(make_table):
    table = make_table(torch.zeros(5, 2))

    table.scatter(torch.tensor([3, 3, 1]), torch.tensor([[1.0, 1], [2, 2], [3, 3]]))

    assert table.gather(torch.tensor([3, 1])).tolist() == [[2, 2], [3, 3]]


def test_closed_table_refuses(make_table):
    table = make_table(torch.zeros(5, 2))
    table.close()
    table.close()

    with pytest.raises(ValueError, match="x is closed"):
        table.gather(torch.tensor([1]))


@pytest.mark.gpu
@pytest.mark.parametrize("way", [INDEX_SELECT, AS_REQUESTED, PARTITIONED, SORTED])
@pytest.mark.parametrize("offset", [0, 4, 68, 1])
@pytest.mark.parametrize("row_bytes", [1, 4, 12, 31, 64, 128, 132, 400, 1172, 3072, 4100])
@pytest.mark.parametrize("max_sms", [None, 3])
def test_every_way_gives_the_rows(monkeypatch, way, row_bytes, offset, max_sms):
    memory = torch.randint(0, 256, (2000 * row_bytes + offset,), dtype=torch.uint8)
    x = memory[offset:].view(2000, row_bytes)
    table = HostTable(MappedArray(x), torch.device("cuda", 0), max_sms=max_sms)
    index = torch.from_numpy(np.random.default_rng(1).integers(0, 2000, 5003)).cuda()
    plan = table.plan(5003)
    monkeypatch.setattr(table, "_plan", lambda *_, **__: replace(plan, way=way))

    requests = [Request(index, is_trusted=True)]
    # Of ids that may be wrong torch gets none.
    requests += [Request(index.int())] if way != INDEX_SELECT else []
    for request in requests:
        out = torch.full((5003, row_bytes), 0xAA, dtype=torch.uint8, device="cuda")
        assert table.gather(request, out).cpu().equal(x[index.cpu()])


@pytest.mark.gpu
@pytest.mark.parametrize("num_ids", [10, 100_000])
def test_wrong_ids_on_the_gpu_raise_and_leave_it_in_order(num_ids):
    table = HostTable(MappedArray(torch.rand(50_000, 3)), torch.device("cuda", 0), name="x")
    index = torch.arange(num_ids, device="cuda") % 50_000

    for wrong in (-1, 50_000, 2**40):
        with pytest.raises(IndexError, match=f"id {wrong} is outside x, which has 50000 rows"):
            table.gather(torch.where(index == 7, wrong, index))

    assert table.gather(index).equal(table.tensor()[index])


@pytest.mark.gpu
def test_gathers_on_several_streams_at_once():
    x = torch.rand(100_000, 33)
    table, device_x = HostTable(MappedArray(x), torch.device("cuda", 0)), x.cuda()
    index = torch.randint(0, 100_000, (50_000,), device="cuda")
    torch.cuda.synchronize()

    rows = []
    for _ in range(8):
        with torch.cuda.stream(torch.cuda.Stream()):
            rows.append(table.gather(Request(index, is_trusted=True)))
    torch.cuda.synchronize()

    assert all(each.equal(device_x[index]) for each in rows)


@pytest.mark.gpu
@pytest.mark.slow
def test_host_table_costs_no_second_copy():
    HostTable(MappedArray(torch.ones(10, 128)), torch.device("cuda", 0)).gather(torch.arange(10))
    x = torch.ones(2**33 // 512, 128)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    table = HostTable(MappedArray(x), torch.device("cuda", 0))
    table.gather(torch.arange(0, x.shape[0], 97))

    torch.cuda.synchronize()
    grown_bytes = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    assert grown_bytes < 0.02 * 2**33


@pytest.mark.gpu
def test_threads_that_share_a_stream():
    x = torch.randint(1 << 30, (200_000, 16), dtype=torch.int32)
    table = HostTable(MappedArray(x), torch.device("cuda", 0))
    plan = replace(table.plan(20_000), way=PARTITIONED)
    table._plan = lambda *_, **__: plan
    wrong = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(50):
            index = torch.randint(200_000, (20_000,), generator=generator)
            rows = table.gather(Request(index.cuda(), is_trusted=True))
            if not rows.cpu().equal(x[index]):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong
