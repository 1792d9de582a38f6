"""Batches with numbers, so that it does not matter who samples them, when, and in what order.

The sampler draws from the number of a batch: batch ``i`` of epoch ``e`` has number
``e * 2**32 + i``, in the pipeline, in the loop, and in worker processes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NodeSamplerInput

from pyg_direct.sampler import DirectNeighborSampler

EPOCH_SHIFT = 32


class NumberedIndex(list[Any]):
    """Positions of a batch's seeds, with the number of the batch.

    Parameters
    ----------
    positions : iterable of int, or int64 tensor
        Which of the loader's seeds.
    number : int
        In ``[0, 2**63)``.
    """

    def __init__(self, positions: Iterable[Any] = (), number: int = 0) -> None:
        super().__init__(positions.tolist() if isinstance(positions, Tensor) else positions)
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return NumberedIndex, (list(self), self.number)


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
            NumberedIndex(positions, first + place) for place, positions in enumerate(self._batches)
        )

    def __len__(self) -> int:
        return len(self._batches)


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

    def __call__(self, index: Any) -> Any:
        """Return the sampler's output for a list, tensor, or ``NumberedIndex`` of positions."""
        inputs = self._inputs[index]
        options: dict[str, Any] = {}
        if isinstance(index, NumberedIndex) and isinstance(self._sampler, DirectNeighborSampler):
            options["batch"] = index.number
        if isinstance(inputs, NodeSamplerInput):
            return self._sampler.sample_from_nodes(inputs, **options)
        return self._sampler.sample_from_edges(inputs, self._neg_sampling, **options)
