"""The stages of a hop on the CPU and on the GPU: count, draw, pick; and of a batch: join.

Both fill ``HopEdges`` with the same numbers.
"""

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor

from pyg_direct.kernels import sample, weighted
from pyg_direct.kernels.copies import WORD_BYTES, Copies
from pyg_direct.kernels.dispatch import launch_shape
from pyg_direct.kernels.join import join_part
from pyg_direct.kernels.launch import NO_SPAN
from pyg_direct.sampler.edges import NO_IDS, HopEdges, Level

# Bounds the memory of the lists that a weighted draw keeps, 16 bytes an entry.
MAX_LIST_ENTRIES = 1 << 22
NO_WEIGHTS = torch.empty(0, dtype=torch.float64)


class CpuStages:
    """Stages on the CPU, on all threads."""

    is_exact = True

    def count(self, edges: HopEdges) -> None:
        """Find each node's neighbourhood, and how many of its edges to draw."""
        num = edges.allocate_nodes()
        relation, frontier, draw = edges.relation, edges.frontier, edges.draw
        arguments = (
            relation.colptr.numpy(), relation.num_frontier_nodes, frontier.node.numpy(),
            frontier.totals.numpy(), frontier.place, draw.fanout, draw.is_replaced,
            edges.start.numpy(), edges.degree.numpy(), num.numpy(),
        )  # fmt: skip
        if relation.time is None or draw.seed_times is None or frontier.tree is None:
            sample.count_neighbors_cpu(*arguments)
        else:
            sample.count_past_neighbors_cpu(
                *arguments, relation.time.numpy(), frontier.tree.numpy(), draw.seed_times.numpy()
            )
        edges.ends = num.cumsum(0)

    def draw(self, edges: HopEdges) -> None:
        """Draw the edges."""
        ends, start, degree = edges.ends.numpy(), edges.start.numpy(), edges.degree.numpy()
        key, stream = int(edges.draw.key), edges.draw.stream
        slots = edges.column.numpy(), edges.offset.numpy()
        if not edges.has_weights:
            sample.draw_neighbors_cpu(
                ends, len(ends), degree, edges.draw.method, key, stream, *slots
            )
            return
        is_replaced = edges.draw.is_replaced
        weight = edges.relation.weight_sum if is_replaced else edges.relation.weight
        function = weighted.draw_by_sums_cpu if is_replaced else weighted.draw_earliest_cpu
        values = (NO_WEIGHTS if weight is None else weight).numpy()
        function(ends, len(ends), start, degree, values, key, stream, *slots)

    def pick(self, edges: HopEdges) -> None:
        """Read the drawn edges."""
        relation, frontier = edges.relation, edges.frontier
        perm = NO_IDS if relation.perm is None else relation.perm
        sample.pick_neighbors_cpu(
            relation.row.numpy(), perm.numpy(), edges.draw.edge_form, edges.start.numpy(),
            edges.degree.numpy(), edges.ends.numpy(), frontier.bound, edges.pick_method,
            edges.offset.numpy(), frontier.totals.numpy(), frontier.place,
            edges.draw.edges_place, edges.column.numpy(), edges.source.numpy(),
            edges.edge.numpy(),
        )  # fmt: skip

    def join_levels(self, levels: list[Level]) -> Tensor:
        """Put levels one after another: nodes, and a second row of their trees if they have any."""
        nodes = [level.node for level in levels]
        trees = [level.tree for level in levels if level.tree is not None]
        return _concatenate([nodes, trees] if trees else [nodes])

    def join_edges(
        self, hops: list[HopEdges | None], num_arrays: int, totals: Tensor, first: int
    ) -> Tensor:
        """Put the edges of a relation one after another: rows of source, column and id.

        Parameters
        ----------
        hops : list of HopEdges or None
            Of one relation.
        num_arrays : int
            3 with ids, else 2.
        totals : int64 tensor
            See ``pyg_direct.sampler.hops``.
        first : int
            Where in ``totals`` the relation's numbers of edges begin.
        """
        edges = [each for each in hops if each is not None]
        arrays = [[e.source for e in edges], [e.column for e in edges], [e.edge for e in edges]]
        return _concatenate(arrays[:num_arrays])

    def cut(
        self, arrays: list[Tensor], sizes: list[int], copies: Copies | None = None
    ) -> Iterator[Tensor]:
        """Return every row of the arrays, as long as it is in use: here all of it.

        Parameters
        ----------
        arrays : list of int64 tensor, two dimensions
            What was joined.
        sizes : list of int
            For each array, how much of its rows is in use, from the first on.
        copies : Copies, optional
            Get the copies on a GPU, which the caller launches then.
        """
        return chain.from_iterable(rows.unbind() for rows in arrays)


