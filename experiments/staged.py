"""The baseline that direct access replaces: sample and gather on the CPU, then copy.

Shape legend: ``N`` sampled nodes, ``F`` features.
Assumption: batches are consumed on the current CUDA stream, on which their rows are copied.
"""

from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import SamplerOutput

import pyg_direct


class StagedLoader(NodeLoader):
    """PyG's node loader, with rows that take the way through pinned memory.

    Parameters
    ----------
    data : Data
        On the CPU, with ``x``; not copied.
    stores : (DirectFeatureStore, DirectGraphStore)
        The same data, whose edges are sampled.
    num_neighbors : list of int
        Fan-out of each hop.
    seed : int
        Of the sampler: the same seed samples the same batches as ``pyg_direct.NeighborLoader``.
    device : torch.device
        Where batches appear.
    **kwargs
        Arguments of PyG's ``NodeLoader``.
    """

    def __init__(
        self,
        data: Data,
        stores: tuple[pyg_direct.DirectFeatureStore, pyg_direct.DirectGraphStore],
        num_neighbors: list[int],
        *,
        seed: int,
        device: torch.device,
        **kwargs: Any,
    ) -> None:
        sampler = pyg_direct.DirectNeighborSampler(stores, num_neighbors, seed=seed, device="cpu")
        without_rows = copy(data)
        without_rows.num_nodes = data.num_nodes
        self._rows = without_rows.x
        del without_rows.x
        self._device = device
        self._pinned = PinnedBuffers(device) if device.type == "cuda" else None
        super().__init__(without_rows, sampler, filter_per_worker=False, **kwargs)

    def filter_fn(self, out: SamplerOutput) -> Data:
        """Gather the rows of a sample and move everything to the device."""
        batch = super().filter_fn(out)
        if self._pinned is None:
            batch.x = self._rows.index_select(0, out.node)
            return batch
        batch.x = self._pinned.upload(self._rows, out.node)
        return batch.to(self._device)


class PinnedBuffers:
    """Two pinned buffers that take turns, so that one is filled while the other is copied from.

    Parameters
    ----------
    device : torch.device
        A CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: list[Tensor | None] = [None, None]
        self._copied = [torch.cuda.Event(), torch.cuda.Event()]
        self._turn = 0

    def upload(self, table: Tensor, index: Tensor) -> Tensor:
        """Return ``table[index]`` on the device.

        Parameters
        ----------
        table : Tensor, shape (R, F)
            On the CPU.
        index : int64 Tensor, shape (N,)
            On the CPU.

        Notes
        -----
        The gather is done on return; the copy may still run on the current stream.
        """
        self._turn = 1 - self._turn
        self._copied[self._turn].synchronize()
        rows = self._buffer(table, index.numel())
        torch.index_select(table, 0, index, out=rows)
        on_device = rows.to(self._device, non_blocking=True)
        self._copied[self._turn].record(torch.cuda.current_stream(self._device))
        return on_device

    def _buffer(self, table: Tensor, num_rows: int) -> Tensor:
        buffer = self._buffers[self._turn]
        if buffer is None or buffer.size(0) < num_rows:
            shape = (num_rows + num_rows // 4, *table.shape[1:])
            buffer = torch.empty(shape, dtype=table.dtype, pin_memory=True)
            self._buffers[self._turn] = buffer
        return buffer[:num_rows]
