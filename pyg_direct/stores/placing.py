"""Place a graph under one budget of device memory."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pyg_direct.stores import scores as ways
from pyg_direct.stores.feature import DirectFeatureStore
from pyg_direct.stores.graph import DirectGraphStore
from pyg_direct.stores.placement import (
    RESERVE_BYTES,
    PlacedTensor,
    Placement,
    place_rows,
    plan_placement,
    resolve_budget,
    without_last_topology,
)
from pyg_direct.stores.ranking import Ranking

DEGREE, PAGERANK, WEIGHTED = "degree", "reverse_pagerank", "weighted_reverse_pagerank"
SCORES = (DEGREE, PAGERANK, WEIGHTED)

Score = str | Tensor | Mapping[Any, Tensor]


def place(
    feature_store: DirectFeatureStore,
    graph_store: DirectGraphStore,
    budget_bytes: int | str = "auto",
    *,
    score: Score = PAGERANK,
    seeds: Any = None,
    reserve_bytes: int = RESERVE_BYTES,
) -> Placement:
    """Bring what is read most to the device: pointers, then edges, then hot rows of nodes.

    Parameters
    ----------
    feature_store, graph_store : stores
        The graph. Hot rows are copied at once; topology by samplers that are made afterwards. An
        earlier placement is given up first.
    budget_bytes : int or str
        For all of it together. ``"auto"``: the free device memory less ``reserve_bytes``, nothing
        on the CPU.
    score : str, or tensor, or mapping of tensors by node type
        How often nodes are read: ``"degree"``, ``"reverse_pagerank"``,
        ``"weighted_reverse_pagerank"`` from ``seeds``, or numbers of 0 or more, one a node, as
        ``count_accesses`` gives them.
    seeds : index, or mapping of indices by node type, optional
        The training nodes, for the weighted score.
    reserve_bytes : int
        What ``"auto"`` leaves for model and batches.

    Returns
    -------
    Placement
        What stands where; its ``explain`` prints it. The feature store keeps it too.

    Raises
    ------
    ValueError
        If an argument has no meaning, or scores do not fit the tensors.

    Notes
    -----
    Where memory runs out before the budget does, the plan shrinks, with a warning that says how.
    """
    feature_store.clear_hot()
    device = feature_store.device
    budget = resolve_budget(budget_bytes, device, reserve_bytes)
    rankings = {
        kind: Ranking(repr(kind), values, device)
        for kind, values in _scores(graph_store, score, seeds, device).items()
    }
    plan = plan_placement(feature_store, graph_store, budget, rankings)
    # Rows must leave the room that samplers will want.
    held, plan = _hold_topology(plan)
    tensors = tuple(
        _make_hot(feature_store, each, rankings) if _has_hot_rows(feature_store, each) else each
        for each in plan.tensors
    )
    del held
    plan = replace(plan, tensors=tensors)
    graph_store.placement, feature_store.placement = plan.topology, plan
    return plan


def _scores(
    graph_store: DirectGraphStore, score: Score, seeds: Any, device: torch.device
) -> Mapping[Any, Tensor]:
    if isinstance(score, Tensor):
        return {None: score}
    if isinstance(score, Mapping):
        return score
    if score not in SCORES or (score == WEIGHTED) != (seeds is not None):
        raise ValueError(
            f"score is {score!r} and seeds are {'not ' if seeds is None else ''}given, expected "
            f"one of {SCORES} or numbers for each node, and seeds for {WEIGHTED!r} alone"
        )
    if score == DEGREE:
        return ways.degree(graph_store, device=device)
    return ways.reverse_pagerank(graph_store, seeds=seeds, device=device)


def _hold_topology(plan: Placement) -> tuple[Tensor | None, Placement]:
    """Take as much memory as the topology will, or have less of it on the device."""
    num_bytes = sum(each.device_bytes for each in plan.tensors if each.key is None)
    if not num_bytes:
        return None, plan
    try:
        return torch.empty(num_bytes, dtype=torch.uint8, device=plan.device), plan
    except torch.OutOfMemoryError:
        less = without_last_topology(plan)
        warnings.warn(
            f"device memory ran out: topology is {less.topology!r} instead of {plan.topology!r}; "
            "give a smaller budget_bytes, or a larger reserve_bytes with 'auto'",
            stacklevel=3,
        )
        return _hold_topology(less)


def _has_hot_rows(feature_store: DirectFeatureStore, placed: PlacedTensor) -> bool:
    return placed.key is not None and placed.num_hot > 0 and feature_store.is_on_host(*placed.key)


def _make_hot(
    feature_store: DirectFeatureStore, placed: PlacedTensor, rankings: Mapping[Any, Ranking]
) -> PlacedTensor:
    """Copy hot rows, fewer where memory runs out, and return what was done."""
    group, name = placed.key or (None, None)
    ranking, num_hot = rankings[group], placed.num_hot
    while num_hot:
        try:
            feature_store.set_hot(
                group, name, ranking.order[:num_hot], host_share=1 - ranking.share(num_hot)
            )
            break
        except torch.OutOfMemoryError:
            feature_store.set_hot(group, name, ranking.order[:0])
            num_hot //= 2
    if num_hot < placed.num_hot:
        warnings.warn(
            f"device memory ran out: {num_hot:,} instead of {placed.num_hot:,} rows of "
            f"{placed.name} are hot, the others stay in host memory; give a smaller budget_bytes, "
            "or a larger reserve_bytes with 'auto'",
            stacklevel=3,
        )
    return place_rows((group, name), feature_store.table(group, name), num_hot, ranking)
