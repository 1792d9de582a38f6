"""Negative nodes for links: the same on every device, and never from the future.

PyG's own draw tries a few times to find a node that exists at the time of its link, and then takes
the oldest node, whatever its time. Here nodes are put in order of time, and one of those that
exist is drawn at once. Weights are looked up in their running sum, of any length
(``torch.multinomial`` takes 2**24).

Shape legend: ``P`` positive links, ``N`` nodes of one end's type.
"""

import math

import torch
from torch import Tensor
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from pyg_direct.sampler.relation import NodeType


class KeyedNegativeSampling(NegativeSampling):  # type: ignore[misc]  # PyG is not typed
    """Draws from a key; PyG's ``edge_sample`` calls ``sample``.

    Parameters
    ----------
    base : NegativeSampling
        Mode, amount and weights.
    key : int
        Seed of the draws, in ``[0, 2**63)``.
    link_time : int64 tensor, shape (P,), or None
        Time of the positive links. Negative ``m`` belongs to link ``m % P``.
    node_time : dict of int64 tensors
        For ``"src"`` and ``"dst"``, the time of each node, shape (N,); an end that is missing has
        no time.
    """

    def __init__(
        self,
        base: NegativeSampling,
        key: int,
        *,
        link_time: Tensor | None = None,
        node_time: dict[str, Tensor] | None = None,
    ) -> None:
        super().__init__(base.mode, base.amount, base.src_weight, base.dst_weight)
        self._generator = torch.Generator().manual_seed(key)
        self._link_time, self._node_time = link_time, node_time or {}

    @classmethod
    def for_links(
        cls,
        base: NegativeSampling,
        key: int,
        *,
        inputs: EdgeSamplerInput,
        node_time: dict[NodeType, Tensor] | None,
    ) -> "KeyedNegativeSampling":
        """Return the negative sampling of a batch of links.

        Parameters
        ----------
        base, key
            As above; ``base`` may be whatever PyG casts.
        inputs : EdgeSamplerInput
            The positive links.
        node_time : dict of int64 tensors, or None
            By node type.
        """
        kinds = inputs.input_type or (None, None, None)
        ends = {"src": kinds[0], "dst": kinds[-1]}
        times = node_time or {}
        return cls(
            NegativeSampling.cast(base), key, link_time=inputs.time,
            node_time={end: times[kind] for end, kind in ends.items() if kind in times},
        )  # fmt: skip

    def sample(self, num_samples: int, endpoint: str, num_nodes: int | None = None) -> Tensor:
        """Return node ids, int64, shape (num_samples,), on the CPU.

        Raises
        ------
        ValueError
            If a link is older than every node, or there are not as many weights as nodes.
        """
        weight = self.src_weight if endpoint == "src" else self.dst_weight
        num_nodes = num_nodes if weight is None else _check_weights(weight, endpoint, num_nodes)
        order = None
        num_allowed = torch.full((num_samples,), num_nodes or 0)
        if self._link_time is not None and endpoint in self._node_time:
            time, order = self._node_time[endpoint][:num_nodes].sort(stable=True)
            num_allowed = _count_past(time, self._link_time, num_samples, endpoint)
        if weight is not None:
            weight = weight.detach().cpu().double()
            weight = weight if order is None else weight[order]
        drawn = self._draw_below(num_allowed, weight)
        return drawn if order is None else order[drawn]

    def _draw_below(self, limits: Tensor, weight: Tensor | None) -> Tensor:
        """Draw a position below each limit, in proportion to ``weight`` if there is one."""
        fraction = torch.rand(limits.numel(), dtype=torch.float64, generator=self._generator)
        if weight is None:
            return torch.minimum((fraction * limits).long(), limits - 1)
        ends = weight.cumsum(0)
        target = fraction * ends[limits - 1]
        return torch.minimum(torch.searchsorted(ends, target, right=True), limits - 1)


def _check_weights(weight: Tensor, endpoint: str, num_nodes: int | None) -> int:
    if num_nodes is not None and weight.numel() != num_nodes:
        raise ValueError(
            f"{endpoint}_weight has {weight.numel()} entries, expected {num_nodes}, one a node"
        )
    return weight.numel()


def _count_past(time: Tensor, link_time: Tensor, num_samples: int, endpoint: str) -> Tensor:
    """Return how many of the nodes, in order of ``time``, exist when each negative's link does."""
    repeats = math.ceil(num_samples / max(link_time.numel(), 1))
    limits = link_time.repeat(repeats)[:num_samples]
    num_past = torch.searchsorted(time, limits, right=True)
    if bool((num_past == 0).any()):
        oldest = int(time[0]) if time.numel() else None
        raise ValueError(
            f"a link of time {int(limits[num_past == 0][0])} is older than every node that could "
            f"be its negative {endpoint!r} (time of the oldest: {oldest})"
        )
    return num_past
