import pytest
import torch

from experiments.device import choose_device


def test_choose_device_takes_the_gpu_if_there_is_one():
    kind = "cuda" if torch.cuda.is_available() else "cpu"

    assert choose_device(None).type == kind


def test_choose_device_follows_the_option(device):
    assert choose_device(str(device)) == device


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "mps", 3])
def test_choose_device_rejects_unknown_names(name):
    with pytest.raises(ValueError, match=r"expected cpu, cuda, cuda:<number> or null"):
        choose_device(name)


def test_choose_device_rejects_a_gpu_that_is_not_there():
    with pytest.raises(ValueError, match=r"sees \d+ GPUs; use device=cpu"):
        choose_device("cuda:99")
