import pytest
import torch

from experiments.repeatable import repeatable_sums


def test_repeatable_sums_asks_torch_for_the_block_only():
    with repeatable_sums():
        assert torch.are_deterministic_algorithms_enabled()

    assert not torch.are_deterministic_algorithms_enabled()


def test_repeatable_sums_ends_with_an_error():
    with pytest.raises(KeyError), repeatable_sums():
        raise KeyError

    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.gpu
def test_repeatable_sums_repeat():
    values = torch.randn(100_000, 4, device="cuda")
    index = torch.randint(10, (100_000, 1), device="cuda").expand(-1, 4)

    with repeatable_sums():
        sums = [torch.zeros(10, 4, device="cuda").scatter_add_(0, index, values) for _ in range(5)]

    assert all(torch.equal(each, sums[0]) for each in sums)
