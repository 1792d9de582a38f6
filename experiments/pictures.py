"""Pictures of result tables."""

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig


def draw_bars(rows: list[dict[str, Any]], name: str) -> Path | None:
    """Draw ``ms`` of each row as a bar on a logarithmic axis, a panel for each graph.

    Parameters
    ----------
    rows : list of dict
        With ``graph``, ``method``, ``device``, ``topology`` and ``ms``.
    name : str
        File in Hydra's output folder; nothing is drawn outside a job of Hydra's.
    """
    if not HydraConfig.initialized():
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
    path = Path(HydraConfig.get().runtime.output_dir) / name
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path
