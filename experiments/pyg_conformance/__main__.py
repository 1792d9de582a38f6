"""Run PyG's tests of stores, samplers and loaders against ours.

    python -m experiments.pyg_conformance PATH [--sampler direct|double] [--loader direct|stock]
        [pytest arguments]

``PATH`` is a checkout of PyG, of a version near the installed one. Its tests are copied, so that
the installed PyG is tested, and nothing of it is kept. PyG's stores are always replaced by ours;
``--sampler double`` keeps PyG's sampler, over our sampling operations, and ``--loader stock`` keeps
PyG's loaders.

What is left out, and why, is in ``EXCEPTIONS``. What PyG's tests skip:

=====================================  =============================================
tests                                  why
=====================================  =============================================
test_sampler_neighbor_sampler (6)      PyG has not written what they test
test_datamodule (8)                    need a GPU and ``FULL_TEST=1``
test_datamodule (2)                    need Lightning, which no extra of ours brings
test_hgt_loader (3)                    need torch-sparse, which we do without
test_neighbor_loader (2)               compare pyg-lib with torch-sparse
test_trim_to_layer (1)                 needs torch-sparse
test_neighbor_loader (1)               needs torch-frame, whose tensors we refuse
test_mixin (2, stock loaders)          expected to fail, by PyG
=====================================  =============================================
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOUBLES = Path(__file__).parent / "doubles"
FILES = (
    "test/data/test_feature_store.py",
    "test/data/test_graph_store.py",
    "test/data/test_remote_backend_utils.py",
    "test/sampler/test_sampler_neighbor_sampler.py",
    "test/loader/test_neighbor_loader.py",
    "test/loader/test_link_neighbor_loader.py",
    "test/data/lightning/test_datamodule.py",
    "test/loader/test_cache.py",
    "test/loader/test_hgt_loader.py",
    "test/loader/test_imbalanced_sampler.py",
    "test/loader/test_mixin.py",
    "test/loader/test_prefetch.py",
    "test/loader/test_utils.py",
    "test/loader/test_zip_loader.py",
    "test/utils/test_trim_to_layer.py",
    "test/nn/conv/test_pna_conv.py::test_pna_conv_get_degree_histogram_neighbor_loader",
    "test/nn/models/test_basic_gnn.py::test_basic_gnn_inference",
    "test/nn/models/test_basic_gnn.py::test_trim_to_layer",
    "test/nn/models/test_basic_gnn.py::test_basic_gnn_cache",
)
# By what is ours: an expression of pytest's for tests, and why they cannot pass.
EXCEPTIONS = {
    "sampler": {
        "test_neighbor_sampler_backwards_not_supported": "we sample backwards in time",
        "test_homogeneous_neighbor_sampler_weighted_backwards and remote": "weights from stores",
        "test_eval_loader_kwargs": "reads the attributes of PyG's NumNeighbors; ours are as given",
    },
    "loader": {
        "test_custom_hetero_neighbor_loader and not duplicate": (
            "expects one attribute more from stores than from HeteroData; ours give the same"
        ),
        "test_multithreading_neighbor_loader or test_cpu_affinity_neighbor_loader": (
            "drop spawned workers while they start; those that then fail break into later tests"
        ),
    },
}


def main() -> int:
    """Copy the tests and run them; return pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of pytorch_geometric")
    parser.add_argument("--sampler", choices=("direct", "double"), default="direct")
    parser.add_argument("--loader", choices=("direct", "stock"), default="direct")
    arguments, rest = parser.parse_known_args()
    if not (arguments.checkout / FILES[0]).is_file():
        parser.error(f"{arguments.checkout} holds no {FILES[0]}, expected a checkout of PyG")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(arguments.checkout / "test", Path(folder) / "test")
        shutil.copy(arguments.checkout / "pyproject.toml", folder)
        paths = [str(ROOT), str(DOUBLES), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PYG_DIRECT_SAMPLER": arguments.sampler,
            "PYG_DIRECT_LOADER": arguments.loader,
        }
        command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-ra"]
        command += ["-p", "experiments.pyg_conformance.plugin", *FILES, *rest]
        exceptions = [
            each
            for part, tests in EXCEPTIONS.items()
            if getattr(arguments, part) == "direct"
            for each in tests
        ]
        if exceptions and "-k" not in rest:
            command += ["-k", " and ".join(f"not ({each})" for each in exceptions)]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
