"""Machine instructions for kernels that numba has no words for, and bits of uint64."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy import uint64

from wfstdec.jit import inlined

_ONE = uint64(1)


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of `array[index]`, to be read soon."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.make_array(signature.args[0])
        data = kind(context, builder, args[0]).data
        byte_pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [args[1]]), byte_pointer)
        signature_of = ir.FunctionType(ir.VoidType(), [byte_pointer, i32, i32, i32])
        function = cgutils.get_or_insert_function(
            builder.module, signature_of, "llvm.prefetch.p0"
        )
        # For reading, to be kept in all caches, of data.
        builder.call(function, [address, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


@intrinsic
def count_bits(typing_context: Any, value: Any) -> Any:
    """The number of bits set in a uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


@inlined
def lowest_bit(bits):
    """The lowest bit that is set in a uint64, as a uint64."""
    return bits & (~bits + _ONE)


@inlined
def bits_below(bits, bit):
    """Count the bits of a uint64 that are set below `bit`, which has one bit set."""
    return count_bits(bits & (bit - _ONE))
