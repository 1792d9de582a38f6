"""Batches with numbers, so that it does not matter who samples them, when, and in what order.

The sampler draws from the number of a batch: batch ``i`` of epoch ``e`` has number
``e * 2**32 + i``, in the pipeline, in the loop, and in worker processes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, Dataset, RandomSampler, SequentialSampler
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NodeSamplerInput
from torch_geometric.sampler.base import SubgraphType

from pyg_direct.memory.streams import bind_to_stream
from pyg_direct.sampler import DirectNeighborSampler
from pyg_direct.sampler.capture import Follower

EPOCH_SHIFT = 32


@dataclass(slots=True)
class NumberedIndex:
    """Positions of a batch's seeds, with the number of the batch.

    Parameters
    ----------
    order : list of int, or int64 tensor
        Positions among the loader's seeds.
    number : int
        In ``[0, 2**63)``.
    part : (int, int), optional
        Begin and end of the batch's positions in ``order``, which then is that of the whole epoch.
    """

    order: Any
    number: int
    part: tuple[int, int] | None = None

    @property
    def positions(self) -> Any:
        """Which of the loader's seeds; a list, or a view of ``order``."""
        return self.order if self.part is None else self.order[slice(*self.part)]

    def __reduce__(self) -> tuple[Any, ...]:
        # On the way to a worker a tensor would take shared memory, and a file handle.
        return NumberedIndex, (torch.as_tensor(self.positions).tolist(), self.number)


@dataclass(slots=True)
class Epochs:
    """Counts the epochs of a loader; apart from it, so that what counts does not keep it alive.

    Attributes
    ----------
    running : int
        The epoch that began last.
    next : int
        The one that begins next.
    """

    running: int = 0
    next: int = 0

    def begin(self) -> None:
        """Begin the next epoch."""
        self.running, self.next = self.next, self.next + 1


class NumberedBatches:
    """A batch sampler whose batches carry numbers.

    Parameters
    ----------
    batches : iterable
        A batch sampler; its length is asked for only if somebody asks for this one's.
    epochs : Epochs
        Says which epoch runs when an iteration begins.
    """

    def __init__(self, batches: Any, epochs: Epochs) -> None:
        self._batches, self._epochs = batches, epochs

    def __iter__(self) -> Iterator[NumberedIndex]:
        first = self._epochs.running << EPOCH_SHIFT
        return (
            NumberedIndex(order, first + place, part)
            for place, (order, part) in enumerate(_parts(self._batches))
        )

    def __len__(self) -> int:
        return len(self._batches)


def _parts(batches: Any) -> Iterator[tuple[Any, tuple[int, int] | None]]:
    """Iterate a batch sampler; torch's own, whose order is there from the start, by its parts."""
    is_plain = (
        type(batches) is BatchSampler
        and type(batches.sampler) in (RandomSampler, SequentialSampler)
        and len(batches) > 0
    )
    if not is_plain:
        for positions in batches:
            yield positions, None
        return
    order, size = _order(batches.sampler), batches.batch_size
    num_positions = len(order)
    for start in range(0, len(batches) * size, size):
        yield order, (start, min(start + size, num_positions))


def _order(sampler: RandomSampler | SequentialSampler) -> Tensor:
    """Return what iterating torch's sampler gives, without a Python number for each seed."""
    size = len(sampler.data_source)
    if isinstance(sampler, SequentialSampler):
        return torch.arange(size)
    if sampler.replacement or sampler.num_samples != size:
        return torch.from_numpy(np.fromiter(sampler, np.int64))
    generator = sampler.generator
    if generator is None:
        generator = torch.Generator()
        generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
    return torch.randperm(size, generator=generator)


class Positions(Dataset[int]):
    """The numbers below ``size``; a batch of them stays the object that it is.

    Parameters
    ----------
    size : int
        Number of seeds.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, position: int) -> int:
        return range(self._size)[position]

    def __getitems__(self, positions: Any) -> Any:
        return positions


class SampleBatch:
    """Samples the batch of an index; all that a worker process has to know.

    Parameters
    ----------
    sampler : BaseSampler
        A ``DirectNeighborSampler`` is told the number of the batch.
    inputs : NodeSamplerInput or EdgeSamplerInput
        All seeds.
    neg_sampling : NegativeSampling, optional
        Of links.
    """

    def __init__(
        self,
        sampler: BaseSampler,
        inputs: NodeSamplerInput | EdgeSamplerInput,
        neg_sampling: Any = None,
    ) -> None:
        self._sampler, self._inputs, self._neg_sampling = sampler, inputs, neg_sampling

    @property
    def can_be_followed(self) -> bool:
        """Whether ``start`` takes a follower, which wants the nodes as they were sampled."""
        sampler, cls = self._sampler, DirectNeighborSampler
        return (
            isinstance(self._inputs, NodeSamplerInput)
            and isinstance(sampler, cls)
            and type(sampler).sample_from_nodes is cls.sample_from_nodes
            and type(sampler).start_from_nodes is cls.start_from_nodes
            and sampler.subgraph_type == SubgraphType.directional
        )

    def repeat(self, follower: Follower) -> Callable[[NumberedIndex], Any] | None:
        """Return what starts batches of an epoch by graphs, or None; see ``repeat_nodes``.

        It returns None for a batch that is to be started as ever. Only if ``can_be_followed``.
        """
        runs = self._sampler.repeat_nodes(self._inputs, follower)
        if runs is None:
            return None

        def start(index: NumberedIndex) -> Any:
            if index.part is None:
                return None
            return runs.start(index.number, index.order, *index.part)

        return start

    def __call__(self, index: Any) -> Any:
        """Return the sampler's output for a list, tensor, or ``NumberedIndex`` of positions."""
        return self.start(index)()

    def start(self, index: Any, follower: Follower | None = None) -> Callable[[], Any]:
        """Begin to sample, and return what waits for the output, to be called once.

        The output belongs to the CUDA stream that is current then. A sampler that has no such
        halves does all of it here.

        Parameters
        ----------
        index : list, Tensor, or NumberedIndex
            Of positions.
        follower : Follower, optional
            Only if ``can_be_followed``.
        """
        options: dict[str, Any] = {} if follower is None else {"follower": follower}
        if isinstance(index, NumberedIndex):
            if isinstance(self._sampler, DirectNeighborSampler):
                options["batch"] = index.number
            index = index.positions
        inputs = _take(self._inputs, index)
        if isinstance(inputs, EdgeSamplerInput):
            out = self._sampler.sample_from_edges(inputs, self._neg_sampling, **options)
        elif _has_halves(self._sampler):
            return self._sampler.start_from_nodes(inputs, **options)  # type: ignore[no-any-return]
        else:
            out = self._sampler.sample_from_nodes(inputs, **options)
        return bind_to_stream(lambda: out)


def _take(inputs: Any, index: Any) -> Any:
    """Return the inputs at positions, as indexing them would, sooner for nodes without times."""
    is_index = isinstance(index, Tensor) and index.dtype == torch.int64 and index.dim() == 1
    is_plain = type(inputs) is NodeSamplerInput and inputs.input_id is None and inputs.time is None
    if not (is_index and is_plain):
        return inputs[index]
    return NodeSamplerInput(index, inputs.node.index_select(0, index), None, inputs.input_type)


def _has_halves(sampler: BaseSampler) -> bool:
    """Tell whether ``start_from_nodes`` does what ``sample_from_nodes`` does."""
    cls = DirectNeighborSampler
    return isinstance(sampler, cls) and (
        type(sampler).sample_from_nodes is cls.sample_from_nodes
        or type(sampler).start_from_nodes is not cls.start_from_nodes
    )
