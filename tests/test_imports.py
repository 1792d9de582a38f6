"""Each floor imports only floors below it, and the package imports neither GPU nor experiments."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pyg_direct"

BELOW = {
    "kernels": set(),
    "memory": set(),
    "tables": {"kernels", "memory"},
    "tensors": {"tables", "kernels", "memory"},
    "stores": {"tables", "kernels", "memory"},
    "files": {"stores", "tables", "kernels", "memory"},
    "sampler": {"stores", "tables", "kernels", "memory"},
    "loader": {"sampler", "stores", "tables", "kernels", "memory"},
    "fullbatch": {"kernels", "memory"},
}


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_floors_import_only_floors_below(path):
    floor = path.relative_to(PACKAGE).parts[0]

    for name in _imports(path):
        parts = name.split(".")
        if parts[0] == "pyg_direct":
            assert parts[1] in BELOW[floor] | {floor}, f"{floor} imports {name}"
        assert parts[0] not in ("experiments", "hydra", "pyg_lib", "torch_sparse")
        assert floor != "kernels" or parts[0] != "torch", "kernels take any arrays"


def test_import_needs_neither_gpu_nor_hydra():
    script = (
        "import sys; sys.modules.update(hydra=None, pyg_lib=None, torch_sparse=None);"
        "import pyg_direct, torch; print(torch.cuda.is_initialized())"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
