"""Full-batch GCN beside PyG's own in one run: time, memory, its prediction, and overlap.

Each measurement is printed as soon as it is there. Graphs are generated on the device; every
method starts from the same parameters and runs as many epochs, so their losses compare.
"""

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from experiments.datasets.undirected import UndirectedGraph, power_law_undirected
from experiments.device import choose_device
from experiments.fullbatch_baseline import time_pyg
from experiments.fullbatch_picture import draw_benchmark
from experiments.overlap import hidden_share
from experiments.table import Rows, render_table
from experiments.timing import time_epochs
from pyg_direct.fullbatch import FullBatchGNN, FullBatchTrainer, GraphSource, Ranks, spawn_ranks
from pyg_direct.fullbatch.staged_product import Trace

GIB = 2.0**30
GRAPH_KEYS = ("num_nodes", "num_edges", "num_features", "num_classes")


def run(
    *,
    graphs: list[dict[str, Any]],
    num_ranks: list[int],
    num_layers: int = 3,
    lr: float = 0.01,
    warmup: int = 3,
    repeats: int = 10,
    timeout_s: float = 120.0,
    picture: bool = True,
    device: str | None = None,
    seed: int = 42,
) -> Rows:
    """Measure every graph with PyG and with each variant; return the rows of the result table.

    Parameters
    ----------
    graphs : list of dict
        ``name``, the sizes of ``power_law_undirected``, ``hidden_channels``, ``features`` (device
        or host), ``pyg`` (index types of PyG's runs), and ``variants``: lists of ``[dtype,
        engine, column_block]``, null for the default. May have ``num_ranks``, ``warmup`` and
        ``repeats`` of its own.
    num_ranks : list of int
        Numbers of ranks to measure; ranks beyond one are spawned.
    num_layers : int
    lr : float
        Of Adam.
    warmup, repeats : int
        Epochs before and while the clock runs.
    timeout_s : float
        Longest wait for another rank, in seconds.
    picture : bool
        Also draw ``fullbatch.png`` in Hydra's folder.
    device : str or None
        See ``choose_device``.
    seed : int
        Of the weights.
    """
    place = choose_device(device)
    options = {"num_layers": num_layers, "lr": lr, "seed": seed}
    options |= {"warmup": warmup, "repeats": repeats}
    rows: Rows = []
    for graph in graphs:
        start = len(rows)
        own_options = options | {key: graph[key] for key in ("warmup", "repeats") if key in graph}
        for count in graph.get("num_ranks", num_ranks):
            rows += _rows_of_ranks(graph, own_options, count, place, timeout_s)
        for index_dtype in graph["pyg"]:
            rows.append(_shown(_pyg_row(graph, own_options, index_dtype, place)))
        _compare(rows[start:])
        print(f"\n{render_table(rows[start:])}\n", flush=True)
    if picture:
        draw_benchmark(rows)
    return rows


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    fields = (f"{name} {_text(value)}" for name, value in row.items() if value is not None)
    print(" | ".join(fields), flush=True)
    return row


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _generate(graph: dict[str, Any], device: torch.device) -> UndirectedGraph:
    return power_law_undirected(**{key: graph[key] for key in GRAPH_KEYS}, device=device)


def _model(graph: dict[str, Any], options: dict[str, Any]) -> FullBatchGNN:
    torch.manual_seed(options["seed"])
    return FullBatchGNN(
        in_channels=graph["num_features"],
        hidden_channels=graph["hidden_channels"],
        num_layers=options["num_layers"],
        out_channels=graph["num_classes"],
    )


def _free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _pyg_row(
    graph: dict[str, Any], options: dict[str, Any], index_dtype: str, device: torch.device
) -> dict[str, Any]:
    row = {"graph": graph["name"], "method": "pyg", "ranks": 1, "dtype": "float32"}
    row["variant"] = f"{index_dtype} indices"
    try:
        times = time_pyg(
            _generate(graph, device),
            state=_model(graph, options).state_dict(),
            hidden_channels=graph["hidden_channels"],
            num_layers=options["num_layers"],
            num_classes=graph["num_classes"],
            lr=options["lr"],
            warmup=options["warmup"],
            repeats=options["repeats"],
            index_dtype=getattr(torch, index_dtype),
        )
    except RuntimeError as error:
        # Out of memory, or a form of the graph that this torch does not multiply.
        row["error"] = str(error).partition(" GPU ")[0].partition("\n")[0]
    else:
        row |= times.row()
    _free(device)
    return row


