"""The CPU baseline, as good as it gets: sample, gather, copy and train all at the same time.

The CPU samples with all threads in one thread of Python's, gathers with all threads into pinned
memory in another, and copies run on a stream of their own: the same pipeline as the direct one,
with another way for the rows.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

import pyg_direct
from experiments.staged import PinnedBuffers
from pyg_direct.loader.pipeline import Pipeline
from pyg_direct.loader.record import EpochRecord
from pyg_direct.loader.stages import CpuStages, CudaStages, Work
from pyg_direct.loader.stats import SAMPLE, EpochStats, GatherCount
from pyg_direct.memory.streams import StreamPool


class StagedBatches:
    """Batches of one graph; each iteration is an epoch in another order.

    Parameters
    ----------
    sampler : DirectNeighborSampler
        On the CPU.
    x : Tensor, shape (N, F)
        On the CPU; rows are gathered from here.
    y : int64 Tensor, shape (N,)
        On the CPU.
    input_nodes : int64 Tensor
        The seeds.
    batch_size : int
        Seeds a batch.
    device : torch.device
        Where batches appear.
    num_threads : int
        1 samples and gathers in one thread, 2 in a thread each.
    depth : int
        Batches ahead of the one in use.
    """

    def __init__(
        self,
        sampler: pyg_direct.DirectNeighborSampler,
        *,
        x: Tensor,
        y: Tensor,
        input_nodes: Tensor,
        batch_size: int,
        device: torch.device,
        num_threads: int,
        depth: int,
    ) -> None:
        self._sampler, self._x, self._y = sampler, x, y
        self._input_nodes, self._batch_size = input_nodes, batch_size
        self._device, self._num_threads, self._depth = device, num_threads, depth
        is_cuda = device.type == "cuda"
        self._pinned = PinnedBuffers(device) if is_cuda else None
        self._pool = StreamPool(device) if is_cuda else None
        self._record = EpochRecord(0)

    def __len__(self) -> int:
        return -(-self._input_nodes.numel() // self._batch_size)

    def stats(self) -> list[EpochStats]:
        """Return what the last epoch cost."""
        return [self._record.stats()]

    def __iter__(self) -> Iterator[Data]:
        self._record = EpochRecord(0)
        order = torch.randperm(self._input_nodes.numel())
        source: Iterator[Any] = enumerate(self._input_nodes[order].split(self._batch_size))
        sample = self._sample
        if self._num_threads == 2:
            work = Work(start=_at_once(self._sample_ahead), gather=_as_it_is, finish=_as_it_is)
            source = Pipeline(source, CpuStages(work, EpochRecord(0)), depth=self._depth)
            sample = _as_it_is
        work = Work(start=_at_once(sample), gather=self._gather, finish=_as_it_is)
        stages: Any = CpuStages(work, self._record)
        if self._pool is not None:
            stages = CudaStages(
                work, self._record, device=self._device, pool=self._pool,
                num_streams=self._depth + 1,
            )  # fmt: skip
        return Pipeline(source, stages, depth=self._depth)

    def _sample_ahead(self, numbered: tuple[int, Tensor]) -> Any:
        start_s = time.perf_counter()
        out = self._sample(numbered)
        self._record.add(SAMPLE, start_s, time.perf_counter())
        return out

    def _sample(self, numbered: tuple[int, Tensor]) -> Any:
        number, nodes = numbered
        return self._sampler.sample_from_nodes(NodeSamplerInput(None, nodes), batch=number)

    def _gather(self, out: Any, count: GatherCount) -> Data:
        batch = Data(edge_index=torch.stack([out.row, out.col]), n_id=out.node, y=self._y[out.node])
        batch.num_sampled_nodes = out.num_sampled_nodes
        batch.num_sampled_edges = out.num_sampled_edges
        batch.batch_size = out.num_sampled_nodes[0]
        count.rows += out.node.numel()
        count.host_rows += out.node.numel()
        count.host_bytes += out.node.numel() * self._x[0].nbytes
        if self._pinned is None:
            batch.x = self._x.index_select(0, out.node)
            return batch
        batch = batch.pin_memory().to(self._device, non_blocking=True)
        batch.x = self._pinned.upload(self._x, out.node)
        return batch


def _as_it_is(value: Any, _: Any = None) -> Any:
    return value


def _at_once(sample: Callable[[Any], Any]) -> Callable[[Any], Callable[[], Any]]:
    """Return both halves of sampling, of which the first does all."""

    def start(item: Any) -> Callable[[], Any]:
        out = sample(item)
        return lambda: out

    return start
