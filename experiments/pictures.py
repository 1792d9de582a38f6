"""Pictures of result tables."""

from pathlib import Path
from typing import Any

from experiments.job import job_folder
from pyg_direct.loader.stats import StageSpan

# More batches than these are too narrow to be seen.
MAX_BATCHES = 16
STAGES = {"sample": "tab:blue", "gather": "tab:orange", "wait": "tab:red", "train": "tab:green"}


def draw_bars(rows: list[dict[str, Any]], name: str) -> Path | None:
    """Draw ``ms`` of each row as a bar on a logarithmic axis, a panel for each graph.

    Parameters
    ----------
    rows : list of dict
        With ``graph``, ``method``, ``device``, ``topology`` and ``ms``.
    name : str
        File in Hydra's output folder; nothing is drawn outside a job of Hydra's.
    """
    folder = job_folder()
    if folder is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    height = 1 + 0.3 * max(sum(row["graph"] == graph for row in rows) for graph in graphs)
    figure, axes = pyplot.subplots(
        1, len(graphs), figsize=(6 * len(graphs), height), squeeze=False, layout="constrained"
    )
    for axis, graph in zip(axes[0], graphs, strict=True):
        bars = [row for row in rows if row["graph"] == graph]
        labels = [f"{row['method']}, {row['device']}, {row['topology']}" for row in bars]
        drawn = axis.barh(labels, [row["ms"] for row in bars])
        axis.bar_label(drawn, fmt="%.2f", padding=2)
        axis.set(title=graph, xlabel="ms a batch", xscale="log")
        axis.invert_yaxis()
    path = folder / name
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def draw_timeline(spans: dict[str, tuple[StageSpan, ...]], name: str) -> Path | None:
    """Draw when the stages of the first batches ran, a panel for each case.

    Parameters
    ----------
    spans : dict
        By case, of an epoch; see ``EpochStats``.
    name : str
        File in Hydra's output folder; nothing is drawn outside a job of Hydra's.
    """
    folder = job_folder()
    if folder is None or not spans:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(spans), 1, figsize=(10, 1.4 * len(spans)), squeeze=False, layout="constrained"
    )
    for axis, (case, drawn) in zip(axes[:, 0], spans.items(), strict=True):
        draw_stages(axis, drawn)
        axis.set_title(case, fontsize=8, loc="left")
    axes[-1, 0].set_xlabel("ms since the first batch was asked for")
    path = folder / name
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path


def draw_stages(axis: Any, spans: tuple[StageSpan, ...]) -> None:
    """Draw when stages of the first batches ran on a matplotlib axis, a line a stage, in ms.

    Parameters
    ----------
    axis : matplotlib axis
    spans : tuple of StageSpan
        Of an epoch; see ``EpochStats``.
    """
    for height, (stage, color) in enumerate(STAGES.items()):
        bars = [
            (1e3 * span.start_s, 1e3 * (span.stop_s - span.start_s))
            for span in spans
            if span.stage == stage
        ]
        axis.broken_barh(bars, (height - 0.4, 0.8), facecolors=color, edgecolor="white")
    axis.set_yticks(range(len(STAGES)), STAGES, fontsize=7)
    ends_s = sorted(span.stop_s for span in spans if span.stage == "train")
    axis.set_xlim(0, 1e3 * ends_s[:MAX_BATCHES][-1] if ends_s else None)
    axis.invert_yaxis()
