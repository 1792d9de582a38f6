"""How much a budget of hot rows saves, by score: hit rate, bytes over the bus, time of a gather.

A graph, features whose words are the ids of their rows, and batches of a sampler are made once;
then each score ranks the nodes, and each budget is tried. What a score is worth is what its hot
rows catch of batches that it has not seen.
"""

import time
from collections.abc import Iterator
from statistics import mean, median
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import NodeSamplerInput

from experiments.bandwidth import timed
from experiments.device import choose_device
from experiments.rmat_stores import make_rmat
from experiments.tiers_picture import draw_tiers
from pyg_direct import DirectFeatureStore, DirectGraphStore, DirectNeighborSampler
from pyg_direct.memory import MappedArray
from pyg_direct.stores import count_accesses, degree, expected_accesses, reverse_pagerank
from pyg_direct.stores.ranking import Ranking
from pyg_direct.tables import Request, TieredTable

SCORES = ("degree", "reverse_pagerank", "weighted_reverse_pagerank", "presampled", "expected")
ROWS_PER_PIECE = 1 << 22
NUM_CHECKED = 10_000
NUM_WARM_UPS = 2


def run(
    *,
    num_nodes: int,
    num_edges: int,
    quadrants: list[float],
    num_features: int,
    train_share: float,
    num_neighbors: list[int],
    batch_size: int,
    scores: list[str],
    budget_shares: list[float],
    num_batches: int,
    num_presampled: int,
    device: str | None = None,
    seed: int = 42,
) -> list[dict[str, Any]]:
    """Measure every score at every budget and return a row of the result table for each.

    A row is printed as soon as it is there. Hydra's output folder gets a picture.

    Parameters
    ----------
    num_nodes, num_edges, quadrants
        See ``experiments.rmat_stores.make_rmat``.
    num_features : int
        Of float32 size, a row.
    train_share : float
        Share of the nodes that are seeds.
    num_neighbors, batch_size
        Of the sampler.
    scores : list of str
        Some of ``SCORES``.
    budget_shares : list of float
        Budgets, as shares of the bytes of all features. 1 compares with torch's ``index_select``.
    num_batches, num_presampled : int
        Batches that are measured, and others that are counted for ``"presampled"``.
    device : str or None
        See ``choose_device``.
    seed : int
        Of graph, seeds and sampling.

    Raises
    ------
    ValueError
        If a score is unknown.
    """
    if not set(scores) <= set(SCORES):
        raise ValueError(f"scores are {scores}, expected some of {[*SCORES]}")
    place = choose_device(device)
    begin = time.perf_counter()
    graph_store, _memory = make_rmat(
        num_nodes=num_nodes, num_edges=num_edges, quadrants=quadrants, seed=seed, device=place
    )
    table = _make_features(num_nodes, num_features, place)
    generator = torch.Generator().manual_seed(seed)
    train = torch.randperm(num_nodes, generator=generator)[: max(1, int(num_nodes * train_share))]
    sampler = DirectNeighborSampler(
        (DirectFeatureStore(place), graph_store), num_neighbors, device=place, seed=seed,
        topology="device", return_e_id=False,
    )  # fmt: skip
    batches = [*_sample(sampler, train, batch_size, num_batches, first=0)]
    seen = _sample(sampler, train, batch_size, num_presampled, first=num_batches)
    print(f"graph, features and batches: {time.perf_counter() - begin:.1f} s", flush=True)
    rows: list[dict[str, Any]] = []
    for score in scores:
        begin = time.perf_counter()
        values = (
            expected_accesses(
                graph_store, num_neighbors, batch_size=batch_size, seeds=train, device=place
            )[None]
            if score == "expected"
            else _score(score, graph_store, train, seen, place)
        )
        ranking = Ranking("None", values, place)
        score_s = time.perf_counter() - begin
        for share in budget_shares:
            row = {"score": score, "budget_share": share, "score_s": score_s}
            row |= _measure(table, ranking, batches, share)
            row["speedup"] = _none(rows, row)["gather_ms"] / row["gather_ms"]
            row["host_bytes_saved"] = 1 - row["host_mb"] / _none(rows, row)["host_mb"]
            rows.append(row)
            print(_line(row), flush=True)
    draw_tiers(rows)
    return rows


