"""What a batch is for PyG: directional, induced or bidirectional; homogeneous or not.

Shape legend: ``P`` sampled nodes, ``K`` edges.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.base import SubgraphType

from pyg_direct.sampler.capture import RepeatedBatch
from pyg_direct.sampler.hops import Sampled


class StartedBatch:
    """A batch on its way. Call it once, with any CUDA stream current, for the sampler's output.

    It waits for the sizes; the output then belongs to that stream.

    Parameters
    ----------
    collect : callable
        Waits, and returns what was sampled.
    finish : callable
        Makes the output of it.

    Attributes
    ----------
    whole : RepeatedBatch or None
        If one CUDA graph makes the batch and what follows it; see ``Follower``.
    """

    def __init__(
        self,
        collect: Callable[[], Sampled],
        finish: Callable[[Sampled], SamplerOutput | HeteroSamplerOutput],
    ) -> None:
        self._collect, self._finish = collect, finish
        is_whole = isinstance(collect, RepeatedBatch) and collect.is_followed
        self.whole = collect if is_whole else None

    def __call__(self) -> SamplerOutput | HeteroSamplerOutput:
        return self._finish(self._collect())

    def then(
        self,
        change: Callable[
            [SamplerOutput | HeteroSamplerOutput], SamplerOutput | HeteroSamplerOutput
        ],
    ) -> "StartedBatch":
        """Return the same batch with another output, made of what this would give."""
        finish = self._finish
        return StartedBatch(self._collect, lambda sampled: change(finish(sampled)))


def make_output(
    sampled: Sampled, *, subgraph_type: SubgraphType, is_backward: bool, is_hetero: bool
) -> SamplerOutput | HeteroSamplerOutput:
    """Return a batch as PyG has it, with what was carried as its metadata.

    Parameters
    ----------
    sampled : Sampled
        Its tensors are not copied.
    subgraph_type : SubgraphType
        An induced subgraph has no ``num_sampled_nodes``, because its edges are in no order of hops.
    is_backward : bool
        The sampler walked from source to destination.
    is_hetero : bool
        Whether the graph has types; otherwise its one type is None.
    """
    row, col = sampled.row, sampled.col
    if is_backward:
        row, col = col, row
    is_trimmable = subgraph_type != SubgraphType.induced
    num_nodes = sampled.num_nodes if is_trimmable else None
    num_edges = sampled.num_edges if is_trimmable else None
    parts: tuple[Any, ...] = (
        sampled.node, row, col, sampled.edge, sampled.batch, num_nodes, num_edges
    )  # fmt: skip
    if not is_hetero:
        parts = tuple(None if each is None else each[None] for each in parts)
    node, row, col, edge, batch, num_nodes, num_edges = parts
    return (HeteroSamplerOutput if is_hetero else SamplerOutput)(
        node=node, row=row, col=col, edge=edge, batch=batch, metadata=sampled.carried,
        num_sampled_nodes=num_nodes, num_sampled_edges=num_edges,
    )  # fmt: skip


def finish_output(
    output: SamplerOutput | HeteroSamplerOutput, subgraph_type: SubgraphType
) -> SamplerOutput | HeteroSamplerOutput:
    """Return a batch in both directions if ``subgraph_type`` says so, else as it is."""
    is_bidirectional = subgraph_type == SubgraphType.bidirectional
    return make_bidirectional(output) if is_bidirectional else output


def move_all(values: tuple[Any, ...], device: torch.device) -> tuple[Any, ...]:
    """Move the tensors among ``values`` to a device; does not wait for it."""
    return tuple(
        each.to(device, non_blocking=True) if isinstance(each, Tensor) else each for each in values
    )


def make_bidirectional(
    output: SamplerOutput | HeteroSamplerOutput,
) -> SamplerOutput | HeteroSamplerOutput:
    """Add to each edge its opposite, each pair of nodes once, in order of (col, row).

    Where there are types, this is PyG's own function, which drops the ids of the edges it merges.
    Otherwise an edge keeps its id, and one that stands only for the opposite of others has the id
    of the first of them; PyG leaves open which, but CPU and GPU have to agree.

    Parameters
    ----------
    output : SamplerOutput or HeteroSamplerOutput
        Directional. ``num_sampled_nodes`` and ``num_sampled_edges`` become None, as in PyG.
    """
    if isinstance(output, HeteroSamplerOutput):
        return output.to_bidirectional()
    row = torch.cat([output.row, output.col])
    col = torch.cat([output.col, output.row])
    keys, order = (col * output.node.numel() + row).sort(stable=True)
    is_head = torch.ones_like(keys, dtype=torch.bool)
    torch.ne(keys[1:], keys[:-1], out=is_head[1:])
    kept = order[is_head]
    edge: Tensor | None = output.edge
    return SamplerOutput(
        node=output.node,
        row=row[kept],
        col=col[kept],
        edge=None if edge is None else edge.repeat(2)[kept],
        batch=output.batch,
        metadata=output.metadata,
    )
