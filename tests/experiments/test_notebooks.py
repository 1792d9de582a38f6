"""Every notebook runs from top to bottom, is short, and is kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "experiments/notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_short_and_stripped(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]

    nbformat.validate(notebook)
    assert len(code) <= 15
    assert not any(cell.outputs or cell.execution_count for cell in code)
    assert not any(word in cell.source for cell in code for word in ("def ", "class "))
    assert "GPU" in notebook.cells[0].source


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)

    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}}).execute()
