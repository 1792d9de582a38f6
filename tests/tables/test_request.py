import pytest
import torch

from pyg_direct.tables import Request


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_order_and_bounds(device, dtype):
    request = Request(torch.tensor([5, 3, 9, 3], dtype=dtype, device=device))

    assert request.bounds == (3, 9)
    assert request.ids(device).dtype == torch.int64
    assert request.index[request.order(device, 10)].tolist() == [3, 3, 5, 9]
    assert request.order(device, 10) is request.order(device, 10)


def test_order_of_large_ids():
    request = Request(torch.tensor([2**40, 3, 2**33]))

    assert request.order(torch.device("cpu"), 2**41).tolist() == [1, 2, 0]


def test_check_names_table_id_and_size():
    with pytest.raises(IndexError, match=r"id -2 is outside x, which has 7 rows; .* \[0, 7\)"):
        Request(torch.tensor([5, -2])).check("x", 7)
    Request(torch.tensor([], dtype=torch.int64)).check("x", 0)


def test_rejects_other_tensors():
    with pytest.raises(TypeError, match="index holds torch.bool"):
        Request(torch.tensor([True]))
    with pytest.raises(ValueError, match="one dimension"):
        Request(torch.tensor(3))
