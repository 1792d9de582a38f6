"""The memory of one rank: a formula, the buffers it speaks of, and the check afterwards.

Shape legend: ``m`` rows of this rank, ``L`` layers, widths ``d_0`` to ``d_L``, ``P`` ranks.
L + 3 large buffers at most (MG-GCN, arXiv 2110.08688, section 4.1): L layer outputs, whose
gradients overwrite them, one shared product, and min(2, P - 1) for the rows of other ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_direct.fullbatch.architecture import Architecture
from pyg_direct.fullbatch.counter_random import drop_bytes
from pyg_direct.fullbatch.staged_product import NUM_RECEIVE_BUFFERS

# Elements of one chunk of an element-wise step: 64 MiB of float32.
CHUNK_ELEMENTS = 1 << 24
GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Predicted bytes of one rank at the peak of an epoch.

    Attributes
    ----------
    parts : mapping of str to int
        Bytes by name.
    """

    parts: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """Sum of the parts."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {size / GIB:.3f}" for name, size in self.parts.items())
        return f"predicted peak {self.total_bytes / GIB:.3f} GiB ({listed})"


def chunk_rows(num_rows: int, width: int) -> int:
    """Return how many rows an element-wise step takes at a time."""
    return max(1, min(num_rows, CHUNK_ELEMENTS // max(1, width)))


def plan_buffers(
    architecture: Architecture, sizes: tuple[int, ...], rank: int, element_bytes: int
) -> dict[str, int]:
    """Return the bytes of each group of buffers of one rank.

    Parameters
    ----------
    architecture : Architecture
    sizes : tuple of int, length P
        Rows of each rank.
    rank : int
    element_bytes : int
        Bytes of one number in the buffers.
    """
    rows = sizes[rank]
    receive = min(NUM_RECEIVE_BUFFERS, len(sizes) - 1) * max(sizes) * architecture.operand_width
    hidden = architecture.hidden_width
    return {
        "layer outputs": rows * sum(architecture.widths[1:]) * element_bytes,
        "shared product": rows * architecture.shared_width * element_bytes,
        "receive buffers": receive * element_bytes,
        "chunk": chunk_rows(rows, hidden) * hidden * element_bytes,
    }


def plan_temporaries(
    architecture: Architecture, num_rows: int, element_bytes: int
) -> dict[str, int]:
    """Return the bytes that single steps allocate and free again: the largest of them counts.

    The steps are the loss (the log-probabilities of a chunk, for which bfloat16 logits are widened
    to float32 first) and the random bits of dropout.
    """
    classes = architecture.widths[-1]
    logit_bytes = element_bytes if element_bytes >= 4 else 2 * 4
    loss = chunk_rows(num_rows, classes) * (classes * logit_bytes + 3 * 8)
    drop = drop_bytes(num_rows, architecture.hidden_width) if architecture.dropout else 0
    return {"temporaries": max(loss, drop)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """The large buffers of one rank, allocated once.

    Attributes
    ----------
    outputs : list of tensors, shapes (m, d_1) to (m, d_L)
    shared : tensor, shape (m * shared_width,)
    receive : list of tensors, shape (max rows * operand_width,)
    chunk : tensor, shape (chunk rows * hidden width,)
    """

    outputs: list[Tensor]
    shared: Tensor
    receive: list[Tensor]
    chunk: Tensor

    def tensors(self) -> list[Tensor]:
        """Return all buffers, in the order of the attributes."""
        return [*self.outputs, self.shared, *self.receive, self.chunk]

    @property
    def num_bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())

    def close(self) -> None:
        """Free the memory, also under views that somebody still holds; harmless twice."""
        for tensor in self.tensors():
            tensor.untyped_storage().resize_(0)


def allocate_buffers(
    architecture: Architecture,
    sizes: tuple[int, ...],
    rank: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Buffers:
    """Allocate what ``plan_buffers`` counts; the contents are undefined."""
    rows = sizes[rank]

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    num_receive = min(NUM_RECEIVE_BUFFERS, len(sizes) - 1)
    hidden = architecture.hidden_width
    return Buffers(
        outputs=[empty(rows, width) for width in architecture.widths[1:]],
        shared=empty(rows * architecture.shared_width),
        receive=[empty(max(sizes) * architecture.operand_width) for _ in range(num_receive)],
        chunk=empty(chunk_rows(rows, hidden) * hidden),
    )


def region(flat: Tensor, num_rows: int, width: int, *, start: int = 0) -> Tensor:
    """Return a (num_rows, width) view of a one-dimensional buffer, from element ``start`` on."""
    return flat[start : start + num_rows * width].view(num_rows, width)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    """The prediction beside what torch's allocator saw.

    Attributes
    ----------
    predicted_bytes, peak_bytes : int
    """

    predicted_bytes: int
    peak_bytes: int

    @property
    def ratio(self) -> float:
        """Peak over prediction: 1.0 is exact."""
        return self.peak_bytes / self.predicted_bytes

    def __str__(self) -> str:
        return (
            f"peak {self.peak_bytes / GIB:.3f} GiB, {100 * (self.ratio - 1):+.1f} % of the "
            f"predicted {self.predicted_bytes / GIB:.3f} GiB"
        )
