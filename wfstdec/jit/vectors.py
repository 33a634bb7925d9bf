"""Vectors of sixteen floats or integers: LLVM's vectors as values of kernels.

    x = load(costs, i)                 # float32, uint32 or uint64 [16], costs[i:]
    near = at_most(x, splat(cutoff))   # uint16, a bit for each
    store(costs, i, select(near, x, splat(float32(np.inf))))

LLVM maps them to the processor: one instruction with AVX-512, two with AVX2, four with
NEON. Arrays must have room for sixteen after their end, which only numba's
`NUMBA_BOUNDSCHECK=1` checks.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model
from numpy import uint64

from wfstdec.jit import inlined

_ONE = uint64(1)


def _code(signature: Any, make: Callable[..., Any]) -> Any:
    return signature, lambda context, builder, signature, args: make(builder, *args)


@intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of `array[index]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.make_array(signature.args[0])
        data = kind(context, builder, args[0]).data
        byte_pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [args[1]]), byte_pointer)
        signature_of = ir.FunctionType(ir.VoidType(), [byte_pointer, i32, i32, i32])
        function = cgutils.get_or_insert_function(
            builder.module, signature_of, "llvm.prefetch.p0"
        )
        # For reading, into all caches, of data.
        builder.call(function, [address, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, index), generate


@intrinsic
def count_bits(typing_context: Any, value: Any) -> Any:
    """Return the number of bits set in a uint64."""
    return _code(types.uint64(types.uint64), ir.IRBuilder.ctpop)


@inlined
def lowest_bit(bits):
    """Return the lowest bit that is set in a uint64, as a uint64."""
    return bits & (~bits + _ONE)


@inlined
def bits_below(bits, bit):
    """Count the bits of a uint64 that are set below `bit`, which has one bit set."""
    return count_bits(bits & (bit - _ONE))


LANES = 16
_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_EACH = range(LANES)


class _Vector(types.Type):
    def __init__(self, of: Any) -> None:
        self.of = of
        super().__init__(f"vector16({of})")


_FLOATS, _WHOLES = _Vector(types.float32), _Vector(types.uint32)
_SETS = _Vector(types.uint64)


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.VectorType(_element(fe_type), LANES))


def _vector_of(dtype: Any) -> Any:
    return {types.float32: _FLOATS, types.uint64: _SETS}.get(dtype, _WHOLES)


def _element(vector: Any) -> Any:
    return {types.float32: _F32, types.uint64: _I64}.get(vector.of, _I32)


def _address(context: Any, builder: Any, kind: Any, args: Any) -> Any:
    vector = ir.VectorType(_element(_vector_of(kind.dtype)), LANES)
    at = _element_address(context, builder, kind, args[0], args[1], LANES)
    return builder.bitcast(at, vector.as_pointer())


def _element_address(
    context: Any, builder: Any, kind: Any, array: Any, index: Any, count: int
) -> Any:
    """Point to the first of some elements, which numba's bounds checks include."""
    of = context.make_array(kind)(context, builder, array)
    if config.BOUNDSCHECK:
        end = builder.add(index, _I64(count))
        is_outside = builder.or_(
            builder.icmp_unsigned(">", end, of.nitems),
            builder.icmp_unsigned(">", index, end),
        )
        with builder.if_then(is_outside, likely=False):
            raising = context.call_conv.return_user_exc
            raising(builder, IndexError, ("vector is out of bounds",))
    return builder.gep(of.data, [index])


def _splat(builder: Any, value: Any) -> Any:
    vector = ir.VectorType(value.type, LANES)
    undefined = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(undefined, value, _I32(0))
    zeros = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.shuffle_vector(one, undefined, zeros)


def _lesser(builder: Any, one: Any, other: Any) -> Any:
    lower = builder.fcmp_ordered("<", one, other, flags=["nnan", "nsz"])
    return builder.select(lower, one, other)


def _greater(builder: Any, one: Any, other: Any) -> Any:
    higher = builder.fcmp_ordered(">", one, other, flags=["nnan", "nsz"])
    return builder.select(higher, one, other)


@intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """Read `array[index:index + 16]`, float32 or uint32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_address(context, builder, signature.args[0], args))
        # Rows begin at any address: an aligned read would crash.
        value.align = 4
        return value

    return _vector_of(array.dtype)(array, types.uint64), generate


@intrinsic
def store(typing_context: Any, array: Any, index: Any, vector: Any) -> Any:
    """Write `array[index:index + 16]`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at = _address(context, builder, signature.args[0], args)
        builder.store(args[2], at).align = 4
        return context.get_dummy_value()

    return types.void(array, types.uint64, vector), generate


@intrinsic
def splat(typing_context: Any, value: Any) -> Any:
    """Return sixteen copies of a float32 or uint32."""
    vector = _vector_of(value)
    return _code(vector(vector.of), _splat)


def _elementwise(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return an elementwise operation on two vectors; `make` generates its code."""

    @intrinsic
    def operation(typing_context: Any, one: Any, other: Any) -> Any:
        return _code(one(one, other), make)

    return operation


add, subtract, multiply = map(
    _elementwise, (ir.IRBuilder.fadd, ir.IRBuilder.fsub, ir.IRBuilder.fmul)
)
"""Sums, differences and products of floats."""
least, most = _elementwise(_lesser), _elementwise(_greater)
"""Lesser or greater of each pair of floats, without NaN."""
both, either = _elementwise(ir.IRBuilder.and_), _elementwise(ir.IRBuilder.or_)
"""Bitwise and, or of each pair of integers."""


@intrinsic
def negative(typing_context: Any, vector: Any) -> Any:
    """Return the negated floats."""
    return _code(vector(vector), ir.IRBuilder.fneg)


def _comparison(sign: str) -> Callable[..., Any]:
    """Return an elementwise comparison of two vectors: uint16, as bits."""

    @intrinsic
    def operation(typing_context: Any, one: Any, other: Any) -> Any:
        is_float = one.of == types.float32
        compare = ir.IRBuilder.fcmp_ordered if is_float else ir.IRBuilder.icmp_unsigned
        return _code(
            types.uint16(one, other),
            lambda builder, *args: builder.bitcast(compare(builder, sign, *args), _I16),
        )

    return operation


below, at_most, equal = _comparison("<"), _comparison("<="), _comparison("==")
"""Bits of lanes that are less, less or equal, equal."""


@intrinsic
def has(typing_context: Any, vector: Any, value: Any) -> Any:
    """Return bits of the integers that have a bit in common with a uint32."""

    def make(builder: Any, vector: Any, value: Any) -> Any:
        common = builder.and_(vector, _splat(builder, value))
        zeros = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
        return builder.bitcast(builder.icmp_unsigned("!=", common, zeros), _I16)

    return _code(types.uint16(_WHOLES, types.uint32), make)


@intrinsic
def any_bit(typing_context: Any, vector: Any) -> Any:
    """Return bits of the integers that are not 0."""

    def make(builder: Any, vector: Any) -> Any:
        zeros = ir.Constant(vector.type, [0] * LANES)
        return builder.bitcast(builder.icmp_unsigned("!=", vector, zeros), _I16)

    return _code(types.uint16(vector), make)


@intrinsic
def count_from(typing_context: Any, first: Any) -> Any:
    """Return `first`, a uint32, and the 15 following numbers."""

    def make(builder: Any, first: Any) -> Any:
        lanes = ir.Constant(ir.VectorType(_I32, LANES), list(_EACH))
        return builder.add(_splat(builder, first), lanes)

    return _code(_WHOLES(types.uint32), make)


@intrinsic
def look_up(typing_context: Any, table: Any, first: Any, levels: Any) -> Any:
    """Read `table[first + int(level)]`, uint64, for sixteen floats of 0 to below 16."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sets = builder.load(_address(context, builder, signature.args[0], args))
        sets.align = 8
        whole = builder.fptosi(args[2], ir.VectorType(_I32, LANES))
        index = builder.zext(whole, ir.VectorType(_I64, LANES))
        # Permutations of eight, which LLVM compiles to one AVX-512 instruction.
        kind, wanted = ir.VectorType(_I64, 8), ir.VectorType(_I32, 8)
        halves = [ir.Constant(wanted, [*range(begin, begin + 8)]) for begin in (0, 8)]
        low, high = (builder.shuffle_vector(sets, sets, half) for half in halves)
        found = []
        for half in halves:
            own = builder.shuffle_vector(index, index, half)
            within = builder.and_(own, ir.Constant(kind, [7] * 8))
            upper = builder.icmp_unsigned(">", own, ir.Constant(kind, [7] * 8))
            chosen = [ir.Constant(kind, ir.Undefined)] * 2
            for lane in range(8):
                at = builder.extract_element(within, _I32(lane))
                for h, source in enumerate((low, high)):
                    value = builder.extract_element(source, at)
                    chosen[h] = builder.insert_element(chosen[h], value, _I32(lane))
            found.append(builder.select(upper, chosen[1], chosen[0]))
        order = ir.Constant(ir.VectorType(_I32, LANES), list(_EACH))
        return builder.shuffle_vector(*found, order)

    return _SETS(table, types.uint64, _FLOATS), generate


@intrinsic
def store_some(
    typing_context: Any, array: Any, index: Any, vector: Any, bits: Any
) -> Any:
    """Write the lanes whose bit is set to `array[index:]`, in order."""
    # Undefined numbers follow them, up to `array[index + 16]`.

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind_of, element, at = signature.args[0], args[2].type.element, args[1]
        mask = builder.bitcast(args[3], ir.VectorType(ir.IntType(1), LANES))
        # LLVM 20 stores the second half of sixteen uint64 as if it were aligned.
        width = 8 if element == _I64 else LANES
        name = {_F32: "f32", _I32: "i32", _I64: "i64"}[element]
        kind, chosen = (
            ir.VectorType(element, width),
            ir.VectorType(ir.IntType(1), width),
        )
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(kind, [kind, chosen, kind]),
            f"llvm.experimental.vector.compress.v{width}{name}",
        )
        for first in range(0, LANES, width):
            part = ir.Constant(
                ir.VectorType(_I32, width), [*range(first, first + width)]
            )
            values = builder.shuffle_vector(args[2], args[2], part)
            own = builder.shuffle_vector(mask, mask, part)
            undefined = ir.Constant(kind, ir.Undefined)
            value = builder.call(function, [values, own, undefined])
            to = _element_address(context, builder, kind_of, args[0], at, width)
            builder.store(value, builder.bitcast(to, kind.as_pointer())).align = 4
            count = builder.ctpop(builder.bitcast(own, ir.IntType(width)))
            at = builder.add(at, builder.zext(count, _I64))
        return context.get_dummy_value()

    return types.void(array, types.uint64, vector, types.uint16), generate


