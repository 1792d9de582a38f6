"""How long a batch of sampling takes, by graph, method, device and placement of the topology.

The baseline is the same sampler on the CPU with all threads, in the same run; pyg-lib is measured
too where it is installed. A time is that of the whole call, from seeds on the CPU to a batch on
the device, with the GPU idle before and after.
"""

import time
from collections.abc import Callable, Iterator
from statistics import mean, median, quantiles
from typing import Any

import numba
import torch
from torch import Tensor
from torch_geometric.sampler import NodeSamplerInput

from experiments.device import choose_device
from experiments.pictures import draw_bars
from experiments.power_law import make_power_law
from experiments.pyg_lib import make_pyg_lib_sampler
from pyg_direct import DirectFeatureStore, DirectGraphStore, DirectNeighborSampler
from pyg_direct.stores import HOMOGENEOUS_EDGES

Graph = tuple[DirectFeatureStore, DirectGraphStore]
Sample = Callable[[Tensor, int], Any]

METHODS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "replaced": {"replace": True},
    "disjoint": {"disjoint": True},
    "weighted": {"weight_attr": "weight"},
    "temporal": {"time_attr": "time"},
    "latest": {"time_attr": "time", "temporal_strategy": "last"},
}
NUM_WARM_UPS = 3


def run(
    *,
    graphs: dict[str, dict[str, Any]],
    num_neighbors: list[int],
    batch_size: int,
    placements: list[str],
    num_batches: int,
    num_cpu_batches: int,
    device: str | None = None,
    seed: int = 42,
) -> list[dict[str, Any]]:
    """Measure every combination and return a row of the result table for each.

    A row is printed as soon as it is there. Hydra's output folder gets a picture.

    Parameters
    ----------
    graphs : dict
        By name: ``num_nodes``, ``num_edges``, and ``methods``, names in ``METHODS``; None leaves
        a graph out.
    num_neighbors : list of int
        Fan-outs.
    batch_size : int
        Seeds a batch.
    placements : list of str
        Of the topology, for a GPU: ``"device"``, ``"colptr"``, ``"mapped"``.
    num_batches, num_cpu_batches : int
        Batches measured, on a GPU and on the CPU.
    device : str or None
        See ``choose_device``; the CPU is measured in any case.
    seed : int
        Of graphs and sampling.

    Raises
    ------
    ValueError
        If a method is unknown.
    """
    place = choose_device(device)
    graphs = {name: options for name, options in graphs.items() if options}
    _check_methods(graphs)
    rows: list[dict[str, Any]] = []
    for name, options in graphs.items():
        sizes = {key: int(options[key]) for key in ("num_nodes", "num_edges")}
        graph = make_power_law(**sizes, seed=seed, device=place)
        for method in options["methods"]:
            cases = _cases(graph, method, placements, num_neighbors, place, seed)
            for where, sample in cases:
                count = num_cpu_batches if where["device"] == "cpu" else num_batches
                numbers = _measure(sample, graph, batch_size, count, seed)
                row = {"graph": name, "method": method, **where, **numbers}
                row["speedup"] = _speedup(rows, row)
                rows.append(row)
                print(_line(row), flush=True)
    draw_bars(rows, "sampling.png")
    return rows


def _check_methods(graphs: dict[str, dict[str, Any]]) -> None:
    unknown = {each for options in graphs.values() for each in options["methods"]} - set(METHODS)
    if unknown:
        raise ValueError(f"methods {sorted(unknown)} are unknown, expected some of {[*METHODS]}")


def _cases(
    graph: Graph,
    method: str,
    placements: list[str],
    num_neighbors: list[int],
    place: torch.device,
    seed: int,
) -> Iterator[tuple[dict[str, str], Sample]]:
    """Yield where to sample and how: first the CPU, then others, one at a time."""
    _add_attributes(graph, method)
    options = {**METHODS[method], "seed": seed}
    on_cpu = _direct(graph, num_neighbors, device="cpu", **options)
    yield {"device": "cpu", "topology": "host"}, on_cpu
    other = make_pyg_lib_sampler(graph, num_neighbors, METHODS[method])
    if other is not None:
        yield {"device": "cpu", "topology": "host, pyg-lib"}, other
    if place.type == "cuda":
        for topology in placements:
            sample = _direct(graph, num_neighbors, device=place, topology=topology, **options)
            yield {"device": str(place), "topology": topology}, sample


def _add_attributes(graph: Graph, method: str) -> None:
    """Give the edges a weight, or a time that rises along each neighbourhood."""
    features, edges = graph
    num_edges = edges.topology(None).num_edges
    for attr in ("weight", "time"):
        if attr in METHODS[method].values():
            values = torch.rand(num_edges) + 0.1 if attr == "weight" else torch.arange(num_edges)
            features.put_tensor(values, group_name=HOMOGENEOUS_EDGES, attr_name=attr, index=None)


def _direct(graph: Graph, num_neighbors: list[int], **options: Any) -> Sample:
    sampler = DirectNeighborSampler(graph, num_neighbors, **options)
    latest = graph[1].topology(None).num_edges

    def sample(seeds: Tensor, batch: int) -> Any:
        time = torch.full_like(seeds, latest) if sampler.is_temporal else None
        return sampler.sample_from_nodes(NodeSamplerInput(None, seeds, time), batch=batch)

    return sample


def _measure(
    sample: Sample, graph: Graph, batch_size: int, num_batches: int, seed: int
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    num_nodes = max(graph[1].topology(None).size)
    times_ms, nodes, edges = [], [], []
    for batch in range(NUM_WARM_UPS + num_batches):
        seeds = torch.randint(num_nodes, (batch_size,), generator=generator)
        _wait()
        start = time.perf_counter()
        out = sample(seeds, batch)
        _wait()
        if batch >= NUM_WARM_UPS:
            times_ms.append((time.perf_counter() - start) * 1e3)
            nodes.append(out.node.numel())
            edges.append(out.row.numel())
    low, _, high = quantiles(times_ms, n=4) if num_batches > 1 else (times_ms * 3)
    return {
        "ms": median(times_ms),
        "ms_q1": low,
        "ms_q3": high,
        "nodes": mean(nodes),
        "edges": mean(edges),
        "edges_per_s": mean(edges) / median(times_ms) * 1e3,
        "batches": num_batches,
        "threads": numba.get_num_threads(),
    }


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _speedup(rows: list[dict[str, Any]], row: dict[str, Any]) -> float:
    """Return how many times faster a row is than the first of its graph and method."""
    for each in rows:
        if (each["graph"], each["method"]) == (row["graph"], row["method"]):
            return float(each["ms"] / row["ms"])
    return 1.0


def _line(row: dict[str, Any]) -> str:
    spread = f"[{row['ms_q1']:.3f}, {row['ms_q3']:.3f}]"
    return (
        f"{row['graph']:>8} {row['method']:>9} {row['device']:>7} {row['topology']:<14} "
        f"{row['ms']:9.3f} ms {spread}  {row['edges']:>10,.0f} edges "
        f"{row['edges_per_s'] / 1e6:9.1f} M edges/s  {row['speedup']:6.1f} x"
    )