def _none(rows: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the least budget of a score, which is measured first."""
    return next((each for each in rows if each["score"] == row["score"]), row)


def _make_features(num_nodes: int, num_features: int, device: torch.device) -> TieredTable:
    memory = MappedArray.empty((num_nodes, num_features), torch.int32)
    # All cores touch the pages; registering them untouched would take one.
    memory.cpu_view().zero_()
    table = TieredTable(memory, device, name="features")
    rows = table.tensor()
    for start in range(0, num_nodes, ROWS_PER_PIECE):
        ids = torch.arange(start, min(start + ROWS_PER_PIECE, num_nodes), device=device)
        rows[start : start + ROWS_PER_PIECE] = ids[:, None].int()
    _wait(device)
    return table


def _sample(
    sampler: DirectNeighborSampler, train: Tensor, batch_size: int, num_batches: int, first: int
) -> Iterator[Tensor]:
    for batch in range(first, first + num_batches):
        generator = torch.Generator().manual_seed(batch)
        chosen = torch.randint(train.numel(), (batch_size,), generator=generator)
        out = sampler.sample_from_nodes(NodeSamplerInput(None, train[chosen]), batch=batch)
        # The sampler may use the memory again.
        yield out.node.long().clone()


def _score(
    score: str, graph_store: DirectGraphStore, train: Tensor, seen: Iterator[Tensor],
    device: torch.device,
) -> Tensor:  # fmt: skip
    if score == "degree":
        return degree(graph_store, device=device)[None]
    if score == "presampled":
        return count_accesses(seen, graph_store)[None]
    seeds = train if score == "weighted_reverse_pagerank" else None
    return reverse_pagerank(graph_store, seeds=seeds, device=device)[None]


def _measure(
    table: TieredTable, ranking: Ranking, batches: list[Tensor], share: float
) -> dict[str, Any]:
    budget_bytes = int(table.num_rows * table.row_bytes * share)
    begin = time.perf_counter()
    table.set_budget(budget_bytes, ranking.order)
    # As a placement would know it, so that plans see the misses that are expected.
    table.set_budget(budget_bytes, ranking.order, host_share=1 - ranking.share(table.num_hot))
    place_s = (time.perf_counter() - begin) / 2
    table.count_hits()
    for ids in batches:
        _check(table, ids)
    hits = table.hits
    table.count_hits(False)
    times = _times(table, batches)
    num_ids = mean(ids.numel() for ids in batches)
    payload_bytes = num_ids * table.row_bytes
    row = {
        "budget_gb": table.hot_bytes / 1e9,
        "hot_rows": table.num_hot,
        "hit_rate": hits.share,
        "expected_hit_rate": ranking.share(table.num_hot),
        "host_mb": payload_bytes * (1 - hits.share) / 1e6,
        "gather_ms": median(times) * 1e3,
        "gather_gb_per_s": payload_bytes / median(times) / 1e9,
        "place_s": place_s,
        "rows_a_batch": num_ids,
    }
    if table.num_hot == table.num_rows:
        hot = table.hot_rows()
        works = [lambda ids=ids: torch.index_select(hot, 0, ids) for ids in batches]
        plain_ms = median(timed(works, table.device)) * 1e3
        row |= {"index_select_ms": plain_ms, "of_index_select": row["gather_ms"] / plain_ms}
    return row


def _times(table: TieredTable, batches: list[Tensor]) -> list[float]:
    works = [
        lambda ids=ids: table.gather(Request(ids, is_trusted=True, is_sorted=True))
        for ids in [*batches[:NUM_WARM_UPS], *batches]
    ]
    return timed(works, table.device)[NUM_WARM_UPS - 1 :]


def _check(table: TieredTable, ids: Tensor) -> None:
    rows = table.gather(Request(ids, is_trusted=True, is_sorted=True))
    if not bool((rows[:NUM_CHECKED] == ids[:NUM_CHECKED, None]).all()):
        raise RuntimeError("the table gave rows that the ids do not name; its times mean nothing")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _line(row: dict[str, Any]) -> str:
    plain = f"  {row['of_index_select']:.2f} of index_select" if "of_index_select" in row else ""
    return (
        f"{row['score']:<26} {row['budget_share']:6.1%} {row['budget_gb']:7.2f} GB  "
        f"hits {row['hit_rate']:6.1%}  host {row['host_mb']:8.1f} MB "
        f"({row['host_bytes_saved']:6.1%} saved)  {row['gather_ms']:8.3f} ms "
        f"{row['speedup']:6.2f} x{plain}"
    )
