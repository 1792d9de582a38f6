"""Seconds of an epoch of GraphSAGE: rows in host memory, in GPU memory, or staged by the CPU.

All cases train the same model on the same graph in one run. The first case is the baseline that the
others are compared with. Each is warmed up, and then timed over epochs of a fixed number of
batches; the epoch of median time counts. Where all cases fit into memory at once they take turns,
an epoch each, so that what changes on the machine meanwhile changes for all of them. A case that
makes nothing ahead (``depth: 0``) also tells how long each stage takes alone: ``sample_s`` and
``gather_s`` are that then, and ``train_alone_s`` is the time of an epoch whose batches were all
made before. They are new ones each time, as in a pipeline: batches that were trained on before take
less.
"""

import time
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from experiments.device import choose_device
from experiments.minibatch_case import Batches, Case, Graph, make_batches, make_graph
from experiments.pictures import draw_timeline
from experiments.stages import wait_for
from pyg_direct.loader.stats import StageSpan

NUM_WARM_UPS = 12


def run(
    *,
    graph: dict[str, Any],
    cases: list[dict[str, Any]],
    num_neighbors: list[int],
    batch_size: int,
    hidden_channels: int,
    num_batches: int,
    num_epochs: int,
    trim: bool,
    take_turns: bool = False,
    device: str | None = None,
    seed: int = 42,
) -> list[dict[str, Any]]:
    """Measure every case and return a row of the result table for each.

    A row is printed as soon as it is there. Hydra's output folder gets a timeline of each case.

    Parameters
    ----------
    graph : dict
        ``num_nodes``, ``num_edges``, ``num_features``, ``num_classes``, ``quadrants``.
    cases : list of dict
        See ``Case``. Those that need a GPU are left out, and named, where the run has none.
    num_neighbors : list of int
        Fan-outs, one a layer.
    batch_size : int
        Seeds a batch.
    hidden_channels : int
        Of GraphSAGE.
    num_batches, num_epochs : int
        Batches of an epoch, and epochs timed.
    trim : bool
        Leave out of each layer what no later one reads, as PyG's ``trim_to_layer`` does.
    take_turns : bool
        Keep all cases in memory, and time an epoch of each in turn; or one case after the other.
    device : str or None
        See ``choose_device``.
    seed : int
        Of the graph, the weights and the sampler.
    """
    place = choose_device(device)
    chosen = [Case(**each) for each in cases]
    start_s = time.perf_counter()
    data = make_graph(**graph, seed=seed, device=place)
    wait_for(place)
    print(f"graph: {data.num_edges:,} edges in {time.perf_counter() - start_s:.1f} s", flush=True)
    options = {
        "seeds": data.seeds(batch_size * num_batches, seed=seed), "num_neighbors": num_neighbors,
        "batch_size": batch_size, "seed": seed, "device": place,
    }  # fmt: skip
    usable = [case for case in chosen if place.type == "cuda" or not case.needs_gpu]
    for case in chosen:
        if case not in usable:
            print(f"left out: {case.name}, which needs a GPU", flush=True)

    def time_cases(cases: list[Case]) -> list[_Timing]:
        timings = []
        for case in cases:
            model = _make_model(data, hidden_channels, len(num_neighbors), seed).to(place)
            batches = make_batches(data, case, **options)
            timings.append(_Timing(batches, _Trainer(model, trim), place, case.depth == 0))
        for _ in range(num_epochs):
            for timing in timings:
                timing.time_epoch()
        return timings

    rows: list[dict[str, Any]] = []
    spans = {}
    # What is not timed together is in memory one after the other.
    for together in [usable] if take_turns else [[case] for case in usable]:
        results = [each.result() for each in time_cases(together)]
        for case, (numbers, spans[case.name]) in zip(together, results, strict=True):
            row = {"case": case.name, **asdict(case), **numbers}
            rows.append({**row, **_compare(rows, row)})
            print(_line(rows[-1]), flush=True)
    draw_timeline(spans, "timeline.png")
    return rows


def _make_model(data: Graph, hidden_channels: int, num_layers: int, seed: int) -> GraphSAGE:
    torch.manual_seed(seed)
    return GraphSAGE(data.num_features, hidden_channels, num_layers, data.num_classes)