class CudaStages:
    """Stages on the GPU, none of which waits for it.

    Parameters
    ----------
    stream : int
        CUDA stream handle.
    """

    is_exact = False

    def __init__(self, stream: int) -> None:
        self.stream = stream

    def count(self, edges: HopEdges) -> None:
        """Find each node's neighbourhood, and how many of its edges to draw."""
        num = edges.allocate_nodes()
        relation, frontier, draw = edges.relation, edges.frontier, edges.draw
        arguments = (
            relation.colptr, relation.num_frontier_nodes, frontier.node, frontier.totals,
            frontier.place, frontier.bound, draw.fanout, draw.is_replaced, edges.start,
            edges.degree, num,
        )  # fmt: skip
        shape = launch_shape(frontier.bound)
        if relation.time is None or draw.seed_times is None or frontier.tree is None:
            sample.count_neighbors(*shape, *arguments, stream=self.stream)
        else:
            sample.count_past_neighbors(
                *shape, *arguments, relation.time, frontier.tree, draw.seed_times,
                stream=self.stream,
            )  # fmt: skip
        edges.ends = num.cumsum(0)

    def draw(self, edges: HopEdges) -> None:
        """Draw the edges."""
        shape, bound = launch_shape(edges.bound), edges.frontier.bound
        key, stream = edges.draw.key, edges.draw.stream
        if not edges.has_weights:
            sample.draw_neighbors(
                *shape, edges.ends, bound, edges.bound, edges.degree, edges.draw.method, key,
                stream, edges.column, edges.offset, stream=self.stream,
            )  # fmt: skip
        elif edges.draw.is_replaced:
            weighted.draw_by_sums(
                *shape, edges.ends, bound, edges.bound, edges.start, edges.degree,
                edges.relation.weight_sum, key, stream, edges.column, edges.offset,
                stream=self.stream,
            )  # fmt: skip
        else:
            self._draw_earliest(edges)

    def _draw_earliest(self, edges: HopEdges) -> None:
        fanout, bound = max(edges.draw.fanout, 1), edges.frontier.bound
        step = min(bound, max(1, MAX_LIST_ENTRIES // (fanout * weighted.NUM_LANES)))
        lists = step * weighted.NUM_LANES
        times = torch.empty(lists * fanout, dtype=torch.float64, device=edges.ends.device)
        items = torch.empty(lists * (fanout + 1), dtype=torch.int64, device=edges.ends.device)
        sizes = items[lists * fanout :]
        for first in range(0, bound, step):
            last = min(first + step, bound)
            weighted.list_earliest(
                *launch_shape((last - first) * weighted.NUM_LANES), edges.ends, first, last,
                edges.start, edges.degree, edges.relation.weight, edges.draw.key,
                edges.draw.stream, fanout, times, items, sizes, stream=self.stream,
            )  # fmt: skip
            weighted.merge_earliest(
                *launch_shape(last - first), edges.ends, first, last, edges.degree, fanout,
                times, items, sizes, edges.column, edges.offset, stream=self.stream,
            )  # fmt: skip

    def pick(self, edges: HopEdges) -> None:
        """Read the drawn edges."""
        relation, frontier = edges.relation, edges.frontier
        launch = sample.pick_neighbors[relation.row.element_size()]
        perm = NO_SPAN if relation.perm is None else relation.perm
        launch(
            *launch_shape(edges.bound), relation.row, perm, edges.draw.edge_form, edges.start,
            edges.degree, edges.ends, frontier.bound, edges.bound, edges.pick_method,
            edges.offset, frontier.totals, frontier.place, edges.draw.edges_place,
            edges.column, edges.source, edges.edge, stream=self.stream,
        )  # fmt: skip

    def join_levels(self, levels: list[Level]) -> Tensor:
        """Put levels one after another, as ``CpuStages`` does; behind the last one are zeros.

        Whoever gathers by these ids before their number is known finds valid ones there.
        """
        num_arrays = 1 if levels[0].tree is None else 2
        out = _rows(num_arrays, sum(level.bound for level in levels), levels[0].node).zero_()
        for level in levels:
            tree = level.node if level.tree is None else level.tree
            arrays = level.node, tree, tree
            self._join(level.totals, -1, level.place, level.bound, arrays, out)
        return out

    def join_edges(
        self, hops: list[HopEdges | None], num_arrays: int, totals: Tensor, first: int
    ) -> Tensor:
        """Put edges one after another, as ``CpuStages`` does; the end is beyond the last one."""
        edges = [each for each in hops if each is not None]
        out = _rows(num_arrays, sum(each.bound for each in edges), totals)
        for each in edges:
            arrays = each.source, each.column, each.edge
            self._join(totals, first, each.draw.edges_place, each.bound, arrays, out)
        return out

    def _join(
        self, totals: Tensor, first: int, place: int, bound: int, arrays: tuple[Tensor, ...],
        out: Tensor,
    ) -> None:  # fmt: skip
        if bound > 0:
            join_part(
                *launch_shape(bound), totals, first, place, bound, *arrays, out.shape[0], out,
                out.shape[1], stream=self.stream,
            )  # fmt: skip

    def cut(
        self, arrays: list[Tensor], sizes: list[int], copies: Copies | None = None
    ) -> Iterator[Tensor]:
        """Return rows as ``CpuStages`` does: views of one new tensor, one after another.

        It is filled by ``copies``, which the caller launches, or else by a launch of its own.
        """
        sources, lengths = list[int](), list[int]()
        for rows, size in zip(arrays, sizes, strict=True):
            num_rows, room = rows.shape
            first, step = rows.data_ptr(), room * WORD_BYTES
            sources += [first + row * step for row in range(num_rows)]
            lengths += [size] * num_rows
        out = torch.empty(sum(lengths), dtype=torch.int64, device=arrays[0].device)
        is_ours, copies = copies is None, Copies() if copies is None else copies
        target = out.data_ptr()
        for source, length in zip(sources, lengths, strict=True):
            copies.add(source, target, length)
            target += length * WORD_BYTES
        if is_ours:
            copies.launch(self.stream)
        # As ``split`` does, which is Python.
        return iter(out.split_with_sizes(lengths))


Stages = CpuStages | CudaStages


def _rows(num_rows: int, length: int, like: Tensor) -> Tensor:
    return torch.empty((num_rows, length), dtype=torch.int64, device=like.device)


def _concatenate(arrays: list[list[Tensor]]) -> Tensor:
    """Return a row for each array, of its parts one after another, on the CPU."""
    out = _rows(len(arrays), sum(part.numel() for part in arrays[0]), NO_IDS)
    for row, parts in zip(out, arrays, strict=True):
        if parts:
            torch.cat(parts, out=row)
    return out
