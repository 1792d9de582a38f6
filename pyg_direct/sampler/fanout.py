"""How many neighbours to sample, by edge type and hop."""

from typing import Any

from torch_geometric.sampler import NumNeighbors
from torch_geometric.typing import EdgeTypeStr

from pyg_direct.sampler.relation import EdgeType


def read_fanouts(num_neighbors: Any, edge_types: list[EdgeType]) -> dict[EdgeType, list[int]]:
    """Return one fan-out a hop for each edge type.

    Parameters
    ----------
    num_neighbors : list of int, dict, or NumNeighbors
        A list holds for every edge type. Keys of a dict are edge types, or their names joined by
        ``"__"``. -1 is all neighbours.
    edge_types : list
        ``[None]`` for a homogeneous graph.

    Raises
    ------
    ValueError
        If a fan-out is below -1 or not whole, a dict has an edge type that the graph has not or
        lacks one, or edge types differ in their number of hops.
    """
    default = None
    if isinstance(num_neighbors, NumNeighbors):
        num_neighbors, default = num_neighbors.values, num_neighbors.default
    if not isinstance(num_neighbors, dict):
        fanouts = {kind: list(num_neighbors) for kind in edge_types}
    else:
        fanouts = _from_dict(num_neighbors, default, edge_types)
    if len({len(hops) for hops in fanouts.values()}) > 1:
        raise ValueError(
            f"Number of hops must be the same across all edge types: num_neighbors is {fanouts}"
        )
    for kind, hops in fanouts.items():
        if any(int(fanout) != fanout or fanout < -1 for fanout in hops):
            raise ValueError(
                f"num_neighbors of edge type {kind} is {hops}, expected whole numbers from -1 on"
            )
    return {kind: [int(fanout) for fanout in hops] for kind, hops in fanouts.items()}


def _from_dict(
    given: dict[Any, list[int]], default: list[int] | None, edge_types: list[EdgeType]
) -> dict[EdgeType, list[int]]:
    # Joined names can be those of two edge types, so that tuples are looked up first.
    by_name = {kind if isinstance(kind, str) else "__".join(kind): kind for kind in given}
    names = {kind: str(EdgeTypeStr(kind)) for kind in edge_types if kind is not None}
    unknown = set(by_name) - set(names.values())
    if unknown:
        raise ValueError(
            "Not all edge types specified in 'num_neighbors' exist in the graph: "
            f"{sorted(unknown)}; the graph has {edge_types}"
        )
    fanouts: dict[EdgeType, list[int]] = {}
    for kind in edge_types:
        hops = given.get(kind, given.get(by_name.get(names[kind]))) if kind else None
        hops = default if hops is None else hops
        if hops is None:
            raise ValueError(f"Missing number of neighbors for edge type '{kind}'")
        fanouts[kind] = list(hops)
    return fanouts
