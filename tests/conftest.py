"""What every test shares: the CUDA simulator where there is no GPU, and the marks that need one."""

import os

import pytest
import torch

NUM_GPUS = torch.cuda.device_count()

if NUM_GPUS == 0:
    # Numba reads this once, at its first import: without a GPU the kernels run in its simulator.
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu") and NUM_GPUS < 1:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
        if item.get_closest_marker("multi_gpu") and NUM_GPUS < 2:
            item.add_marker(pytest.mark.skip(reason="needs two CUDA GPUs or more"))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(42)
