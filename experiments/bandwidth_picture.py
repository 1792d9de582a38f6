"""The picture of the bandwidth task: GB/s against what was varied, a line a method."""

from pathlib import Path
from typing import Any

from experiments.job import job_folder
from experiments.table import Rows

FILE_NAME = "bandwidth.png"


def draw_bandwidth(rows: Rows, folder: Path | None = None) -> Path:
    """Draw a panel for each table and number of ids; return the path of the picture.

    Parameters
    ----------
    rows : list of dict
        Of ``experiments.bandwidth.run``.
    folder : Path, optional
        Hydra's folder of the job, or the current one, where not given.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    varied = "max_sms" if len({row["max_sms"] for row in rows}) > 1 else "row_bytes"
    tables = sorted({row["table_gib"] for row in rows})
    counts = sorted({row["num_ids"] for row in rows})
    figure, grid = pyplot.subplots(
        len(tables), len(counts), squeeze=False, sharex=True, sharey=True,
        figsize=(1.2 + 3.4 * len(counts), 1.2 + 2.6 * len(tables)),
    )  # fmt: skip
    for axes, gib in zip(grid, tables, strict=True):
        for axis, count in zip(axes, counts, strict=True):
            chosen = [row for row in rows if row["table_gib"] == gib and row["num_ids"] == count]
            draw_panel(axis, chosen, varied)
            axis.set_title(f"{gib:g} GiB table, {count:,} ids", fontsize=9)
    grid[0][0].legend(fontsize=7)
    figure.supxlabel("bytes a row" if varied == "row_bytes" else "multiprocessors")
    figure.supylabel("GB/s")
    figure.tight_layout()
    path = (folder or job_folder() or Path()) / FILE_NAME
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path


def draw_panel(axis: Any, rows: Rows, varied: str = "row_bytes") -> None:
    """Draw a line for each method on a matplotlib axis, and memcpy as the ceiling.

    Parameters
    ----------
    axis : matplotlib axis
    rows : list of dict
        Of ``experiments.bandwidth.run``, for one table and number of ids.
    varied : str
        The column of the x axis.
    """
    for method in dict.fromkeys(row["method"] for row in rows):
        chosen = [row for row in rows if row["method"] == method and row[varied] is not None]
        axis.plot(
            [row[varied] for row in chosen], [row["gb_per_s"] for row in chosen], label=method,
            marker="o", markersize=3, linewidth=2 if method == "pyg_direct" else 1,
        )  # fmt: skip
    if rows:
        axis.axhline(rows[0]["memcpy_gb_per_s"], color="gray", linestyle=":", label="memcpy")
    if varied == "row_bytes" and len({row[varied] for row in rows}) > 1:
        axis.set_xscale("log", base=2)
