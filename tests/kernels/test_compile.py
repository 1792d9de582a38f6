"""Every kernel compiles for a GPU, also where there is none."""

import json
import os
import subprocess
import sys

import pytest

from pyg_direct.kernels import gather, pair, tiers
from pyg_direct.kernels.launch import THREADS_PER_WARP
from pyg_direct.tables.plan import WARPS_PER_BLOCK

MODULES = [
    "copies", "gather", "join", "multiply", "pair", "partition", "relabel", "sample", "tiers",
    "weighted",
]  # fmt: skip

# Numba asks the GPU for its architecture when a kernel calls a function; here a name stands for it.
PROGRAM = """
import importlib, json, sys, traceback
import numba.cuda.dispatcher
from numba import cuda
from numba.cuda import types
from pyg_direct.kernels.launch import CudaKernel

class Device:
    compute_capability = (9, 0)

numba.cuda.dispatcher.get_current_device = lambda: Device

def find_kernels(name):
    module = importlib.import_module("pyg_direct.kernels." + name)
    values = list(vars(module).values())
    values += [each for value in values if isinstance(value, dict) for each in value.values()]
    kernels = [value for value in values if isinstance(value, CudaKernel)]
    # Of a family, one kernel for each size of pieces.
    families = [value for value in values if hasattr(value, "cache_info")]
    if name in ("gather", "pair", "tiers"):
        kernels += [family(pieces, 8) for family in families for pieces in (1, 2, 4)]
    if name == "partition":
        kernels += [kernel for id_bytes in (4, 8) for kernel in module._kernels(id_bytes)]
    if name == "multiply":
        cases = [(2, each, is_full) for each in module.NUMBER_TYPES for is_full in (False, True)]
        kernels += [module._multiply_csr_kernel(*case) for case in cases]
    return kernels

def compile_all(name):
    kernels = find_kernels(name)
    for kernel in kernels:
        signature = types.void(*[
            types.int64 if dtype is None else types.CPointer(getattr(types, dtype.name))
            for dtype in kernel._dtypes
        ])
        ptx, _ = cuda.compile(
            kernel._function, signature, device=False, cc=(9, 0), output="ptx", abi="numba"
        )
        # A float in integer arithmetic, or a fused product, would not be the same on the CPU.
        # Only the sparse product is one of floats, and compared by tolerance.
        assert name == "multiply" or "fma.rn" not in ptx, kernel._function.__name__
        assert name == "weighted" or ".f64" not in ptx, kernel._function.__name__
    return len(kernels)

results = {}
for name in sys.argv[1:]:
    try:
        results[name] = compile_all(name)
    except Exception:
        results[name] = traceback.format_exc()
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def compiled():
    """Return the number of kernels compiled by module, or the error; of one process for all."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *MODULES], env=environment, capture_output=True, text=True
    )
    if "NVVM" in done.stderr + done.stdout or "libnvvm" in done.stderr + done.stdout:
        pytest.skip("needs the parts of the CUDA toolkit that numba-cuda's extras bring")
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_kernels_compile_without_doubles(module, compiled):
    assert isinstance(compiled[module], int), compiled[module]
    assert compiled[module] >= 1


@pytest.mark.parametrize(
    "family",
    [
        gather._gather_rows_kernel, gather._scatter_rows_kernel, pair._gather_pair_kernel,
        tiers._gather_tiers_kernel,
    ],
)  # fmt: skip
@pytest.mark.parametrize("piece_bytes", [1, 2, 4])
def test_blocks_of_all_warps_fit_into_the_registers(family, piece_bytes):
    # Of a multiprocessor of every GPU that is supported; a launch fails otherwise.
    registers = family(piece_bytes, 8)._options["max_registers"]

    assert registers * THREADS_PER_WARP * WARPS_PER_BLOCK <= 65_536