class _Trainer:
    def __init__(self, model: GraphSAGE, trim: bool) -> None:
        self._model, self._trim = model, trim
        self._optimizer = torch.optim.Adam(model.parameters(), lr=0.003, fused=True)

    def train(self, batches: Iterable[Data]) -> Tensor:
        """Train on batches; returns the sum of losses, on the device, without waiting."""
        total: Any = 0
        for batch in batches:
            sizes = {}
            if self._trim:
                sizes = {
                    "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
                    "num_sampled_edges_per_hop": batch.num_sampled_edges,
                }
            out = self._model(batch.x, batch.edge_index, **sizes)[: batch.batch_size]
            loss = cross_entropy(out, batch.y[: batch.batch_size])
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            total = total + loss.detach()
        return torch.as_tensor(total)


class _Timing:
    """Times epochs of one case, after a part of one that warms up."""

    def __init__(
        self, batches: Batches, trainer: _Trainer, place: torch.device, is_training_alone: bool
    ) -> None:
        self._batches, self._trainer, self._place = batches, trainer, place
        self._epochs: list[tuple[dict[str, Any], tuple[StageSpan, ...]]] = []
        self._is_training_alone, self._alone_s = is_training_alone, list[float]()
        trainer.train(islice(batches, NUM_WARM_UPS))
        wait_for(place)

    def time_epoch(self) -> None:
        """Time an epoch, and where that is asked for, training on one that was made before."""
        self._epochs.append(_measure_epoch(self._batches, self._trainer, self._place))
        if self._is_training_alone:
            batches = list(self._batches)
            wait_for(self._place)
            start_s = time.perf_counter()
            self._trainer.train(batches)
            wait_for(self._place)
            self._alone_s.append(time.perf_counter() - start_s)

    def result(self) -> tuple[dict[str, Any], tuple[StageSpan, ...]]:
        """Return the numbers of the epoch of median time, and its stages."""
        middle = len(self._epochs) // 2
        row, spans = sorted(self._epochs, key=lambda epoch: epoch[0]["epoch_s"])[middle]
        alone_s = sorted(self._alone_s)[middle] if self._is_training_alone else None
        return row | {"train_alone_s": alone_s}, spans


def _measure_epoch(
    batches: Batches, trainer: _Trainer, place: torch.device
) -> tuple[dict[str, Any], tuple[StageSpan, ...]]:
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    loss = trainer.train(batches)
    wait_for(place)
    epoch_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    stats = batches.stats()[-1]
    row = {
        "epoch_s": epoch_s,
        "ms_a_batch": epoch_s / len(batches) * 1e3,
        "cpu_s": cpu_s,
        "sample_s": stats.sample_s,
        "gather_s": stats.gather_s,
        "train_s": stats.train_s,
        "wait_s": stats.wait_s,
        "idle_share": stats.idle_share,
        "hit_share": stats.hit_share,
        "gather_gb_per_s": stats.gather_gb_per_s,
        "host_mb_a_batch": stats.host_bytes / len(batches) / 1e6,
        "batches": len(batches),
        "loss": float(loss) / len(batches),
    }
    return row, stats.spans


def _compare(rows: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, float | None]:
    """Relate a row to those before it: the baseline, the GPU's memory, and the slowest stage."""
    first = rows[0] if rows else row
    so_far = [*rows, row]
    near = [each["epoch_s"] for each in so_far if each["rows"] == "device"]
    place = ("rows", "sampler", "topology")
    alone = [
        max(each["sample_s"], each["gather_s"], each["train_alone_s"])
        for each in so_far
        if each["depth"] == 0 and all(each[name] == row[name] for name in place)
    ]
    return {
        "speedup": first["epoch_s"] / row["epoch_s"],
        "cpu_share": row["cpu_s"] / first["cpu_s"],
        "to_device": row["epoch_s"] / min(near) if near else None,
        "to_slowest_stage": row["epoch_s"] / alone[0] if alone else None,
    }


def _line(row: dict[str, Any]) -> str:
    ratios = "".join(
        f"  {name} {row[name]:.2f}"
        for name in ("speedup", "cpu_share", "to_device", "to_slowest_stage")
        if row[name] is not None
    )
    return (
        f"{row['case']:<32} {row['epoch_s']:8.3f} s {row['ms_a_batch']:8.2f} ms a batch, "
        f"cpu {row['cpu_s']:7.2f} s | sample {row['sample_s']:6.2f} gather {row['gather_s']:6.2f} "
        f"({row['gather_gb_per_s']:5.1f} GB/s, {row['host_mb_a_batch']:6.1f} MB a batch) train "
        f"{row['train_s']:6.2f} wait {row['wait_s']:6.2f} |{ratios}  loss {row['loss']:.4f}"
    )
