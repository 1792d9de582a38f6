"""Change a word that other threads change too, at an address.

Numba's own atomics take arrays, and our kernels take addresses.
"""

from typing import Any

from numba import cuda
from numba.core.config import ENABLE_CUDASIM as IS_SIMULATOR

if IS_SIMULATOR:

    @cuda.jit(device=True)
    def add_to_word(words, index, value):
        """Add to an int64 word, and return what it was before."""
        return cuda.atomic.add(words, index, value)

    @cuda.jit(device=True)
    def or_word(words, index, bits):
        """Set bits of an int64 word, and return what it was before."""
        return cuda.atomic.or_(words, index, bits)

else:
    from numba.cuda.extending import intrinsic

    def _atomic(operation: str) -> Any:
        def change_word(typing_context, words, index, value):
            from numba.cuda import types

            def generate(context, builder, signature, arguments):
                address = builder.gep(arguments[0], [arguments[1]])
                operand = context.cast(builder, arguments[2], signature.args[2], types.int64)
                return builder.atomic_rmw(operation, address, operand, "monotonic")

            return types.int64(words, index, value), generate

        return intrinsic(change_word)

    add_to_word = _atomic("add")
    or_word = _atomic("or")
