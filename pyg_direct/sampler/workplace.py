"""A device on which batches are made: the placed topology, and what is kept between batches."""

from contextlib import nullcontext

import torch
from torch import Tensor

from pyg_direct.sampler.edges import CpuStages, CudaStages, Draw, Stages
from pyg_direct.sampler.graph import SamplerGraph
from pyg_direct.sampler.hops import HopSampler, Sampled
from pyg_direct.sampler.induced import induce
from pyg_direct.sampler.nodes import BatchNodes, CpuMap, CpuNodes, CudaNodes
from pyg_direct.sampler.placement import place_relations
from pyg_direct.sampler.relation import EdgeType, NodeType
from pyg_direct.sampler.trees import TreeNodes


class Workplace:
    """Makes batches of one graph on one device.

    Threads may share it: each batch has its own state.

    Parameters
    ----------
    graph : SamplerGraph
        On the CPU; kept alive by the views that a GPU reads.
    device : torch.device
        CPU or CUDA.
    topology : str
        Placement; see ``place_relations``.
    """

    def __init__(self, graph: SamplerGraph, device: torch.device, topology: str) -> None:
        self._graph, self._device = graph, device
        self._relations = place_relations(graph.relations, device, topology)
        self._spare_maps: dict[NodeType, list[CpuMap]] = {kind: [] for kind in graph.num_nodes}

    def sample(
        self,
        seeds: dict[NodeType, Tensor],
        *,
        fanouts: dict[EdgeType, list[int]],
        draw: Draw,
        is_disjoint: bool,
        is_induced: bool,
    ) -> Sampled:
        """Make a batch on the current CUDA stream, and wait for its sizes.

        Parameters
        ----------
        seeds : dict of int64 tensors
            On the CPU, by node type.
        fanouts : dict
            For each edge type, one fan-out a hop.
        draw : Draw
            What is the same for all hops.
        is_disjoint : bool
            Every seed has a tree of its own.
        is_induced : bool
            Return all edges between the sampled nodes.
        """
        with torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext():
            return self._sample(seeds, fanouts, draw, is_disjoint, is_induced)

    def _sample(
        self,
        seeds: dict[NodeType, Tensor],
        fanouts: dict[EdgeType, list[int]],
        draw: Draw,
        is_disjoint: bool,
        is_induced: bool,
    ) -> Sampled:
        stages = self._stages()
        num_levels = max((len(hops) for hops in fanouts.values()), default=0) + 1
        nodes = self._nodes(seeds, stages, num_levels, is_disjoint)
        sampler = HopSampler(self._relations, nodes, stages=stages, fanouts=fanouts, draw=draw)
        sampled = sampler.sample(seeds, self._device)
        if is_induced:
            sampled = induce(sampled, self._relations, nodes, stages=stages, draw=draw)
        for kind, each in nodes.items():
            if isinstance(each, CpuNodes):
                self._spare_maps[kind].append(each.close())
        return sampled

    def _stages(self) -> Stages:
        if self._device.type == "cpu":
            return CpuStages()
        return CudaStages(torch.cuda.current_stream(self._device).cuda_stream)

    def _nodes(
        self,
        seeds: dict[NodeType, Tensor],
        stages: Stages,
        num_levels: int,
        is_disjoint: bool,
    ) -> dict[NodeType, BatchNodes]:
        sizes = self._graph.num_nodes
        if is_disjoint:
            first_tree, trees = 0, {}
            # Seeds of several types have trees in the order in which the types come, as in PyG.
            for kind, ids in seeds.items():
                trees[kind], first_tree = first_tree, first_tree + ids.numel()
            return {
                kind: TreeNodes(
                    size, trees.get(kind, 0), device=self._device, is_exact=stages.is_exact
                )
                for kind, size in sizes.items()
            }
        if isinstance(stages, CudaStages):
            return {
                kind: CudaNodes(size, num_levels, device=self._device, stream=stages.stream)
                for kind, size in sizes.items()
            }
        return {kind: CpuNodes(self._take_map(kind, size)) for kind, size in sizes.items()}

    def _take_map(self, kind: NodeType, size: int) -> CpuMap:
        try:
            return self._spare_maps[kind].pop()
        except IndexError:
            return CpuMap(size)
