"""Batches of nodes in the order of an epoch, which graphs repeat: seeds are packed many at once.

What a batch takes the host is then a copy of its packed seeds and one launch.
"""

from collections.abc import Callable

from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, NodeSamplerInput, SamplerOutput

from pyg_direct.kernels.random import batch_keys
from pyg_direct.sampler.capture import Follower
from pyg_direct.sampler.capture_cache import PackedRun
from pyg_direct.sampler.edges import Draw
from pyg_direct.sampler.hops import Sampled
from pyg_direct.sampler.output import StartedBatch
from pyg_direct.sampler.relation import EdgeType
from pyg_direct.sampler.workplace import Workplace

# Batches whose seeds are packed at once.
MAX_BATCHES = 32


class NodeRuns:
    """Starts batches of one epoch; what each gives is what ``start_from_nodes`` would.

    Parameters
    ----------
    workplace : Workplace
        Where batches are made.
    inputs : NodeSamplerInput
        All seeds, without times.
    num_nodes : int
        Of their type.
    seed : int
        Of the sampler.
    fanouts, draw, follower
        See ``Workplace.start``.
    make_output : callable
        From what was sampled to the sampler's output.
    """

    def __init__(
        self,
        workplace: Workplace,
        inputs: NodeSamplerInput,
        *,
        num_nodes: int,
        seed: int,
        fanouts: dict[EdgeType, list[int]],
        draw: Draw,
        follower: Follower,
        make_output: Callable[[Sampled], SamplerOutput | HeteroSamplerOutput],
    ) -> None:
        self._workplace, self._inputs, self._num_nodes = workplace, inputs, num_nodes
        self._seed, self._fanouts, self._draw = seed, fanouts, draw
        self._follower, self._make_output = follower, make_output
        self._run: PackedRun | None = None
        # Batches that the run has, or that none has.
        self._batches = range(0)

    def start(self, batch: int, order: Tensor, first: int, end: int) -> StartedBatch | None:
        """Start a batch on the current stream; None if no graph can make it, or not yet.

        Parameters
        ----------
        batch : int
            Its number.
        order : int64 tensor
            Positions of the epoch's seeds.
        first, end : int
            Where those of the batch begin and end; behind them are those of the batches with the
            next numbers, as many for each.
        """
        if batch not in self._batches:
            self._pack(batch, order[first:], end - first)
        if self._run is None:
            return None
        repeated = self._workplace.start_packed(self._run, batch - self._batches.start)
        return None if repeated is None else StartedBatch(repeated, self._finish)

    def _pack(self, batch: int, order: Tensor, batch_size: int) -> None:
        num_batches = min(MAX_BATCHES, len(order) // batch_size)
        order = order[: num_batches * batch_size]
        ids = self._inputs.node.index_select(0, order).view(num_batches, batch_size).numpy()
        self._run, self._batches = None, range(batch, batch + 1)
        # Others are refused where they are sampled one by one.
        if num_batches and ids.dtype == "int64" and ids.min() >= 0 and ids.max() < self._num_nodes:
            self._run = self._workplace.pack(
                self._inputs.input_type, ids, batch_keys(self._seed, batch, num_batches),
                order.view(num_batches, batch_size).numpy(), fanouts=self._fanouts,
                draw=self._draw, follower=self._follower,
            )  # fmt: skip
        if self._run is not None:
            self._batches = range(batch, batch + num_batches)

    def _finish(self, sampled: Sampled) -> SamplerOutput | HeteroSamplerOutput:
        output = self._make_output(sampled)
        output.metadata = (output.metadata, None)
        return output
