"""The picture of the full-batch benchmark: epoch time and peak memory of each graph."""

from pathlib import Path

from experiments.job import job_folder
from experiments.table import Rows

FILE_NAME = "fullbatch.png"


def draw_benchmark(rows: Rows, folder: Path | None = None) -> Path:
    """Draw bars of epoch time and peak memory; return the path of the picture.

    Parameters
    ----------
    rows : list of dict
        Of ``experiments.fullbatch_benchmark.run``.
    folder : Path, optional
        Hydra's folder of the job, or the current one, where not given.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    figure, grid = pyplot.subplots(
        len(graphs), 2, figsize=(11, 1.2 + 2.6 * len(graphs)), squeeze=False
    )
    for axes, graph in zip(grid, graphs, strict=True):
        chosen = [row for row in rows if row["graph"] == graph]
        labels = [_label(row) for row in chosen]
        for axis, column, title in (
            (axes[0], "epoch_ms", "epoch, milliseconds"),
            (axes[1], "peak_gib", "peak memory, GiB"),
        ):
            values = [row.get(column) or 0.0 for row in chosen]
            colours = ["tab:gray" if row["method"] == "pyg" else "tab:blue" for row in chosen]
            axis.barh(labels, values, color=colours)
            axis.invert_yaxis()
            axis.set_title(f"{graph}: {title}", fontsize=9)
            axis.tick_params(labelsize=7)
    figure.tight_layout()
    path = (folder or job_folder() or Path()) / FILE_NAME
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def _label(row: dict[str, object]) -> str:
    label = f"{row['method']} {row.get('dtype')}, {row.get('variant')}, P={row['ranks']}"
    return f"{label} (failed)" if "error" in row else label
