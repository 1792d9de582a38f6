"""Put ids in order of address, roughly: in one pass, where a sort takes four.

Rows that are read at about the same time should lie within the reach of translations, in windows of
some megabytes; in what order rows of one window are read costs nothing. So ids are not sorted: they
go to buckets of neighbouring rows, which stand in order. Two launches, the first of which counts.

Shape legend: ``N`` ids.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

from pyg_direct.kernels.atomic import add_to_word
from pyg_direct.kernels.launch import CudaKernel

# Each takes four bytes of a block's shared memory. A table of 32 GiB has windows of 8 MiB.
MAX_BUCKETS = 64 if IS_SIMULATOR else 4_096
THREADS_PER_BLOCK = 4 if IS_SIMULATOR else 1_024
IDS_PER_BLOCK, MAX_BLOCKS = 64 if IS_SIMULATOR else 2_048, 128
BUCKETS_PER_THREAD = MAX_BUCKETS // THREADS_PER_BLOCK


def num_blocks(num_ids: int) -> int:
    """Return how many blocks partition so many ids."""
    return min(MAX_BLOCKS, -(-num_ids // IDS_PER_BLOCK))


def bucket_shift(num_rows: int) -> int:
    """Return the logarithm of a bucket's rows, the least with which there are few enough."""
    return max(0, (num_rows - 1).bit_length() - (MAX_BUCKETS.bit_length() - 1))


def partition_ids(
    index: Any, num_rows: int, ids: Any, places: Any, *, counts: Any, firsts: Any, stream: int = 0
) -> None:
    """Write ids in order of bucket, and where each stood; the call does not wait.

    Parameters
    ----------
    index : int32 or int64 device array, shape (N,)
        N is 1 to ``2**31 - 1``. An id that is not in ``[0, num_rows)`` goes to the first or the
        last bucket.
    num_rows : int
        Of the table, 1 or more.
    ids : device array, shape (N,), like ``index``
        Overwritten. The order within a bucket is any, and may differ from launch to launch.
    places : int64 device array, shape (N,)
        Overwritten: ``ids == index[places]``.
    counts : int64 device array, shape (MAX_BUCKETS + 1,)
        Zeros, which the kernels leave behind again; for the use of one stream.
    firsts : int32 device array, shape (num_blocks(N), MAX_BUCKETS)
        Of any content.
    stream : int
        CUDA stream handle.
    """
    count, place = _kernels(index.itemsize)
    blocks, shift = num_blocks(len(index)), bucket_shift(num_rows)
    shape, numbers = (blocks, THREADS_PER_BLOCK), (len(index), shift)
    count(*shape, index, *numbers, counts, firsts, stream=stream)
    place(*shape, index, *numbers, counts, firsts, ids, places, stream=stream)


@cuda.jit(device=True)
def piece_of_block(num_ids):
    """Return where this thread begins in the ids of its block, and where the block's ids end."""
    size = -(-num_ids // cuda.gridDim.x)
    first = cuda.blockIdx.x * size
    return first + cuda.threadIdx.x, min(first + size, num_ids)


@cuda.jit(device=True)
def bucket_of(id_, shift):
    """Return the bucket of an id, of a wrong one too."""
    return min(max(np.int64(id_) >> shift, 0), MAX_BUCKETS - 1)


@cuda.jit(device=True)
def sum_before(sums):
    """Replace the number of each thread, in shared memory, by the sum of those before it."""
    thread = cuda.threadIdx.x
    own, distance = sums[thread], 1
    while distance < THREADS_PER_BLOCK:
        cuda.syncthreads()
        before = sums[thread - distance] if thread >= distance else 0
        cuda.syncthreads()
        sums[thread] += before
        distance *= 2
    cuda.syncthreads()
    return sums[thread] - own


@cache
def _kernels(id_bytes: int) -> tuple[CudaKernel, CudaKernel]:
    def count_ids_kernel(index, num_ids, shift, counts, firsts):
        """Count the buckets of each block's ids, and draw its first place in each of them."""
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        counted = cuda.shared.array(MAX_BUCKETS, np.int32)
        for bucket in range(thread, MAX_BUCKETS, THREADS_PER_BLOCK):
            counted[bucket] = 0
        cuda.syncthreads()
        first, stop = piece_of_block(num_ids)
        for item in range(first, stop, THREADS_PER_BLOCK):
            cuda.atomic.add(counted, bucket_of(index[item], shift), 1)
        cuda.syncthreads()
        for bucket in range(thread, MAX_BUCKETS, THREADS_PER_BLOCK):
            if counted[bucket] > 0:
                firsts[block * MAX_BUCKETS + bucket] = add_to_word(counts, bucket, counted[bucket])

    def place_ids_kernel(index, num_ids, shift, counts, firsts, ids, places):
        """Write each block's ids to their buckets; the last block to come clears the counts."""
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        next_place = cuda.shared.array(MAX_BUCKETS, np.int32)
        sums = cuda.shared.array(THREADS_PER_BLOCK, np.int32)
        is_last = cuda.shared.array(1, np.int32)
        first_bucket, total = thread * BUCKETS_PER_THREAD, 0
        for bucket in range(first_bucket, first_bucket + BUCKETS_PER_THREAD):
            total += counts[bucket]
        sums[thread] = total
        start = sum_before(sums)
        for bucket in range(first_bucket, first_bucket + BUCKETS_PER_THREAD):
            # Where the block has no id of a bucket, what it finds is of no meaning, and not used.
            next_place[bucket] = start + firsts[block * MAX_BUCKETS + bucket]
            start += counts[bucket]
        cuda.syncthreads()
        if thread == 0:
            is_last[0] = add_to_word(counts, MAX_BUCKETS, 1) == cuda.gridDim.x - 1
        first, stop = piece_of_block(num_ids)
        for item in range(first, stop, THREADS_PER_BLOCK):
            place = cuda.atomic.add(next_place, bucket_of(index[item], shift), 1)
            ids[place] = index[item]
            places[place] = item
        cuda.syncthreads()
        if is_last[0]:
            for bucket in range(thread, MAX_BUCKETS + 1, THREADS_PER_BLOCK):
                counts[bucket] = 0

    id_type = f"int{8 * id_bytes}"
    return (
        CudaKernel(count_ids_kernel, id_type, None, None, np.int64, np.int32),
        CudaKernel(place_ids_kernel, id_type, None, None, np.int64, np.int32, id_type, np.int64),
    )
