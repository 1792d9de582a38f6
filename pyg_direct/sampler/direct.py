"""PyG's neighbour sampler, on the CPU or on the GPU over topology that may stay in host memory.

What a batch holds depends on the seed, the batch number, the hop and the position, never on the
device, the number of threads, or which worker makes it.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import (
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample

from pyg_direct.kernels import sample
from pyg_direct.kernels.random import batch_key
from pyg_direct.sampler import options
from pyg_direct.sampler.base import GraphSampler
from pyg_direct.sampler.capture import Follower
from pyg_direct.sampler.edges import Draw
from pyg_direct.sampler.fanout import read_fanouts
from pyg_direct.sampler.graph import SamplerGraph
from pyg_direct.sampler.hops import Sampled
from pyg_direct.sampler.links import by_type, number_by_link
from pyg_direct.sampler.negatives import KeyedNegativeSampling
from pyg_direct.sampler.output import StartedBatch, finish_output, make_output, move_all
from pyg_direct.sampler.placement import choose_placement
from pyg_direct.sampler.relation import NodeType
from pyg_direct.sampler.runs import NodeRuns
from pyg_direct.sampler.seeds import check_seeds, find_seed_times
from pyg_direct.sampler.workplace import Workplace
from pyg_direct.stores import resolve_device


class DirectNeighborSampler(GraphSampler):
    """Samples neighbours for PyG's loaders; see PyG's ``NeighborSampler`` for the shared arguments.

    Parameters
    ----------
    data : Data, HeteroData, or (FeatureStore, GraphStore)
        The graph. Compressed topology is used in place.
    num_neighbors : list of int, dict, or NumNeighbors
        Fan-outs, one a hop; -1 is all neighbours.
    replace : bool
        Draw with replacement.
    subgraph_type : str
        ``"directional"``, ``"bidirectional"`` or ``"induced"``.
    disjoint : bool
        Give every seed a tree of its own. Always so with ``time_attr``.
    temporal_strategy : str
        ``"uniform"``: any edges not after the seed's time; ``"last"``: the latest of them.
    time_attr : str, optional
        Integer time of nodes or of edges. Edges need not be in any order.
    weight_attr : str, optional
        Edge weights. An edge of weight 0 is never sampled.
    is_sorted : bool
        Edges of ``Data`` or ``HeteroData`` are in order of destination.
    sample_direction : str
        ``"forward"``: from destination to source, as messages need it; or ``"backward"``.
    seed : int, optional
        In ``[0, 2**63)``. None draws one from torch's generator, so that ``torch.manual_seed``
        decides.
    device : torch.device or str, optional
        Where to sample, and where the output is. None is the GPU if there is one, else the CPU.
    topology : str, optional
        For a GPU: ``"mapped"`` (default, unless the store was placed) leaves all topology in host
        memory, ``"colptr"`` copies the pointers to the device, ``"device"`` copies everything.
    return_e_id : bool
        Whether outputs have ``edge``. Where edges were put as COO or CSR, each id is one more read
        of host memory.
    cuda_graph : bool
        On a GPU, repeat batches of one size by a CUDA graph, which keeps the memory of up to two a
        stream. Not used for disjoint trees, induced subgraphs, and where sizes are not bounded.

    Raises
    ------
    ValueError
        If an argument has no meaning, or does not fit the graph or the machine.

    Notes
    -----
    ``edge`` holds ids in the order in which the user put the edges, so ``edge_permutation`` is
    None. Nodes are the seeds as they came, then the new nodes of each hop in ascending order of id
    (of seed and id if disjoint). A seed that repeats stands as often in ``node``; every copy draws
    neighbours of its own, and edges from that node come from its first copy. Edges of a hop are in
    order of their frontier node. All types are in the output of a heterogeneous graph.

    Nothing waits for the GPU except the end of a batch, which reads its sizes, and hops that may
    have more than 2**22 edges. The batch number of ``sample_from_nodes(inputs)`` counts calls; a
    worker of a ``DataLoader`` mixes its own seed in, so that none repeats a batch of another.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        *,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        sample_direction: str = "forward",
        seed: int | None = None,
        device: torch.device | str | None = None,
        topology: str | None = None,
        return_e_id: bool = True,
        cuda_graph: bool = True,
    ) -> None:
        options.check_options(
            temporal_strategy=temporal_strategy,
            sample_direction=sample_direction,
            is_fixed=time_attr is None or (not replace and weight_attr is None),
        )
        self.subgraph_type = SubgraphType(subgraph_type)
        self.sample_direction, self.return_e_id = sample_direction, return_e_id
        self.temporal_strategy, self.replace, self._disjoint = temporal_strategy, replace, disjoint
        self._topology, self._is_captured = choose_placement(topology, data), cuda_graph
        self.device, self.seed = resolve_device(device), options.resolve_seed(seed)
        self._graph = SamplerGraph.from_data(
            data, time_attr=time_attr, weight_attr=weight_attr, is_sorted=is_sorted,
            is_backward=sample_direction == "backward",
        )  # fmt: skip
        self.num_neighbors = num_neighbors
        self._next_batch = 0
        self._workplace: Workplace | None = None

    @property
    def num_neighbors(self) -> Any:
        """The fan-outs as they were given."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, num_neighbors: Any) -> None:
        self._fanouts = read_fanouts(num_neighbors, self.edge_types)
        self._num_neighbors = num_neighbors

    @property
    def disjoint(self) -> bool:
        """Whether every seed has a tree of its own."""
        return self._disjoint or self.is_temporal

    @property
    def edge_permutation(self) -> None:
        """None: ``edge`` holds the user's edge ids already."""
        return None

    def sample_from_nodes(
        self, inputs: NodeSamplerInput, *, batch: int | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Sample around nodes, with the output on the sampler's device.

        Parameters
        ----------
        inputs : NodeSamplerInput
            Seeds, on the CPU.
        batch : int, optional
            Batch number, in ``[0, 2**63)``. The same number and seeds give the same batch in any
            process; None counts.

        Raises
        ------
        IndexError
            If a seed is not a node.
        ValueError
            If a seed has no time where one is needed, or ``input_type`` is not a node type.
        """
        return self.start_from_nodes(inputs, batch=batch)()

    def start_from_nodes(
        self,
        inputs: NodeSamplerInput,
        *,
        batch: int | None = None,
        follower: Follower | None = None,
    ) -> StartedBatch:
        """Start ``sample_from_nodes`` on the current CUDA stream, without waiting for it.

        A CUDA graph that repeats the batch does the follower's work too; ``whole`` tells if one
        does.
        """
        inputs = NodeSamplerInput.cast(inputs)
        kind, key = inputs.input_type, self._next_key(batch)
        time = None if inputs.time is None else {kind: inputs.time}

        def finish(output: Any) -> Any:
            output.metadata = (output.metadata, *move_all((inputs.time,), self.device))
            return finish_output(output, self.subgraph_type)

        return self._start({kind: inputs.node}, time, key, inputs.input_id, follower).then(finish)

    def repeat_nodes(self, inputs: NodeSamplerInput, follower: Follower) -> NodeRuns | None:
        """Return what starts batches of all these seeds by graphs; None where none may be used."""
        is_repeated = self.subgraph_type == SubgraphType.directional and not self.disjoint
        if not is_repeated or inputs.time is not None or inputs.input_id is not None:
            return None
        return NodeRuns(
            self._place(), inputs, num_nodes=self._graph.num_nodes.get(inputs.input_type, 0),
            seed=self.seed, fanouts=self._fanouts, draw=self._draw(None), follower=follower,
            make_output=self._make_output,
        )  # fmt: skip

    def sample_from_edges(
        self,
        inputs: EdgeSamplerInput,
        neg_sampling: NegativeSampling | None = None,
        *,
        batch: int | None = None,
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Sample around both ends of edges, and around negative ones.

        Parameters
        ----------
        inputs : EdgeSamplerInput
            Links, on the CPU.
        neg_sampling : NegativeSampling, optional
            Binary or triplet. With time of nodes, no negative is younger than its link.
        batch : int, optional
            As in ``sample_from_nodes``; it decides the negatives too.

        Raises
        ------
        IndexError, ValueError
            As ``sample_from_nodes``; also if links have a time and trees are not disjoint, or a
            link is older than every node that could be its negative.
        """
        inputs = EdgeSamplerInput.cast(inputs)
        if inputs.time is not None and not self.disjoint:
            raise ValueError("links have a time, expected a sampler with time_attr or disjoint")
        key = self._next_key(batch)
        negatives = None
        if neg_sampling is not None:
            negatives = KeyedNegativeSampling.for_links(
                neg_sampling, key, inputs=inputs, node_time=self._graph.node_time
            )

        def sample_links(seed: Any, time: Any) -> SamplerOutput | HeteroSamplerOutput:
            output = self._start(by_type(seed), None if time is None else by_type(time), key)()
            return number_by_link(output, inputs, negatives)

        # The time of nodes is left to ``negatives``.
        output = edge_sample(inputs, sample_links, self.num_nodes, self.disjoint, None, negatives)
        output.metadata = move_all(output.metadata, self.device)
        return finish_output(output, self.subgraph_type)

    def _start(
        self, seed: dict[NodeType, Tensor], seed_time: dict[NodeType, Tensor] | None, key: int,
        carried: Tensor | None = None, follower: Follower | None = None,
    ) -> StartedBatch:  # fmt: skip
        seeds = {kind: check_seeds(self._graph, kind, ids) for kind, ids in seed.items()}
        times = find_seed_times(self._graph, seeds, seed_time) if self.is_temporal else None
        collect = self._place().start(
            seeds, key, fanouts=self._fanouts, draw=self._draw(times), is_disjoint=self.disjoint,
            is_induced=self.subgraph_type == SubgraphType.induced, carried=carried,
            follower=follower,
        )  # fmt: skip
        return StartedBatch(collect, self._make_output)

    def _draw(self, times: Tensor | None) -> Draw:
        return Draw(
            fanout=-1,
            method=options.draw_method(self.replace, self.is_temporal, self.temporal_strategy),
            edge_form=sample.EDGE_POSITION if self.return_e_id else sample.EDGE_NONE,
            seed_times=None if times is None else times.to(self.device),
        )

    def _make_output(self, sampled: Sampled) -> SamplerOutput | HeteroSamplerOutput:
        return make_output(
            sampled, subgraph_type=self.subgraph_type, is_hetero=self.is_hetero,
            is_backward=self.sample_direction == "backward",
        )  # fmt: skip

    def _place(self) -> Workplace:
        options.refuse_worker(self.device)
        if self._workplace is None:
            self._workplace = Workplace(
                self._graph, self.device, self._topology, is_captured=self._is_captured
            )
        return self._workplace

    def _next_key(self, batch: int | None) -> int:
        if batch is not None:
            return batch_key(self.seed, batch)
        batch, self._next_batch = self._next_batch, self._next_batch + 1
        return batch_key(self.seed, batch, options.worker_seed())

    def __getstate__(self) -> dict[str, Any]:
        # A GPU's views mean nothing elsewhere; they are made anew at the first batch.
        return {**self.__dict__, "_workplace": None}
