"""Turn sampled edges into a bidirectional or an induced subgraph.

Shape legend: ``P`` sampled nodes, ``K`` edges.
"""

import torch
from torch import Tensor
from torch_geometric.sampler import SamplerOutput


def make_bidirectional(output: SamplerOutput) -> SamplerOutput:
    """Add to each edge its opposite, each pair of nodes once, in order of (col, row).

    An edge keeps its id; one that stands only for the opposite of others has the id of the first
    of them. PyG leaves open which of several edges between two nodes gives the id; here it is the
    first sampled, so that CPU and GPU agree.

    Parameters
    ----------
    output : SamplerOutput
        Directional. ``num_sampled_nodes`` and ``num_sampled_edges`` become None, as in PyG.
    """
    row = torch.cat([output.row, output.col])
    col = torch.cat([output.col, output.row])
    keys, order = (col * output.node.numel() + row).sort(stable=True)
    is_head = torch.ones_like(keys, dtype=torch.bool)
    torch.ne(keys[1:], keys[:-1], out=is_head[1:])
    kept = order[is_head]
    edge: Tensor | None = output.edge
    if edge is not None:
        edge = edge.repeat(2)[kept]
    return SamplerOutput(
        node=output.node, row=row[kept], col=col[kept], edge=edge, batch=output.batch,
        metadata=output.metadata,
    )  # fmt: skip
