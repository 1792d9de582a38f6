"""Multiply a sparse matrix (CSR) with a dense one, a slice of columns at a time.

A warp takes a row and its lanes the columns, so that neighbouring lanes read neighbouring words
(row splitting, Yang, Buluc, Owens 2018, "Design principles for sparse matrix multiplication on the
GPU"). A row with many nonzeros takes a whole block, whose warps add their sums in a fixed order.
Blocks of one slice of columns start before those of the next, so that the slice of the operand that
is in use can be small enough to stay in L2.

Shape legend: ``m`` rows, ``E`` nonzeros, ``k`` rows of the operand, ``w`` columns.
Assumption: the arrays fit together; who calls has checked.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, int32
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

from pyg_direct.kernels.launch import THREADS_PER_WARP, CudaKernel

# Nonzeros beyond which a row takes a block instead of a warp.
LONG_ROW_NONZEROS = 1024
# Columns of a lane: the widest slice is 32 times as many columns.
COLUMNS_PER_LANE = (1, 2, 4, 8)
WARPS_PER_BLOCK = 2 if IS_SIMULATOR else 8
NUMBER_TYPES = {"float32": np.float32, "bfloat16": np.uint16}


def multiply_csr(
    rowptr: Any,
    column: Any,
    value: Any,
    long_row: Any,
    operand: Any,
    out: Any,
    *,
    num_rows: int,
    num_long_rows: int,
    num_columns: int,
    number_type: str,
    accumulate: bool,
    bias: Any = None,
    operand_stride: int | None = None,
    out_stride: int | None = None,
    slice_columns: int = 256,
    stream: int = 0,
) -> None:
    """Set ``out`` to ``A @ operand``, or add it, on the GPU; sums are taken in float32.

    Parameters
    ----------
    rowptr : int32 device array, shape (m + 1,)
    column : int32 device array, shape (E,)
        Values in ``[0, k)``; the kernel does not check.
    value : device array, shape (E,)
        Of ``number_type``, as ``operand`` and ``out``.
    long_row : int32 device array, shape (num_long_rows,)
        Rows with more than ``LONG_ROW_NONZEROS`` nonzeros: all of them, and no others.
    operand : device array, shape (k, w)
        Row-major; its rows may lie further apart than w.
    out : device array, shape (m, w)
        Row-major; its rows may lie further apart than w.
    num_rows, num_long_rows, num_columns : int
        m, the length of ``long_row``, and w.
    number_type : {"float32", "bfloat16"}
        bfloat16 numbers are passed as their 16 bits and rounded to nearest, once a call.
    accumulate : bool
        Add to ``out`` instead of overwriting it.
    bias : device array, shape (w,), optional
        Added to every row.
    operand_stride, out_stride : int, optional
        Elements from one row of ``operand``, or ``out``, to the next; w where not given.
    slice_columns : int
        Columns taken at a time: 32, 64, 128 or 256.
    stream : int
        CUDA stream handle. The call does not wait.

    Raises
    ------
    ValueError
        If ``slice_columns`` or ``number_type`` is not one of those above.
    """
    allowed = [THREADS_PER_WARP * number for number in COLUMNS_PER_LANE]
    if slice_columns not in allowed or number_type not in NUMBER_TYPES:
        raise ValueError(
            f"slice_columns = {slice_columns} of {number_type}, expected one of {allowed} of "
            f"{sorted(NUMBER_TYPES)}"
        )
    if num_rows == 0 or num_columns == 0:
        return
    narrowest = next((size for size in allowed if size >= num_columns), allowed[-1])
    columns_per_lane = min(slice_columns, narrowest) // THREADS_PER_WARP
    num_slices = -(-num_columns // (columns_per_lane * THREADS_PER_WARP))
    blocks_per_slice = num_long_rows + -(-num_rows // WARPS_PER_BLOCK)
    is_full = num_columns % (columns_per_lane * THREADS_PER_WARP) == 0
    _multiply_csr_kernel(columns_per_lane, number_type, is_full)(
        num_slices * blocks_per_slice, THREADS_PER_WARP * WARPS_PER_BLOCK,
        rowptr, column, value, long_row, operand, value if bias is None else bias, out,
        num_rows, num_long_rows, num_columns, operand_stride or num_columns,
        out_stride or num_columns, blocks_per_slice, int(accumulate), int(bias is not None),
        stream=stream,
    )  # fmt: skip


def _float_of_bits(bits):
    """Read 32 bits as a float32; in the simulator, where libdevice is not there."""
    return np.int32(bits).view(np.float32)


def _bits_of_float(number):
    return np.float32(number).view(np.int32)


if not IS_SIMULATOR:
    from numba.cuda import libdevice

    @cuda.jit(device=True, forceinline=True)
    def _float_of_bits(bits):
        return libdevice.int_as_float(bits)

    @cuda.jit(device=True, forceinline=True)
    def _bits_of_float(number):
        return libdevice.float_as_int(number)


def _device(function: Any) -> Any:
    return function if IS_SIMULATOR else cuda.jit(device=True, forceinline=True)(function)


@_device
def _load_float32(array, place):
    return array[place]


@_device
def _store_float32(array, place, number):
    array[place] = number


@_device
def _load_bfloat16(array, place):
    return _float_of_bits(int32(array[place]) << int32(16))


@_device
def _store_bfloat16(array, place, number):
    bits = _bits_of_float(number)
    # Round to nearest, ties to even, as the hardware does.
    bits += int32(0x7FFF) + ((bits >> int32(16)) & int32(1))
    array[place] = (bits >> int32(16)) & int32(0xFFFF)


@cache
def _add_edges(columns_per_lane: int, number_type: str, is_full: bool) -> Any:
    """Compile the walk over nonzeros: add their rows of the operand to a lane's sums.

    Where the slices are full, a lane's columns lie at constant distances, known to the compiler.
    """
    load = _load_float32 if number_type == "float32" else _load_bfloat16

    def add_edges(column, value, operand, edge, stop, stride, place, total):
        # Four nonzeros at a time keep enough reads under way to hide the memory's latency.
        while edge + 4 <= stop:
            a = np.int64(column[edge]) * stride
            b = np.int64(column[edge + 1]) * stride
            c = np.int64(column[edge + 2]) * stride
            d = np.int64(column[edge + 3]) * stride
            u, v = load(value, edge), load(value, edge + 1)
            x, y = load(value, edge + 2), load(value, edge + 3)
            for number in range(columns_per_lane):
                here = place[0] + number * THREADS_PER_WARP if is_full else place[number]
                total[number] += (
                    u * load(operand, a + here)
                    + v * load(operand, b + here)
                    + x * load(operand, c + here)
                    + y * load(operand, d + here)
                )
            edge += 4
        while edge < stop:
            a = np.int64(column[edge]) * stride
            u = load(value, edge)
            for number in range(columns_per_lane):
                here = place[0] + number * THREADS_PER_WARP if is_full else place[number]
                total[number] += u * load(operand, a + here)
            edge += 1

    return _device(add_edges)


@cache
def _add_warps(columns_per_lane: int) -> Any:
    """Compile the sum over the warps of a block, in their order; the first warp gets it."""
    slice_columns = columns_per_lane * THREADS_PER_WARP
    sums_shape = WARPS_PER_BLOCK * slice_columns

    def add_warps(warp, lane, total):
        sums = cuda.shared.array(sums_shape, float32)
        for number in range(columns_per_lane):
            sums[warp * slice_columns + number * THREADS_PER_WARP + lane] = total[number]
        cuda.syncthreads()
        for other in range(1, WARPS_PER_BLOCK):
            for number in range(columns_per_lane):
                total[number] += sums[other * slice_columns + number * THREADS_PER_WARP + lane]

    return _device(add_warps)


@cache
def _multiply_csr_kernel(columns_per_lane: int, number_type: str, is_full: bool) -> CudaKernel:
    """Compile for a number of columns a lane, which the loops over them are unrolled by."""
    is_float32 = number_type == "float32"
    load = _load_float32 if is_float32 else _load_bfloat16
    store = _store_float32 if is_float32 else _store_bfloat16
    add_edges = _add_edges(columns_per_lane, number_type, is_full)
    add_warps = _add_warps(columns_per_lane)
    slice_columns = columns_per_lane * THREADS_PER_WARP

    def multiply_csr_kernel(
        rowptr, column, value, long_row, operand, bias, out, num_rows, num_long_rows, num_columns,
        operand_stride, out_stride, blocks_per_slice, accumulate, has_bias,
    ):  # fmt: skip
        block = cuda.blockIdx.x % blocks_per_slice
        warp = cuda.threadIdx.x // THREADS_PER_WARP
        lane = cuda.threadIdx.x % THREADS_PER_WARP
        is_long = block < num_long_rows
        row = (block - num_long_rows) * WARPS_PER_BLOCK + warp
        if is_long:
            row = np.int64(long_row[block])
        if row >= num_rows:
            return
        edge, stop = np.int64(rowptr[row]), np.int64(rowptr[row + 1])
        if is_long:
            share = (stop - edge + WARPS_PER_BLOCK - 1) // WARPS_PER_BLOCK
            edge += warp * share
            stop = min(stop, edge + share)
        elif stop - edge > LONG_ROW_NONZEROS:
            return
        first = (cuda.blockIdx.x // blocks_per_slice) * slice_columns + lane
        total = cuda.local.array(columns_per_lane, float32)
        place = cuda.local.array(columns_per_lane, np.int64)
        for number in range(columns_per_lane):
            total[number] = float32(0.0)
            # Lanes beyond the last column read it again: no branch in the loop.
            place[number] = min(first + number * THREADS_PER_WARP, num_columns - 1)
        add_edges(column, value, operand, edge, stop, operand_stride, place, total)
        if is_long:
            add_warps(warp, lane, total)
            if warp > 0:
                return
        for number in range(columns_per_lane):
            mine = first + number * THREADS_PER_WARP
            if mine < num_columns:
                target = row * out_stride + mine
                if has_bias:
                    total[number] += load(bias, mine)
                if accumulate:
                    total[number] += load(out, target)
                store(out, target, total[number])

    element = NUMBER_TYPES[number_type]
    return CudaKernel(
        multiply_csr_kernel, np.int32, np.int32, element, np.int32, element, element, element,
        *[None] * 8,
    )  # fmt: skip
