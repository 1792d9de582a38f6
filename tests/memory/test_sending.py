import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

from pyg_direct.memory import InMessage


@pytest.mark.parametrize("pickler", [pickle, ForkingPickler], ids=["pickle", "processes"])
@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).view(2, 3),
        torch.arange(6).view(2, 3).t(),
        torch.rand(3).bfloat16(),
        torch.tensor([True, False]),
        torch.rand(2, 2, dtype=torch.complex128),
        torch.rand(4).to(torch.float8_e5m2),
        torch.tensor(7),
        torch.empty(0, 3),
    ],
    ids=lambda tensor: f"{tensor.dtype} {list(tensor.shape)}",
)
def test_in_message(pickler, tensor):
    address = tensor.data_ptr()

    again = pickle.loads(pickler.dumps(InMessage(tensor)))

    assert type(again) is torch.Tensor
    assert again.dtype == tensor.dtype
    assert again.tolist() == tensor.tolist()
    assert tensor.data_ptr() == address
    assert not tensor.is_shared()
