"""Hand out work to warps in order, so that what they touch at one time lies close together.

A grid with a fixed stride drifts apart: warps that the bus serves late fall behind. Here a warp
that is done takes the next piece of work, whoever it is.

Shape legend: ``N`` items of work.
"""

from numba import cuda
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

# The simulator has no warps: there each thread is one of a single lane, and few are enough.
LANES_PER_WARP = 1 if IS_SIMULATOR else 32
THREADS_PER_BLOCK = 2 if IS_SIMULATOR else 1024
WARPS_PER_BLOCK = THREADS_PER_BLOCK // LANES_PER_WARP
ALL_LANES = 0xFFFFFFFF

if IS_SIMULATOR:

    @cuda.jit(device=True)
    def add_to_word(words, index, value):
        """Add to a word that other threads add to, and return what it was before."""
        return cuda.atomic.add(words, index, value)

    @cuda.jit(device=True)
    def from_first_lane(value):
        """Return what the first lane of the warp has."""
        return value

else:
    from numba.cuda.extending import intrinsic

    # Numba's own atomics take arrays, and our kernels take addresses.
    @intrinsic
    def add_to_word(typing_context, words, index, value):
        """Add to a word that other threads add to, and return what it was before."""
        from numba.cuda import types

        def generate(context, builder, signature, arguments):
            address = builder.gep(arguments[0], [arguments[1]])
            addend = context.cast(builder, arguments[2], signature.args[2], types.int64)
            return builder.atomic_rmw("add", address, addend, "monotonic")

        return types.int64(words, index, value), generate

    @cuda.jit(device=True)
    def from_first_lane(value):
        """Return what the first lane of the warp has."""
        return cuda.shfl_sync(ALL_LANES, value, 0)


@cuda.jit(device=True)
def take_ticket(tickets, num_items, total, num_warps):
    """Return the first of the next ``num_items`` items, for all lanes of a warp alike.

    What is ``total`` or more means that no work is left. Every warp must go on until then: the last
    of ``num_warps`` leaves two zeros behind, for the next launch on the stream.
    """
    first = 0
    if cuda.threadIdx.x % LANES_PER_WARP == 0:
        first = add_to_word(tickets, 0, num_items)
        if first >= total and add_to_word(tickets, 1, 1) == num_warps - 1:
            tickets[0] = 0
            tickets[1] = 0
    return from_first_lane(first)
