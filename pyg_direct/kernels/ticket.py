"""Hand out work to warps in order, so that what they touch at one time lies close together.

A grid with a fixed stride drifts apart: warps that the bus serves late fall behind. Here a warp
that is done takes the next piece of work, whoever it is.

``tickets`` are two int64 words on the device, zero between launches, for the use of one stream.
"""

from numba import cuda
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

from pyg_direct.kernels.atomic import add_to_word

# The simulator has no warps: there each thread is one of a single lane, and few are enough.
LANES_PER_WARP = 1 if IS_SIMULATOR else 32
MAX_WARPS_PER_BLOCK = 2 if IS_SIMULATOR else 32
ALL_LANES = 0xFFFFFFFF


@cuda.jit(device=True)
def from_first_lane(value):
    """Return what the first lane of the warp has."""
    return value if IS_SIMULATOR else cuda.shfl_sync(ALL_LANES, value, 0)


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
