"""Tuples of arrays passed from Python to kernels as one pointer.

    handle = Handle(state)                # once, while the arrays do not move
    inputs = Handle(Inputs(Handle(graph), words))     # a handle in it is not read again

    @kernel
    def advance(state, logprobs):         # advance(handle, logprobs)
        arrays = opened(state)            # the NamedTuple itself

numba inspects each array of a tuple at every kernel call: a hundred of them take ten
microseconds. A handle is inspected once, when it is created, which takes about two
microseconds per array.
"""

from __future__ import annotations

from array import array
from typing import Any, Generic, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.pythonapi import NativeValue
from numba.core.types.containers import BaseTuple
from numba.extending import intrinsic, register_model, unbox

_Tuple = TypeVar("_Tuple", bound=tuple[Any, ...])
_WORD = ir.IntType(64)
_SIZE = 8
_types: dict[tuple[Any, ...], HandleType] = {}
"""Types by the result of `_look`: numba takes longer for one than a frame takes."""


class HandleType(types.Type):
    """Type of a handle: that of the tuple behind it."""

    def __init__(self, of: Any) -> None:
        self.of = of
        super().__init__(f"handle({of})")


@register_model(HandleType)
class _HandleModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, _WORD.as_pointer())


class Handle(Generic[_Tuple]):
    """A tuple that kernels can open."""

    # `value`: a tuple of C-ordered arrays, numbers, None, tuples of these, and handles,
    # which are replaced by their tuples.
    # `address`: of the words that kernels read: for an array its address and its shape,
    # for a number its bits.
    __slots__ = "_numba_type_", "_words", "address", "value"

    def __init__(self, value: _Tuple) -> None:
        # An array of the standard library: NumPy takes ten times as long to fill one.
        words, kinds = array("Q"), list[Any]()
        _look(value, words, kinds)
        if any(isinstance(one, Handle) for one in value):
            value = type(value)(*map(_bare, value))
        found = _types.get(tuple(kinds))
        if found is None:
            found = _types[tuple(kinds)] = HandleType(numba.typeof(value))
        self.value, self._numba_type_ = value, found
        self._words = words
        self.address = words.buffer_info()[0]


def _bare(member: Any) -> Any:
    return member.value if isinstance(member, Handle) else member


def _look(value: Any, words: array[int], kinds: list[Any]) -> None:
    if isinstance(value, np.ndarray):
        assert value.flags.c_contiguous
        words.extend((value.ctypes.data, *value.shape))
        kinds.append((value.dtype, value.ndim, value.flags.writeable))
        return
    if isinstance(value, Handle):
        words.extend(value._words)
        kinds.append(value._numba_type_)
        return
    kinds.append(type(value))
    if isinstance(value, tuple):
        for one in value:
            _look(one, words, kinds)
    elif value is not None:
        number = value if isinstance(value, np.generic) else np.asarray(value)
        words.frombytes(number.tobytes().ljust(_SIZE, b"\0"))


@unbox(HandleType)
def _unbox(kind: Any, handle: Any, context: Any) -> NativeValue:
    api = context.pyapi
    number = api.object_getattr_string(handle, "address")
    address = api.long_as_voidptr(number)
    api.decref(number)
    return NativeValue(context.builder.bitcast(address, _WORD.as_pointer()))


@intrinsic
def opened(typing_context: Any, handle: Any) -> Any:
    """Return the tuple behind a handle; None for None."""
    if handle == types.none:
        return types.none(handle), lambda context, *_: context.get_dummy_value()

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _Reader(context, builder, args[0]).read(handle.of)

    return handle.of(handle), generate


@intrinsic
def at_address(typing_context: Any, handle: Any, address: Any) -> Any:
    """Return the handle at an address, int64, of another's type; None for None."""
    if handle == types.none:
        return handle(handle, address), lambda context, *_: context.get_dummy_value()

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], _WORD.as_pointer())

    return handle(handle, address), generate


@intrinsic
def float_rows(typing_context: Any, words: Any) -> Any:
    """Return the float32 [T, V] array whose address and shape are in `words`, int64."""
    kind = types.Array(types.float32, 2, "C")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(words)(context, builder, args[0]).data
        return _Reader(context, builder, data).read(kind)

    return kind(words), generate


class _Reader:
    def __init__(self, context: Any, builder: Any, words: Any) -> None:
        self._context, self._builder, self._words = context, builder, words
        self._at = 0

    def read(self, kind: Any) -> Any:
        if isinstance(kind, BaseTuple):
            whole = self._context.get_value_type(kind)
            return self._joined(whole, [self.read(one) for one in kind])
        if isinstance(kind, types.Array):
            return self._array(kind)
        if kind == types.none:
            return self._context.get_dummy_value()
        return self._next(self._context.get_value_type(kind))

    def _next(self, kind: Any) -> Any:
        # The next word as a value of an LLVM type, of 64 bits or fewer.
        builder = self._builder
        at = builder.gep(self._words, [_WORD(self._at)])
        self._at += 1
        if isinstance(kind, ir.IntType):
            word = builder.load(at)
            return builder.trunc(word, kind) if kind.width < _WORD.width else word
        return builder.load(builder.bitcast(at, kind.as_pointer()))

    def _array(self, kind: Any) -> Any:
        context, builder = self._context, self._builder
        of = context.data_model_manager[kind]
        kinds = {name: of.get_type(name) for name in ("meminfo", "parent", "data")}
        pointers = {n: context.get_value_type(kind) for n, kind in kinds.items()}
        data = self._next(pointers["data"])
        shape = [self._next(_WORD) for _ in range(kind.ndim)]
        size = _WORD(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        strides, count = [size], shape[0]
        for length in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], length))
            count = builder.mul(count, length)
        fields = {
            "meminfo": ir.Constant(pointers["meminfo"], None),
            "parent": ir.Constant(pointers["parent"], None),
            "nitems": count,
            "itemsize": size,
            "data": data,
            "shape": self._joined(ir.ArrayType(_WORD, kind.ndim), shape),
            "strides": self._joined(ir.ArrayType(_WORD, kind.ndim), strides),
        }
        whole = context.get_value_type(kind)
        order = sorted(fields, key=of.get_field_position)
        return self._joined(whole, [fields[name] for name in order])

    def _joined(self, kind: Any, members: list[Any]) -> Any:
        aggregate = ir.Constant(kind, ir.Undefined)
        for at, member in enumerate(members):
            aggregate = self._builder.insert_value(aggregate, member, at)
        return aggregate
