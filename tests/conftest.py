"""What every test shares: the CUDA simulator where there is no GPU, and the marks that need one."""

import hashlib
import os
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

NUM_GPUS = torch.cuda.device_count()

if NUM_GPUS == 0:
    # Numba reads this once, at its first import: without a GPU the kernels run in its simulator.
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    # Its threads are polled by another one; at Python's usual 5 ms a test can take minutes so.
    sys.setswitchinterval(1e-4)


def _hash_of_kernels():
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].glob("pyg_direct/kernels/*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# Numba's cache sees changes of a kernel's own file alone, not of the functions it calls elsewhere.
os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"pyg_direct-{_hash_of_kernels()}")
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("gpu") and NUM_GPUS < 1:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))
        if item.get_closest_marker("multi_gpu") and NUM_GPUS < 2:
            item.add_marker(pytest.mark.skip(reason="needs two CUDA GPUs or more"))


class _SharedArrays(dict):
    """The simulator's shared arrays of a block, by the line that asks for one.

    The simulator asks with ``get``, and sets what it did not find: of two threads that come at the
    same time each would have an array of its own. Here the others wait until the first has set it.
    """

    def __init__(self):
        super().__init__()
        self._lock = threading.Lock()

    def get(self, line):
        self._lock.acquire()
        if line not in self:
            return None
        self._lock.release()
        return self[line]

    def __setitem__(self, line, array):
        super().__setitem__(line, array)
        self._lock.release()


@pytest.fixture(autouse=True, scope="session")
def _one_shared_array_a_block():
    if NUM_GPUS:
        yield
        return
    from numba.cuda.simulator.kernelapi import FakeCUDAShared

    make = FakeCUDAShared.__init__

    def make_safely(self, *arguments):
        make(self, *arguments)
        self._allocations = _SharedArrays()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeCUDAShared, "__init__", make_safely)
        yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(42)


@contextmanager
def _in_simulator(*arrays):
    yield arrays


@contextmanager
def _on_gpu(*arrays):
    """Hand out copies in device memory, at the same distance from a line, and fetch them back."""
    copies = []
    for array in arrays:
        memory = torch.full((array.nbytes + 256,), 0xAA, dtype=torch.uint8, device="cuda")
        start = (array.ctypes.data - memory.data_ptr()) % 128
        copy = memory[start : start + array.nbytes]
        copy.copy_(torch.from_numpy(array.reshape(-1).view(np.uint8)))
        copies.append(copy.view(torch.from_numpy(array.reshape(-1)).dtype))
    yield copies
    torch.cuda.synchronize()
    for array, copy in zip(arrays, copies, strict=True):
        array.reshape(-1).view(np.uint8)[:] = copy.view(torch.uint8).cpu().numpy()


@pytest.fixture(params=[pytest.param(None, marks=pytest.mark.gpu) if NUM_GPUS else None],
                ids=["cuda" if NUM_GPUS else "simulator"])  # fmt: skip
def kernel_memory():
    """Where CUDA kernels of this machine run: the GPU, or the simulator where there is none."""
    return _on_gpu if NUM_GPUS else _in_simulator