def _rows_of_ranks(
    graph: dict[str, Any],
    options: dict[str, Any],
    num_ranks: int,
    device: torch.device,
    timeout_s: float,
) -> Rows:
    rows: Rows = []
    try:
        for row in _measured(graph, options, num_ranks, device, timeout_s):
            rows.append(row)
    except (RuntimeError, ProcessExitedException, ProcessRaisedException) as error:
        # One graph that does not fit must not cost the table of the others.
        failed = {"graph": graph["name"], "method": "pyg_direct", "ranks": num_ranks}
        rows.append(_shown(failed | {"error": str(error).strip().rpartition("\n")[2]}))
    _free(device)
    return rows


def _measured(
    graph: dict[str, Any],
    options: dict[str, Any],
    num_ranks: int,
    device: torch.device,
    timeout_s: float,
) -> Iterator[dict[str, Any]]:
    if num_ranks == 1:
        yield from measure(Ranks(device=device), graph, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        args = (graph, options, folder)
        spawn_ranks(
            _measure_rank, num_ranks, args=args, device_type=device.type, timeout_s=timeout_s
        )
        yield from torch.load(Path(folder) / "rows.pt", weights_only=True)


def _measure_rank(
    ranks: Ranks, graph: dict[str, Any], options: dict[str, Any], folder: str
) -> None:
    rows = list(measure(ranks, graph, options))
    if ranks.rank == 0:
        torch.save(rows, Path(folder) / "rows.pt")


def measure(
    ranks: Ranks, graph: dict[str, Any], options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each variant of a graph; every rank must exhaust it.

    Parameters
    ----------
    ranks : Ranks
    graph, options : dict
        See ``run``.
    """
    for dtype, engine, block in graph["variants"]:
        trainer = FullBatchTrainer(
            _model(graph, options),
            GraphSource(_as_stores(_generate(graph, ranks.device))),
            ranks=ranks,
            lr=options["lr"],
            weight_decay=0.0,
            features=graph["features"],
            dtype=getattr(torch, dtype),
            engine=engine,
            column_block=block,
        )
        with trainer:
            _free(ranks.device)
            row = {"graph": graph["name"], "method": "pyg_direct"}
            row |= {"ranks": ranks.num_ranks, "dtype": dtype}
            row["variant"] = _variant(trainer, is_default=engine is None)
            row |= _measure_variant(trainer, options)
            yield _shown(row) if ranks.rank == 0 else row
        del trainer
        _free(ranks.device)


def _variant(trainer: FullBatchTrainer, *, is_default: bool) -> str:
    product = trainer.graph.propagation.product
    text = f"{product.engine}, {product.column_block or 'all'} columns"
    return f"{text} (default)" if is_default else text


def _as_stores(graph: UndirectedGraph) -> tuple[UndirectedGraph, UndirectedGraph]:
    return graph, graph


def _measure_variant(trainer: FullBatchTrainer, options: dict[str, Any]) -> dict[str, Any]:
    ranks, product = trainer.ranks, trainer.graph.propagation.product
    plan = trainer.watch_memory()
    if ranks.rank == 0:
        print(plan, flush=True)
    times = time_epochs(
        trainer.train_epoch,
        device=ranks.device,
        warmup=options["warmup"],
        repeats=options["repeats"],
    )
    row: dict[str, Any] = {
        **times.row(),
        "predicted_gib": plan.total_bytes / GIB,
        "balance": trainer.balance.rows,
    }
    if times.peak_bytes:
        row["peak_over_predicted"] = times.peak_bytes / plan.total_bytes
    if ranks.num_ranks > 1:
        product.trace = Trace(ranks.device)
        trainer.train_epoch()
        row["hidden_share"] = hidden_share(product.trace.spans())
        product.trace = None
    return row


def _compare(rows: Rows) -> None:
    """Add speedups and shares of memory against PyG's fastest run, and against one rank."""
    for row in rows:
        alone = [other for other in rows if _is_same_on_one_rank(row, other)]
        if alone and row["ranks"] > 1:
            row["speedup_over_one_rank"] = alone[0]["epoch_ms"] / row["epoch_ms"]
    measured = [row for row in rows if row["method"] == "pyg" and "epoch_ms" in row]
    if not measured:
        return
    fastest = min(measured, key=lambda row: row["epoch_ms"])
    for row in rows:
        if "epoch_ms" in row:
            row["speedup_over_pyg"] = fastest["epoch_ms"] / row["epoch_ms"]
            row["loss_minus_pyg"] = row["loss"] - fastest["loss"]
            if fastest["peak_gib"]:
                row["peak_over_pyg"] = row["peak_gib"] / fastest["peak_gib"]


def _is_same_on_one_rank(row: dict[str, Any], other: dict[str, Any]) -> bool:
    same = all(row.get(key) == other.get(key) for key in ("method", "dtype", "variant"))
    return same and other["ranks"] == 1 and "epoch_ms" in row and "epoch_ms" in other
