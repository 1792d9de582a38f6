"""The picture of the tiers task: hits, bytes over the bus and time against the budget."""

from pathlib import Path
from typing import Any

from experiments.job import job_folder
from experiments.table import Rows

FILE_NAME = "tiers.png"
PANELS = {
    "hit_rate": "share of rows read on the device",
    "host_mb": "MB over the bus a batch",
    "gather_ms": "ms a gather",
}


def draw_tiers(rows: Rows, folder: Path | None = None) -> Path | None:
    """Draw a panel for each of hits, bytes and time, a line a score; return the path.

    Parameters
    ----------
    rows : list of dict
        Of ``experiments.tiers.run``.
    folder : Path, optional
        Hydra's folder of the job where not given; nothing is drawn outside a job of Hydra's.
    """
    folder = folder or job_folder()
    if folder is None:
        return None
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(13, 4), layout="constrained")
    for axis, column in zip(axes, PANELS, strict=True):
        draw_panel(axis, rows, column)
    axes[0].legend(fontsize=8)
    path = folder / FILE_NAME
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path


def draw_panel(axis: Any, rows: Rows, column: str) -> None:
    """Draw one column against the budget on a matplotlib axis, a line a score."""
    for score in dict.fromkeys(row["score"] for row in rows):
        chosen = [row for row in rows if row["score"] == score]
        axis.plot(
            [100 * row["budget_share"] for row in chosen], [row[column] for row in chosen],
            label=score, marker="o", markersize=3,
        )  # fmt: skip
    axis.set(xlabel="budget, % of the bytes of all features", ylabel=PANELS[column], ylim=(0, None))
