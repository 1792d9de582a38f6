import pytest
import torch
from torch.nn import functional

from pyg_direct.fullbatch import memory
from pyg_direct.fullbatch.loss import count_correct, cross_entropy_in_place


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("chunk_elements", [(1 << 23, 1 << 27), (10, 10)], ids=["whole", "chunks"])
def test_cross_entropy_in_place_equals_torch(chunk_elements, dtype, monkeypatch):
    monkeypatch.setattr(memory, "CHUNK_ELEMENTS", chunk_elements)
    logits = torch.randn(33, 5, dtype=dtype, requires_grad=True)
    label, mask = torch.randint(5, (33,)), torch.rand(33) < 0.5
    expected = functional.cross_entropy(logits[mask], label[mask])
    expected.backward()
    gradient = logits.detach().clone()
    label[~mask] = -1

    loss = cross_entropy_in_place(gradient, label.int(), mask, int(mask.sum()))

    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, logits.grad)


def test_cross_entropy_in_place_rejects_an_empty_mask():
    with pytest.raises(ValueError, match="the mask is empty on every rank"):
        cross_entropy_in_place(torch.zeros(2, 3), torch.zeros(2).int(), torch.zeros(2).bool(), 0)


def test_count_correct_counts_each_mask():
    logits = torch.eye(4)
    label = torch.tensor([0, 1, 0, 0], dtype=torch.int32)
    masks = [torch.tensor([True, True, True, False]), torch.tensor([False, False, True, True])]

    assert count_correct(logits, label, masks).tolist() == [2, 0]
