"""Run PyG's tests of stores, samplers and loaders against ours.

    python -m experiments.pyg_conformance PATH [--sampler direct|double] [pytest arguments]

``PATH`` is a checkout of PyG, of a version near the installed one. Its tests are copied, so that
the installed PyG is tested, and nothing of it is kept.
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
)
# Tests that PyG refuses something, which our sampler does: time backwards, weights from stores.
REFUSALS = (
    "test_neighbor_sampler_backwards_not_supported",
    "test_homogeneous_neighbor_sampler_weighted_backwards and remote",
)


def main() -> int:
    """Copy the tests and run them; return pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of pytorch_geometric")
    parser.add_argument("--sampler", choices=("direct", "double"), default="direct")
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
        }
        command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-ra"]
        command += ["-p", "experiments.pyg_conformance.plugin", *FILES, *rest]
        if arguments.sampler == "direct":
            command += ["-k", " and ".join(f"not ({refusal})" for refusal in REFUSALS)]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
