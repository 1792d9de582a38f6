"""The memory of one rank: a formula, the buffers it speaks of, and the check afterwards.

Shape legend: ``m`` rows of this rank, ``L`` layers, widths ``d_0`` to ``d_L``, ``P`` ranks.
Large are L - 1 layer outputs, which their gradients and products overwrite, and 1 + min(2, P - 1)
slices of columns, the operands of a product: of this rank and of others. MG-GCN (arXiv 2110.08688,
section 4.1) holds L outputs and three buffers of full width.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_direct.fullbatch.architecture import Architecture
from pyg_direct.fullbatch.counter_random import drop_bytes
from pyg_direct.fullbatch.outer_product import scratch_elements
from pyg_direct.fullbatch.staged_product import NUM_RECEIVE_BUFFERS

# A chunk is a fifth of the whole, and has so many elements at least and at most. Measured on an
# H200, 2.4 M vertices and 256 columns: an epoch takes 154.6 ms in chunks of 8 Mi elements, 146.0 of
# 32 Mi and 140.4 of 128 Mi. Launches and the tails of kernels cost a tenth at 8 Mi; to be larger
# than the L2 cache is no harm. 233 k vertices gain nothing (57.4 ms at 8 Mi, 57.0 at 32 Mi).
NUM_CHUNKS, CHUNK_ELEMENTS = 5, (1 << 23, 1 << 27)
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
    least, most = CHUNK_ELEMENTS
    elements = min(most, max(least, num_rows * width // NUM_CHUNKS))
    return max(1, min(num_rows, elements // max(1, width)))


def buffer_elements(
    architecture: Architecture, sizes: tuple[int, ...], rank: int, slice_width: int
) -> dict[str, list[int]]:
    """Return the numbers of elements of the buffers of one rank, by group.

    Parameters
    ----------
    architecture : Architecture
    sizes : tuple of int, length P
        Rows of each rank.
    rank : int
    slice_width : int
        Columns that a sparse product takes at a time, with their padding.
    """
    rows, num_receive = sizes[rank], min(NUM_RECEIVE_BUFFERS, len(sizes) - 1)
    chunk = chunk_rows(rows, architecture.widest_output)
    return {
        "layer outputs": [rows * width for width in architecture.stored_widths],
        "spare product": [rows * architecture.spare_width],
        "slice": [rows * slice_width],
        "receive buffers": [max(sizes) * slice_width] * num_receive,
        "chunks": [
            chunk * architecture.hidden_width,
            chunk * max(architecture.widths[1:-1], default=0),
            scratch_elements(chunk, architecture.largest_weight),
        ],
    }


def plan_buffers(
    architecture: Architecture,
    sizes: tuple[int, ...],
    rank: int,
    *,
    slice_width: int,
    element_bytes: int,
) -> dict[str, int]:
    """Return the bytes of each group of buffers of one rank.

    Parameters
    ----------
    architecture, sizes, rank, slice_width
        See ``buffer_elements``.
    element_bytes : int
        Bytes of one number in the buffers.
    """
    groups = buffer_elements(architecture, sizes, rank, slice_width)
    return {name: sum(elements) * element_bytes for name, elements in groups.items()}


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
    drop = drop_bytes(num_rows, architecture.widest_output) if architecture.dropout else 0
    return {"temporaries": max(loss, drop)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """The large buffers of one rank, allocated once.

    Attributes
    ----------
    num_layers : int
    outputs : list of tensors, shapes (m, d_2) to (m, d_L)
        (m, d_1) where there is one layer.
    spare : tensor, shape (m * spare_width,)
    slice : tensor, shape (m * slice_width,)
    receive : list of tensors, shape (max rows * slice_width,)
    hidden, gradient : tensors, shapes (chunk rows * d_1,) and (chunk rows * widest hidden layer,)
        One chunk of layer 0's output, and of a gradient.
    scratch : tensor, one-dimensional
        For ``outer_product``.
    """

    num_layers: int
    outputs: list[Tensor]
    spare: Tensor
    slice: Tensor
    receive: list[Tensor]
    hidden: Tensor
    gradient: Tensor
    scratch: Tensor

    def output_of(self, layer: int) -> Tensor:
        """Return the output of ``layer``, shape (m, width), the last of which are the logits."""
        return self.outputs[layer - self.num_layers]

    def tensors(self) -> list[Tensor]:
        """Return all buffers, in the order of the attributes."""
        return [
            *(*self.outputs, self.spare, self.slice),
            *(*self.receive, self.hidden, self.gradient, self.scratch),
        ]

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
    slice_width: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Buffers:
    """Allocate what ``plan_buffers`` counts; the contents are undefined."""
    groups = {
        name: [torch.empty(size, dtype=dtype, device=device) for size in elements]
        for name, elements in buffer_elements(architecture, sizes, rank, slice_width).items()
    }
    hidden, gradient, scratch = groups["chunks"]
    widths = architecture.stored_widths
    return Buffers(
        num_layers=architecture.num_layers,
        outputs=[
            flat.view(sizes[rank], width)
            for flat, width in zip(groups["layer outputs"], widths, strict=True)
        ],
        spare=groups["spare product"][0],
        slice=groups["slice"][0],
        receive=groups["receive buffers"],
        hidden=hidden,
        gradient=gradient,
        scratch=scratch,
    )


def region(flat: Tensor, num_rows: int, width: int) -> Tensor:
    """Return a (num_rows, width) view of the start of a one-dimensional buffer."""
    return flat[: num_rows * width].view(num_rows, width)


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
