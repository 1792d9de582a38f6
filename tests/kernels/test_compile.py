"""Every kernel compiles for a GPU, also where there is none."""

import os
import subprocess
import sys

import pytest

MODULES = [
    "copies", "gather", "join", "multiply", "pair", "partition", "relabel", "sample", "tiers",
    "weighted",
]  # fmt: skip

# Numba asks the GPU for its architecture when a kernel calls a function; here a name stands for it.
PROGRAM = """
import importlib, sys
import numba.cuda.dispatcher
from numba import cuda
from numba.cuda import types
from pyg_direct.kernels.launch import CudaKernel

class Device:
    compute_capability = (9, 0)

numba.cuda.dispatcher.get_current_device = lambda: Device
values = list(vars(importlib.import_module("pyg_direct.kernels." + sys.argv[1])).values())
values += [each for value in values if isinstance(value, dict) for each in value.values()]
kernels = [value for value in values if isinstance(value, CudaKernel)]
# Of a family, one kernel for each size of pieces.
families = [value for value in values if hasattr(value, "cache_info")]
if sys.argv[1] in ("gather", "pair", "tiers"):
    kernels += [family(pieces, 8) for family in families for pieces in (1, 2, 4)]
if sys.argv[1] == "partition":
    from pyg_direct.kernels.partition import _kernels
    kernels += [kernel for id_bytes in (4, 8) for kernel in _kernels(id_bytes)]
if sys.argv[1] == "multiply":
    from pyg_direct.kernels.multiply import NUMBER_TYPES, _multiply_csr_kernel
    cases = [(2, number, is_full) for number in NUMBER_TYPES for is_full in (False, True)]
    kernels += [_multiply_csr_kernel(*case) for case in cases]
for kernel in kernels:
    arguments = [
        types.int64 if dtype is None else types.CPointer(getattr(types, dtype.name))
        for dtype in kernel._dtypes
    ]
    ptx, _ = cuda.compile(
        kernel._function, types.void(*arguments), device=False, cc=(9, 0), output="ptx", abi="numba"
    )
    # A float in integer arithmetic, or a fused product, would not be the same on the CPU.
    # Only the sparse product is one of floats, and compared by tolerance.
    if sys.argv[1] != "multiply":
        assert "fma.rn" not in ptx, kernel._function.__name__
    if sys.argv[1] != "weighted":
        assert ".f64" not in ptx, kernel._function.__name__
print(len(kernels), "kernels")
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_kernels_compile_without_doubles(module):
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0"}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module], env=environment, capture_output=True, text=True
    )

    if "NVVM" in done.stderr or "libnvvm" in done.stderr:
        pytest.skip("needs the parts of the CUDA toolkit that numba-cuda's extras bring")
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[0]) >= 1