@intrinsic
def select(typing_context: Any, bits: Any, one: Any, other: Any) -> Any:
    """Choose lanes of `one` where a bit is set, else of `other`."""

    def make(builder: Any, bits: Any, one: Any, other: Any) -> Any:
        mask = builder.bitcast(bits, ir.VectorType(ir.IntType(1), LANES))
        return builder.select(mask, one, other)

    return _code(one(types.uint16, one, other), make)


@intrinsic
def gather(typing_context: Any, array: Any, index: Any) -> Any:
    """Read `array[index]`, float32, for sixteen indices."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        indices = builder.zext(args[1], ir.VectorType(_I64, LANES))
        vector = ir.Constant(ir.VectorType(_F32, LANES), ir.Undefined)
        for lane in _EACH:
            at = builder.extract_element(indices, _I32(lane))
            at = _element_address(context, builder, kind, args[0], at, 1)
            value = builder.load(at)
            vector = builder.insert_element(vector, value, _I32(lane))
        return vector

    return _FLOATS(array, _WHOLES), generate


@intrinsic
def least_of(typing_context: Any, vector: Any) -> Any:
    """Return the least of sixteen floats, none of which is NaN."""

    def make(builder: Any, value: Any) -> Any:
        width = LANES
        undefined = ir.Constant(ir.VectorType(_F32, LANES), ir.Undefined)
        while width > 1:
            width //= 2
            turned = [(lane + width) % LANES for lane in _EACH]
            order = ir.Constant(ir.VectorType(_I32, LANES), turned)
            other = builder.shuffle_vector(value, undefined, order)
            value = _lesser(builder, value, other)
        return builder.extract_element(value, _I32(0))

    return _code(types.float32(vector), make)


@intrinsic
def trailing(typing_context: Any, value: Any) -> Any:
    """Count the bits below the lowest set bit of a uint64 other than 0."""
    never_zero = ir.Constant(ir.IntType(1), 1)
    return _code(
        types.uint64(types.uint64),
        lambda builder, value: builder.cttz(value, never_zero),
    )


STEP = uint64(LANES)  # distance from one vector to the next
