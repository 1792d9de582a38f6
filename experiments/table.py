"""Result tables: rows of named values, on the screen and as CSV with a header of comments.

A row is a ``dict`` from column name to value; rows of one table may miss columns.
"""

import csv
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]

SCREEN_WIDTH = 100


def render_table(rows: Rows) -> str:
    """Return a table as text: a line a row, or a line a column where that would be too wide.

    Parameters
    ----------
    rows : list of dict
        Floats are rounded to four significant digits here, and only here.
    """
    columns = _columns(rows)
    lines = [columns, *[[_text(row.get(column)) for column in columns] for row in rows]]
    grid = _align(lines)
    if any(len(line) > SCREEN_WIDTH for line in grid):
        grid = _align([list(line) for line in zip(*lines, strict=True)])
    return "\n".join(grid)


def write_table(path: Path, rows: Rows, header: dict[str, str]) -> None:
    """Write rows as CSV below a header of ``# name: text`` lines.

    Parameters
    ----------
    path : Path
        Overwritten.
    rows : list of dict
        Values are written in full.
    header : dict of str
        How the rows came to be; see ``describe_environment``.
    """
    with path.open("w", newline="") as file:
        for name, text in header.items():
            file.write(f"# {name}: {' '.join(text.split())}\n")
        writer = csv.DictWriter(file, _columns(rows), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_table(path: Path) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return the rows of a written table, as text, and its header."""
    lines = path.read_text().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ")]
    header = {name: text for name, _, text in (line.partition(": ") for line in comments)}
    return list(csv.DictReader(line for line in lines if not line.startswith("# "))), header


def _columns(rows: Rows) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _align(lines: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
