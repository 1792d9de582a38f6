"""What our node and link loaders share: numbers, stages, statistics, and the iteration."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Self
from weakref import ref

import torch
from torch.utils.data import DataLoader
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from pyg_direct.loader.ahead import RowsAhead, rows_ahead
from pyg_direct.loader.batch import count_nodes, make_batch, permute_edges
from pyg_direct.loader.interleaved import Interleaved
from pyg_direct.loader.numbering import Epochs, NumberedBatches, Positions, SampleBatch
from pyg_direct.loader.pipeline import Pipeline, Stages, Synchronous
from pyg_direct.loader.record import EpochRecord
from pyg_direct.loader.rows import BatchRows
from pyg_direct.loader.stages import CpuStages, CudaStages, Work
from pyg_direct.loader.stats import EpochStats, GatherCount
from pyg_direct.loader.upload import upload
from pyg_direct.loader.workers import end_workers, ending
from pyg_direct.memory.streams import StreamPool
from pyg_direct.sampler import DirectNeighborSampler

MAX_EPOCHS_KEPT = 100


class DirectLoader:
    """Comes before a loader of PyG's in a class's bases, and replaces how batches are made.

    Attributes
    ----------
    depth : int
        Batches made ahead of the one in use.
    """

    data: Any
    input_data: Any
    transform: Callable[[Any], Any] | None
    transform_sampler_output: Callable[[Any], Any] | None
    custom_cls: Callable[[], Any] | None
    filter_per_worker: bool
    num_workers: int
    persistent_workers: bool
    pin_memory: bool
    generator: Any
    dataset: Any

    def _set_up(
        self,
        sampler: Any,
        *,
        depth: int | None,
        exclude: Iterable[Any],
        neg_sampling: Any = None,
    ) -> None:
        """Finish what PyG's constructor began."""
        self._epochs = Epochs()
        self._sampler = sampler
        self._sample_batch = SampleBatch(sampler, self.input_data, neg_sampling)
        self._records: deque[EpochRecord] = deque(maxlen=MAX_EPOCHS_KEPT)
        self._stream_pool: StreamPool | None = None
        self._rows_ahead: RowsAhead | None = None
        self._running: list[ref[Any]] = []
        # On the CPU a stage keeps all threads busy, and to run two at once only shares them.
        self.depth = depth if depth is not None else 2 * self._only_launches
        self._rows = BatchRows(
            *self.data,
            exclude=exclude,
            is_trusted=isinstance(sampler, DirectNeighborSampler)
            and self.transform_sampler_output is None,
            is_background=self.depth > 0,
        )
        # torch lets nobody replace its data set, but PyG's range would lose a batch's number.
        self.__dict__["dataset"] = Positions(len(self.dataset))
        self._choose_collate_fn()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        # PyG's ZipLoader decides for the loaders that it is given.
        if name == "filter_per_worker" and "_sample_batch" in self.__dict__:
            self._choose_collate_fn()

    def _choose_collate_fn(self) -> None:
        # Worker processes get no more than they need: neither tables nor this loader.
        self.__dict__.pop("collate_fn", None)
        if not self.filter_per_worker:
            self.__dict__["collate_fn"] = self._sample_batch

    @property
    def epoch(self) -> int:
        """Number of the epoch that begins next; set it to repeat one, or to go on after a restart.

        To set it to less than 0 raises ``ValueError``.
        """
        return self._epochs.next

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}, expected 0 or more")
        self._epochs.next = epoch

    @property
    def _device(self) -> torch.device:
        return self.data[0].device  # type: ignore[no-any-return]

    def collate_fn(self, index: Any) -> Any:
        """Sample the batch of an index; with ``filter_per_worker`` gather it too.

        Parameters
        ----------
        index : list of int, or int64 tensor
            Positions among the loader's seeds. Batches asked for so are numbered by the sampler.
        """
        out = self._sample_batch(index)
        return self.filter_fn(out) if self.filter_per_worker else out

    def filter_fn(self, out: SamplerOutput | HeteroSamplerOutput) -> Any:
        """Turn sampled ids into a mini-batch on the device of the store.

        Parameters
        ----------
        out : SamplerOutput or HeteroSamplerOutput
            On any device.

        Returns
        -------
        Data or HeteroData
            What ``transform`` makes of it, if there is one.
        """
        return self._finish(self._gather(out, GatherCount()))

    def _upload(self, out: Any) -> Any:
        """Bring a CPU sampler's output to the GPU on the way; a user's function gets it first."""
        is_there = self._samples_on_gpu or self.transform_sampler_output is not None
        return out if is_there else upload(out, self._device)

    def _gather(self, out: Any, count: GatherCount, ready: dict[Any, Any] | None = None) -> Any:
        if self._rows_ahead is not None and ready is None:
            self._rows_ahead.note(count_nodes(out))
        if self._sampler.edge_permutation is not None:
            permute_edges(out, self._sampler.edge_permutation)
        if self.transform_sampler_output is not None:
            out = self.transform_sampler_output(out)
        batch = make_batch(self._rows, out, custom_cls=self.custom_cls, count=count, ready=ready)
        self._label(batch, out.metadata)
        return batch

    def _label(self, batch: Any, metadata: tuple[Any, ...]) -> None:
        raise NotImplementedError

    def _finish(self, batch: Any) -> Any:
        if self.pin_memory and self._device.type == "cpu" and torch.cuda.is_available():
            batch = batch.pin_memory()
        return batch if self.transform is None else self.transform(batch)

    def fetch(self, batch: Any, *names: Any) -> Any:
        """Put tensors into a batch that were left out of it, by its ``n_id`` and ``e_id``.

        Parameters
        ----------
        batch : Data or HeteroData
            Made by a loader over the same stores; on any device.
        *names : str, or (group, str)
            A bare name is fetched for every group that has it.

        Returns
        -------
        Data or HeteroData
            The batch itself; what was fetched is on the device of the store.

        Raises
        ------
        KeyError
            If no such tensor is stored.
        IndexError
            If the batch holds an id that the tensor does not have. Checking ids waits for the GPU.
        """
        for name in names:
            self._rows.fetch(batch, name)
        return batch

    def stats(self) -> list[EpochStats]:
        """Return what each epoch cost, the last 100, the current one so far; waits for the GPU."""
        return [record.stats() for record in self._records]

    @property
    def _index_sampler(self) -> NumberedBatches:
        return NumberedBatches(super()._index_sampler, self._epochs)  # type: ignore[misc]

    def __iter__(self) -> Iterator[Any]:
        self._epochs.begin()
        if self.num_workers > 0:
            return self._iterate_workers()
        # torch's iterators draw a number first; with it a seed orders batches as in PyG's loaders.
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        return self._iterate(iter(self._index_sampler), self._sample_batch.start)

    def close(self) -> None:
        """End the iterations that run, with their threads and worker processes; harmless twice.

        They end by themselves when nobody knows them any more; this does not wait for that. The
        next iteration begins as ever.
        """
        for batches in [each() for each in self._running]:
            if batches is not None:
                batches.close() if hasattr(batches, "close") else end_workers(batches)
        self._running.clear()
        workers, self.__dict__["_iterator"] = self.__dict__.get("_iterator"), None
        if workers is not None:
            end_workers(workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _iterate_workers(self) -> Iterator[Any]:
        outputs: Iterator[Any] = DataLoader.__iter__(self)  # type: ignore[arg-type]
        if self.filter_per_worker:
            self._keep_track(outputs)
            return outputs
        if not self.persistent_workers:
            outputs = ending(outputs)
        return self._iterate(outputs, lambda out: lambda: out)

    def _get_iterator(self) -> Any:
        # PyG's would gather in the loop; that is a stage of ours.
        outputs: Any = DataLoader._get_iterator(self)  # type: ignore[arg-type]
        # Workers have it by now, and kept here it would keep a loader that keeps its workers.
        outputs._collate_fn = None
        return outputs

    @property
    def _samples_on_gpu(self) -> bool:
        is_ours = isinstance(self._sampler, DirectNeighborSampler)
        return is_ours and self._sampler.device.type == "cuda" and self.num_workers == 0

    @property
    def _repeats(self) -> bool:
        """Whether graphs of the sampler may gather too: nobody wants its output before."""
        is_seen = self.transform_sampler_output is not None
        can_repeat = self._samples_on_gpu and self._sample_batch.can_be_followed
        return can_repeat and self.depth > 0 and not is_seen

    @property
    def _only_launches(self) -> bool:
        """Whether this process only starts work of the GPU: that, or others, sample."""
        return self._device.type == "cuda" and (self._samples_on_gpu or self.num_workers > 0)

    def _iterate(
        self, source: Iterator[Any], start: Callable[[Any], Callable[[], Any]]
    ) -> Iterator[Any]:
        record = EpochRecord(self._epochs.running)
        self._records.append(record)

        def start_upload(item: Any) -> Callable[[], Any]:
            finish = start(item)
            return lambda: self._upload(finish())

        repeat, ahead = None, rows_ahead(self._rows, self._rows_ahead) if self._repeats else None
        self._rows_ahead = ahead
        if ahead is not None:
            start = partial(self._sample_batch.start, follower=ahead)
            repeat = self._sample_batch.repeat(ahead)
        work = Work(
            start=start if self._samples_on_gpu else start_upload, repeat=repeat,
            gather=self._gather, finish=self._finish, samples_on_gpu=self._samples_on_gpu,
        )  # fmt: skip
        stages = self._make_stages(work, record)
        batches: Iterator[Any]
        if self.depth == 0:
            batches = Synchronous(source, stages)
        elif self._only_launches:
            lead = 1 if repeat is None else self.depth
            batches = Interleaved(source, stages, depth=self.depth, lead=lead)
        else:
            batches = Pipeline(source, stages, depth=self.depth)
        self._keep_track(batches)
        return batches

    def _keep_track(self, batches: Any) -> None:
        self._running = [each for each in self._running if each() is not None] + [ref(batches)]

    def _make_stages(self, work: Work, record: EpochRecord) -> Stages:
        if self._device.type == "cpu":
            return CpuStages(work, record)
        if self.depth > 0 and self._stream_pool is None:
            self._stream_pool = StreamPool(self._device)
        pool = self._stream_pool if self.depth > 0 else None
        return CudaStages(work, record, device=self._device, pool=pool, num_streams=self.depth + 1)

    def __getstate__(self) -> dict[str, Any]:
        # Neither events nor streams, nor what runs, mean anything elsewhere.
        empty: dict[str, Any] = {"_records": deque(maxlen=MAX_EPOCHS_KEPT), "_stream_pool": None}
        return {**self.__dict__, **empty, "_iterator": None, "_running": [], "_rows_ahead": None}
