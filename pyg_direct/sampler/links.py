"""What PyG's ``edge_sample`` hands to a sampler, and takes back.

Shape legend: ``P`` positive links.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import (
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    SamplerOutput,
)

from pyg_direct.sampler.relation import NodeType


def by_type(values: Any) -> dict[NodeType, Tensor]:
    """Return tensors by node type; a homogeneous graph's one type is None."""
    return values if isinstance(values, dict) else {None: values}


def number_by_link(
    output: SamplerOutput | HeteroSamplerOutput,
    inputs: EdgeSamplerInput,
    neg_sampling: NegativeSampling | None,
) -> SamplerOutput | HeteroSamplerOutput:
    """Give each disjoint tree the number of its link, in place.

    First come the trees of all sources, then those of destinations, positive before negative. PyG
    takes a tree's number modulo ``P``, which is wrong where there is not a whole number of
    negatives a link; of what we return, it leaves every number as it is.

    Parameters
    ----------
    output : SamplerOutput or HeteroSamplerOutput
        ``batch`` holds tree numbers, or is None.
    inputs : EdgeSamplerInput
        The positive links.
    neg_sampling : NegativeSampling or None
        With which the seeds were made.
    """
    num_links = inputs.row.numel()
    num_sources = num_links
    if neg_sampling is not None and neg_sampling.is_binary():
        num_sources += math.ceil(num_links * neg_sampling.amount)

    def link_of(tree: Tensor) -> Tensor:
        end = torch.where(tree < num_sources, tree, tree - num_sources)
        return end.remainder(max(num_links, 1))

    if isinstance(output.batch, dict):
        output.batch = {kind: link_of(tree) for kind, tree in output.batch.items()}
    elif output.batch is not None:
        output.batch = link_of(output.batch)
    return output
