"""Hand out work to warps in order, so that what they touch at one time lies close together.

A grid with a fixed stride drifts apart: warps that the bus serves late fall behind. Here a warp
that is done takes the next piece of work, whoever it is.

``tickets`` are two int64 words on the device, zero between launches, for the use of one stream.
"""

from numba import cuda
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

# The simulator has no warps: there each thread is one of a single lane, and few are enough.
LANES_PER_WARP = 1 if IS_SIMULATOR else 32
MAX_WARPS_PER_BLOCK = 2 if IS_SIMULATOR else 32
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
def draw_ticket(tickets, num_items):
    """Return, to the first lane of a warp, the first of the next ``num_items`` items.

    Draw the next ticket before the work of this one, and read it with ``from_first_lane`` after:
    the answer then takes no time of its own.
    """
    if cuda.threadIdx.x % LANES_PER_WARP == 0:
        return add_to_word(tickets, 0, num_items)
    return 0


@cuda.jit(device=True)
def return_tickets(tickets, num_warps):
    """Say that a warp draws no more; the last of ``num_warps`` leaves zeros for the next launch."""
    if cuda.threadIdx.x % LANES_PER_WARP == 0 and add_to_word(tickets, 1, 1) == num_warps - 1:
        tickets[0] = 0
        tickets[1] = 0
