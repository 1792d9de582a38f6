import pytest
import torch

from pyg_direct.memory import MappedArray
from pyg_direct.tables import HostTable, Request


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_in_order_and_bounds(device, dtype):
    request = Request(torch.tensor([5, 3, 9, 3], dtype=dtype, device=device))

    assert request.bounds == (3, 9)
    assert request.ids(device).dtype == torch.int64
    ids, places = request.in_order(device, 10)
    assert (ids.tolist(), ids.dtype) == ([3, 3, 5, 9], torch.int32)
    assert request.index[places].tolist() == [3, 3, 5, 9]
    assert request.in_order(device, 10)[1] is places


def test_by_address_asks_once_and_takes_what_is_sorted():
    request, asked = Request(torch.tensor([5, 3], dtype=torch.int32)), []

    def partition(ids):
        asked.append(ids.tolist())
        return ids, torch.arange(2)

    first = request.by_address(torch.device("cpu"), partition)
    assert request.by_address(torch.device("cpu"), partition) is first
    assert asked == [[5, 3]]
    in_order = Request(torch.tensor([5, 3]))
    ids, places = in_order.in_order(torch.device("cpu"), 10)
    assert in_order.by_address(torch.device("cpu"), partition) == (ids, places)
    assert asked == [[5, 3]]


def test_in_order_of_large_ids():
    request = Request(torch.tensor([2**40, 3, 2**33]))

    ids, places = request.in_order(torch.device("cpu"), 2**41)

    assert ids.tolist() == [3, 2**33, 2**40]
    assert places.tolist() == [1, 2, 0]


def test_check_names_table_id_and_size():
    with pytest.raises(IndexError, match=r"id -2 is outside x, which has 7 rows; .* \[0, 7\)"):
        Request(torch.tensor([5, -2])).check("x", 7)
    Request(torch.tensor([], dtype=torch.int64)).check("x", 0)


def test_rejects_other_tensors():
    with pytest.raises(TypeError, match="index holds torch.bool"):
        Request(torch.tensor([True]))
    with pytest.raises(ValueError, match="one dimension"):
        Request(torch.tensor(3))


@pytest.mark.gpu
@pytest.mark.parametrize("row_bytes", [8, 400, 2048])
def test_what_leaves_the_gpu_to_others_changes_no_row(row_bytes):
    rows = torch.randint(256, (5000, row_bytes), dtype=torch.uint8)
    ids = torch.randint(5000, (3000,), device="cuda")

    for max_sms in (None, 1, 3, 500):
        table = HostTable(MappedArray.copy_of(rows), torch.device("cuda"), max_sms=max_sms)
        found = table.gather(Request(ids, is_trusted=True, is_background=True))

        assert found.cpu().equal(rows[ids.cpu()])
