import numpy as np
import pytest
import torch

from pyg_direct.memory import MappedArray
from pyg_direct.tables import DeviceTable, HostTable


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
@pytest.mark.slow
def test_host_table_costs_no_second_copy():
    import resource

    x = torch.ones(2**30 // 512, 128)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    table = HostTable(MappedArray(x), torch.device("cuda"))
    table.gather(torch.arange(0, x.shape[0], 97))

    torch.cuda.synchronize()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18
