"""One edge type as the sampler walks it: from a frontier node to its neighbours.

Shape legend: ``D`` nodes that can be in the frontier, ``E`` edges.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from pyg_direct.memory import InMessage, is_registered

EdgeType = tuple[str, str, str] | None
NodeType = str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Edges of one type, compressed by the node from which the sampler comes.

    Parameters
    ----------
    edge_type : tuple of str, or None
        None in a homogeneous graph.
    frontier_type, neighbor_type : str or None
        Node types; destination and source when sampling forward.
    colptr : int64 tensor, shape (D + 1,)
        Where each frontier node's edges start.
    row : int32 or int64 tensor, shape (E,)
        Neighbours; the edges of one node in order of time, where there is one.
    perm : int64 tensor, shape (E,), or None
        Edge ids in the user's order; None where they are the positions.
    time : int64 tensor, shape (E,), or None
        Of the edge, or of the neighbour.
    weight, weight_sum : float64 tensor, shape (E,), or None
        Positive weights, and their running sum over the edges of one node.
    """

    edge_type: EdgeType
    frontier_type: NodeType
    neighbor_type: NodeType
    colptr: Tensor
    row: Tensor
    perm: Tensor | None = None
    time: Tensor | None = None
    weight: Tensor | None = None
    weight_sum: Tensor | None = None

    @property
    def num_frontier_nodes(self) -> int:
        """Number of nodes that ``colptr`` knows."""
        return self.colptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.row.numel()

    def placed(
        self, place_pointers: Callable[[Tensor], Tensor], place_edges: Callable[[Tensor], Tensor]
    ) -> "Relation":
        """Return the relation with its tensors elsewhere.

        Parameters
        ----------
        place_pointers, place_edges : callable
            Move ``colptr``, and each tensor with a value for every edge.
        """

        def place(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else place_edges(tensor)

        return replace(
            self,
            colptr=place_pointers(self.colptr),
            row=place_edges(self.row),
            perm=place(self.perm),
            time=place(self.time),
            weight=place(self.weight),
            weight_sum=place(self.weight_sum),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        sent = self.placed(_movable, _movable)
        return _restore, ({each.name: getattr(sent, each.name) for each in fields(sent)},)


def _movable(tensor: Tensor) -> Any:
    """Return what may be sent to another process, where torch would move a tensor's storage.

    Memory that a GPU reads in place must stay, so it is copied; what is shared stays anyway.
    """
    storage = tensor.untyped_storage()
    is_fixed = tensor.device.type == "cpu" and is_registered(storage.data_ptr(), storage.nbytes())
    return InMessage(tensor) if is_fixed and not tensor.is_shared() else tensor


def _restore(values: dict[str, Any]) -> Relation:
    return Relation(**values)
