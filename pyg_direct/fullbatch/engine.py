"""Who multiplies sparse matrices on a device, and how many columns at a time.

Shape legend: ``n`` vertices of the whole graph.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

Engine = Literal["library", "kernel"]
ENGINES: tuple[Engine, ...] = ("library", "kernel")
# The kernel takes the same type for values and dense rows.
KERNEL_TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
# Columns that the kernel takes at a time.
KERNEL_BLOCKS = (32, 64, 128, 256)
DEFAULT_BLOCKS = (256, 128, 64)
# Measured on an H200, whose L2 holds 50 to 60 MB (experiments/results/2026-11-30-fullbatch-gpus):
# a slice of 60 MB is fastest, 64 columns of float32 or 128 of bfloat16 for 233 k vertices. Few
# vertices have most edges, so a little more than L2 holds is no harm.
L2_SHARE = 1.25
# There, too: where no slice fits (2.4 M vertices), an epoch takes 146.0 ms by 64 columns and 148.5
# by 128, of bfloat16 99.5 and 102.4. The slice of 64 is the smallest as well.
BLOCK_BEYOND_L2 = 64
# A GPU reads memory in sectors. Rows of 188 bytes (47 columns of float32) that begin anywhere touch
# 6.75 of them on average, and 6 where they are padded to 192 bytes. Padding costs its share of the
# cache and of what is broadcast: beyond 12 bytes more than that.
SECTOR_BYTES, MOST_PADDING_BYTES = 32, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """Who multiplies, and how much at a time.

    Attributes
    ----------
    engine : {"library", "kernel"}
        torch's CSR product (cuSPARSE, MKL), or ``multiply_csr``.
    column_block : int or None
        Columns at a time; ``None`` takes all.
    """

    engine: Engine
    column_block: int | None


def choose_engine(
    engine: Engine | None,
    column_block: int | None,
    *,
    num_nodes: int,
    dtype: torch.dtype,
    device: torch.device,
) -> EngineChoice:
    """Fill in what is not given.

    Parameters
    ----------
    engine : {"library", "kernel"}, optional
        Where not given, the kernel on CUDA for the types it multiplies, else the library.
    column_block : int, optional
        Where not given, all columns for the library; for the kernel see ``column_block_of``.
    num_nodes : int
        n.
    dtype : torch.dtype
        Of the dense rows.
    device : torch.device

    Raises
    ------
    ValueError
        If the engine does not multiply ``dtype`` on ``device``, or takes no such block.
    """
    if engine is None:
        engine = "kernel" if device.type == "cuda" and dtype in KERNEL_TYPES else "library"
    _check(engine, column_block, dtype, device)
    if engine == "kernel" and column_block is None:
        l2_bytes = 0
        if device.type == "cuda":
            l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        column_block = column_block_of(num_nodes * dtype.itemsize, l2_bytes)
    return EngineChoice(engine=engine, column_block=column_block)


def _check(
    engine: Engine, column_block: int | None, dtype: torch.dtype, device: torch.device
) -> None:
    if engine not in ENGINES:
        raise ValueError(f"engine = {engine!r}, expected one of {ENGINES}")
    if column_block is not None and column_block < 1:
        raise ValueError(f"column_block = {column_block}, expected 1 or more")
    if engine == "library":
        return
    if device.type != "cuda" and not IS_SIMULATOR:
        raise ValueError(f"engine = 'kernel' on {device}, expected a CUDA device: use 'library'")
    if dtype not in KERNEL_TYPES:
        raise ValueError(
            f"engine = 'kernel' with {dtype}, expected one of {list(KERNEL_TYPES)}: use 'library'"
        )
    if column_block not in (None, *KERNEL_BLOCKS):
        raise ValueError(
            f"column_block = {column_block} with engine = 'kernel', expected one of {KERNEL_BLOCKS}"
        )


def column_block_of(column_bytes: int, l2_bytes: int) -> int:
    """Return how many columns of the operand the kernel should take at a time.

    The most of ``DEFAULT_BLOCKS`` that fit ``L2_SHARE`` of the L2 cache, and ``BLOCK_BEYOND_L2``
    where none do.

    Parameters
    ----------
    column_bytes : int
        Bytes of one column of the operand over all ranks.
    l2_bytes : int
        Bytes of the L2 cache.
    """
    fitting = (block for block in DEFAULT_BLOCKS if block * column_bytes <= L2_SHARE * l2_bytes)
    return next(fitting, BLOCK_BEYOND_L2)


def padded_width(width: int, element_bytes: int) -> int:
    """Return the distance, in elements, at which rows of an operand should begin.

    Parameters
    ----------
    width : int
        Columns of the operand; of a narrower one the distance is never larger.
    element_bytes : int
        Bytes of one number: a divisor of ``SECTOR_BYTES``.
    """
    padding = -width * element_bytes % SECTOR_BYTES
    return width + (padding // element_bytes if padding <= MOST_PADDING_BYTES else 0)


def value_dtype(engine: Engine, dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the type of a tile's values for dense rows of ``dtype``."""
    if engine == "library" and device.type == "cpu" and dtype == torch.bfloat16:
        # MKL multiplies no bfloat16 matrix: see ``add_product``.
        return torch.float32
    return dtype
