"""All edges between the nodes of a batch."""

from dataclasses import replace

import torch
from torch import Tensor

from pyg_direct.sampler.edges import Draw, HopEdges, Level
from pyg_direct.sampler.hops import Sampled
from pyg_direct.sampler.nodes import BatchNodes
from pyg_direct.sampler.relation import EdgeType, NodeType, Relation
from pyg_direct.sampler.stages import Stages


def induce(
    sampled: Sampled,
    relations: list[Relation],
    nodes: dict[NodeType, BatchNodes],
    *,
    stages: Stages,
    draw: Draw,
) -> Sampled:
    """Replace the sampled edges by all edges between the sampled nodes.

    They come in the order of their frontier node.

    Parameters
    ----------
    sampled : Sampled
        A finished batch.
    relations, nodes, stages, draw
        With which it was made. Time bounds the edges as it did the sampled ones; in disjoint trees
        an edge stays in one tree.

    Notes
    -----
    Reads whole neighbourhoods: work and memory are those of the sum of degrees.
    """
    row: dict[EdgeType, Tensor] = {}
    col: dict[EdgeType, Tensor] = {}
    edge: dict[EdgeType, Tensor] = {}
    for relation in relations:
        edges = _all_edges(sampled, relation, stages, draw)
        if edges.bound > 0:
            nodes[relation.neighbor_type].relabel(edges)
        kept = (edges.source >= 0).nonzero().view(-1)
        row[relation.edge_type] = edges.source[kept]
        col[relation.edge_type] = edges.column[kept]
        edge[relation.edge_type] = edges.edge[kept]
    return replace(sampled, row=row, col=col, edge=None if sampled.edge is None else edge)


def _all_edges(sampled: Sampled, relation: Relation, stages: Stages, draw: Draw) -> HopEdges:
    node = sampled.node[relation.frontier_type]
    tree = None if sampled.batch is None else sampled.batch[relation.frontier_type]
    totals = torch.tensor([0, node.numel(), 0]).to(node.device)
    frontier = Level(node=node, totals=totals, place=0, tree=tree)
    edges = HopEdges(
        relation=relation,
        frontier=frontier,
        draw=draw.for_relation(relation, fanout=-1, stream=0, edges_place=2),
    )
    bound = 0
    if node.numel() > 0 and relation.num_edges > 0:
        stages.count(edges)
        bound = int(edges.ends[-1])
    edges.allocate_edges(bound)
    if bound > 0:
        stages.draw(edges)
        stages.pick(edges)
    return edges
