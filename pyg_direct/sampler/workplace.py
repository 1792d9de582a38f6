"""A device on which batches are made: the placed topology, and what is kept between batches."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from pyg_direct.memory.streams import bind_to_stream, current_handle, on_device
from pyg_direct.sampler.capture import Follower, RepeatedBatch
from pyg_direct.sampler.capture_cache import CaptureCache, CaptureKey, PackedRun
from pyg_direct.sampler.edges import Draw
from pyg_direct.sampler.graph import SamplerGraph
from pyg_direct.sampler.hops import HopSampler, Sampled
from pyg_direct.sampler.induced import induce
from pyg_direct.sampler.layout import BatchLayout, IdArray
from pyg_direct.sampler.nodes import BatchNodes, CpuMap, CpuNodes, CudaNodes
from pyg_direct.sampler.placement import place_relations
from pyg_direct.sampler.relation import EdgeType, NodeType
from pyg_direct.sampler.stages import CpuStages, CudaStages, Stages
from pyg_direct.sampler.trees import TreeNodes


class Workplace:
    """Makes batches of one graph on one device.

    Threads may share it: each batch has its own state, or waits for its turn.

    Parameters
    ----------
    graph : SamplerGraph
        On the CPU; kept alive by the views that a GPU reads.
    device : torch.device
        CPU or CUDA.
    topology : str
        Placement; see ``place_relations``.
    is_captured : bool
        Repeat batches by CUDA graphs where that can be done.
    """

    def __init__(
        self,
        graph: SamplerGraph,
        device: torch.device,
        topology: str,
        *,
        is_captured: bool = False,
    ) -> None:
        self._graph, self._device = graph, device
        self._relations = place_relations(graph.relations, device, topology)
        self._spare_maps: dict[NodeType, list[CpuMap]] = {kind: [] for kind in graph.num_nodes}
        self._captures = CaptureCache() if is_captured and device.type == "cuda" else None
        self._is_exact = self._stages().is_exact

    def start(
        self,
        seeds: dict[NodeType, Tensor],
        key: int,
        *,
        fanouts: dict[EdgeType, list[int]],
        draw: Draw,
        is_disjoint: bool,
        is_induced: bool,
        carried: Tensor | None = None,
        follower: Follower | None = None,
    ) -> Callable[[], Sampled]:
        """Start a batch, on a GPU on the current stream, and return what waits for its sizes.

        What is returned is to be called once, with any stream current, to which the batch then
        belongs. The next batch should start after that: until then it cannot be repeated by the
        same CUDA graph.

        Parameters
        ----------
        seeds : dict of int64 tensors
            On the CPU, by node type.
        key : int
            Of the random numbers.
        fanouts : dict
            For each edge type, one fan-out a hop.
        draw : Draw
            What is the same for all hops and batches, and the times of the seeds.
        is_disjoint : bool
            Every seed has a tree of its own.
        is_induced : bool
            Return all edges between the sampled nodes.
        carried : integer tensor, optional
            Comes back on the device as ``Sampled.carried``, int64.
        follower : Follower, optional
            Work for the CUDA graph of the batch. If there is one, a ``RepeatedBatch`` is returned.
        """
        first_trees = _first_trees(seeds) if is_disjoint else None
        layout = self._layout(
            {kind: ids.numel() for kind, ids in seeds.items()},
            fanouts,
            is_disjoint=is_disjoint,
            num_carried=None if carried is None else carried.numel(),
        )
        words = layout.pack(key, seeds, carried)
        with nullcontext() if self._device.type == "cpu" else on_device(self._device):
            if self._captures is None or is_disjoint or is_induced:
                return self._start(layout, words, fanouts, draw, first_trees, is_induced)
            return self._repeat(self._captures, layout, words, fanouts, draw, follower)

    def _layout(
        self,
        num_seeds: dict[NodeType, int],
        fanouts: dict[EdgeType, list[int]],
        *,
        is_disjoint: bool = False,
        num_carried: int | None,
    ) -> BatchLayout:
        return BatchLayout(
            num_seeds=tuple((kind, num_seeds.get(kind, 0)) for kind in self._graph.num_nodes),
            num_hops=max((len(hops) for hops in fanouts.values()), default=0),
            num_relations=len(self._relations),
            is_ranked=not self._is_exact and not is_disjoint,
            num_carried=num_carried,
        )

    def pack(
        self,
        kind: NodeType,
        ids: IdArray,
        keys: IdArray,
        carried: IdArray,
        *,
        fanouts: dict[EdgeType, list[int]],
        draw: Draw,
        follower: Follower,
    ) -> PackedRun | None:
        """Pack batches for the graphs that repeat them; None where none can.

        Parameters
        ----------
        kind : node type
            Of all seeds.
        ids, carried : int64 array, shape (num_batches, num_seeds)
            Seeds, valid ones, and as many numbers that come back as ``Sampled.carried``.
        keys : int64 array, shape (num_batches,)
            Of the random numbers.
        fanouts, draw, follower
            See ``start``.
        """
        if self._captures is None:
            return None
        size = ids.shape[1]
        layout = self._layout({kind: size}, fanouts, num_carried=size)
        return PackedRun(
            key=_capture_key(layout, fanouts, draw, follower),
            words=layout.pack_all(keys, {kind: ids}, carried),
            make_sampler=lambda: self._make_sampler(layout, fanouts, draw, None)[0],
        )

    def start_packed(self, run: PackedRun, place: int) -> RepeatedBatch | None:
        """Start a batch of a run on the current stream, by a graph; None if there is none yet."""
        stream = current_handle()
        captured = run.captured.get(stream)
        if captured is None and self._captures is not None:
            captured = self._captures.find(
                run.key._replace(stream=stream), run.make_sampler, self._device, run.words[place]
            )
        elif captured is not None and not captured.is_current:
            captured = None
        if captured is None:
            return None
        run.captured[stream] = captured
        return captured.start(run.words[place])

    def _repeat(
        self,
        captures: CaptureCache,
        layout: BatchLayout,
        words: Tensor,
        fanouts: dict[EdgeType, list[int]],
        draw: Draw,
        follower: Follower | None,
    ) -> Callable[[], Sampled]:
        capture_key = _capture_key(layout, fanouts, draw, follower)
        capture_key = capture_key._replace(stream=current_handle())
        captured = captures.find(
            capture_key,
            lambda: self._make_sampler(layout, fanouts, draw, None)[0],
            self._device,
            words.numpy(),
        )
        repeated = None if captured is None else captured.start(words.numpy())
        if repeated is not None:
            return repeated
        sampler, _, _ = self._make_sampler(layout, fanouts, draw, None)
        sampler.launch(layout, words.to(self._device, non_blocking=True))
        if not sampler.has_waited:
            captures.note(capture_key)
        return bind_to_stream(sampler.collect)

    def _start(
        self,
        layout: BatchLayout,
        words: Tensor,
        fanouts: dict[EdgeType, list[int]],
        draw: Draw,
        first_trees: dict[NodeType, int] | None,
        is_induced: bool,
    ) -> Callable[[], Sampled]:
        sampler, nodes, stages = self._make_sampler(layout, fanouts, draw, first_trees)
        sampler.launch(layout, words.to(self._device, non_blocking=True))

        def collect() -> Sampled:
            sampled = sampler.collect()
            if is_induced:
                sampled = induce(sampled, self._relations, nodes, stages=stages, draw=sampler.draw)
            for kind, each in nodes.items():
                if isinstance(each, CpuNodes):
                    self._spare_maps[kind].append(each.close())
            return sampled

        return bind_to_stream(collect)

    def _make_sampler(
        self,
        layout: BatchLayout,
        fanouts: dict[EdgeType, list[int]],
        draw: Draw,
        first_trees: dict[NodeType, int] | None,
    ) -> tuple[HopSampler, dict[NodeType, BatchNodes], Stages]:
        stages = self._stages()
        nodes = self._nodes(stages, layout.num_hops + 1, first_trees)
        sampler = HopSampler(self._relations, nodes, stages=stages, fanouts=fanouts, draw=draw)
        return sampler, nodes, stages

    def _stages(self) -> Stages:
        if self._device.type == "cpu":
            return CpuStages()
        return CudaStages(current_handle())

    def _nodes(
        self, stages: Stages, num_levels: int, first_trees: dict[NodeType, int] | None
    ) -> dict[NodeType, BatchNodes]:
        device, sizes = self._device, self._graph.num_nodes
        if first_trees is not None:
            return {
                kind: TreeNodes(
                    size, first_trees.get(kind, 0), device=device, is_exact=stages.is_exact
                )
                for kind, size in sizes.items()
            }
        if isinstance(stages, CudaStages):
            return {
                kind: CudaNodes(size, num_levels, device=device, stream=stages.stream)
                for kind, size in sizes.items()
            }
        return {kind: CpuNodes(self._take_map(kind, size)) for kind, size in sizes.items()}

    def _take_map(self, kind: NodeType, size: int) -> CpuMap:
        try:
            return self._spare_maps[kind].pop()
        except IndexError:
            return CpuMap(size)


def _capture_key(
    layout: BatchLayout,
    fanouts: dict[EdgeType, list[int]],
    draw: Draw,
    follower: Follower | None,
) -> CaptureKey:
    return CaptureKey(
        layout=layout,
        fanouts=tuple((kind, tuple(hops)) for kind, hops in fanouts.items()),
        method=draw.method,
        edge_form=draw.edge_form,
        stream=0,
        follower=follower,
    )


def _first_trees(seeds: dict[NodeType, Tensor]) -> dict[NodeType, int]:
    """Number the trees of several types one after another, in their order, as PyG does."""
    first, trees = 0, {}
    for kind, ids in seeds.items():
        trees[kind], first = first, first + ids.numel()
    return trees
