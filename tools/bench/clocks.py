"""Clocks in kernels: ticks of the processor around calls, and kernels that are changed.

    keep_no_kernels()                             # before any is compiled
    change("wfstdec.trie.cpu", ["frame.merge"], lambda one: clocked(one, 0))
    ticks, calls = TICKS[0]                       # after some frames

    timer = host.search_rows = KernelTime(host.search_rows)
    best = fastest_turn(lambda: decoder.decode(utterances), timer, frames, 5, phases)

What a clock takes by itself is measured by `empty_clocks`. Ticks go on while others
have the processor.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy import float32, int32, int64

from tools.bench.report import Row
from wfstdec.jit import inlined, kernel
from wfstdec.jit.cache import KernelCache
from wfstdec.search.hypothesis import Hypothesis
from wfstdec.trie.lookahead import Rows

TICKS = np.zeros((32, 2), np.int64)
"""Ticks and calls of each phase; the last is a clock around nothing."""
KEPT = np.zeros(1 << 23, np.int64)
"""Answers of `remembered`: where the next one goes, whether they are read, and they."""
_FIRST = 2


def keep_no_kernels() -> None:
    """Let nothing that is compiled be kept: it has the sources of what is unchanged."""
    KernelCache.load_overload = lambda *_: None  # type: ignore[method-assign]
    KernelCache.save_overload = lambda *_: None  # type: ignore[method-assign]


def change(room: str, names: Sequence[str], make: Callable[[Any], Any]) -> None:
    """Put something in the place of functions where the modules of a room call them."""
    for name in names:
        module, _, function = name.partition(".")
        found = importlib.import_module(f"{room}.{module}")
        if hasattr(found, function):
            setattr(found, function, make(getattr(found, function)))


@intrinsic
def ticks(typing_context: Any) -> Any:
    """The time-stamp counter of an x86 processor; memory is not moved across it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        name = "llvm.readcyclecounter"
        read = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.fence("seq_cst", "singlethread")
        found = builder.call(read, [])
        builder.fence("seq_cst", "singlethread")
        return found

    return types.int64(), generate


@intrinsic
def count(typing_context: Any, phase: Any, taken: Any) -> Any:
    """Add ticks, and a call, to a phase."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i64 = ir.IntType(64)
        address = builder.mul(args[0], i64(TICKS.strides[0]))
        address = builder.add(address, i64(TICKS.ctypes.data))
        row = builder.inttoptr(address, i64.as_pointer())
        for at, added in enumerate((args[1], i64(1))):
            cell = builder.gep(row, [i64(at)])
            builder.store(builder.add(builder.load(cell), added), cell)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def kept(typing_context: Any, position: Any) -> Any:
    """Read from `KEPT`, which compiled code would take for a constant."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_in_kept(builder, args[0]))

    return types.int64(types.int64), generate


@intrinsic
def keep(typing_context: Any, position: Any, value: Any) -> Any:
    """Write to `KEPT`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _in_kept(builder, args[0]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _in_kept(builder: Any, position: Any) -> Any:
    i64 = ir.IntType(64)
    address = builder.mul(position, i64(KEPT.strides[0]))
    address = builder.add(address, i64(KEPT.ctypes.data))
    return builder.inttoptr(address, i64.as_pointer())


def begin_keeping(*, read: bool) -> None:
    """Begin with the first answer: they are read, or found and kept.

    Raises:
        OverflowError: There were more than there is room for.
    """
    if KEPT[0] > len(KEPT):
        raise OverflowError("more answers than are kept: give fewer utterances")
    KEPT[:_FIRST] = _FIRST, read


def remembered(potential: Any) -> Any:
    """The look-ahead from a list of its answers, read one after the other.

    So it is as quick as if all of it were in the cache, with nothing to compute.
    """

    def call(*arguments):
        at = kept(0)
        keep(0, at + 2)
        if kept(1) == 0:
            cost, rows = potential(*arguments)
            if at + 2 <= len(KEPT):
                keep(at, int64(float32(cost).view(np.int32)))
                keep(at + 1, (int64(rows.own) << 32) | (rows.backoff & 0xFFFFFFFF))
            return cost, rows
        both = kept(at + 1)
        rows = Rows(both >> 32, int64(int32(both)))
        return int32(kept(at)).view(np.float32), rows

    return inlined(call)


def clocked(function: Any, phase: int) -> Any:
    """The function with a clock around it."""

    def call(*arguments):
        begin = ticks()
        found = function(*arguments)
        count(phase, ticks() - begin)
        return found

    return inlined(call)


# Kept by no cache: the address of `TICKS` is in it.
@njit
def empty_clocks(phase, calls):
    """Measure a clock around nothing."""
    for _ in range(calls):
        begin = ticks()
        count(phase, ticks() - begin)


@kernel
def ticks_now():
    """Read the time-stamp counter."""
    return ticks()


def digest_of(hypotheses: Sequence[Hypothesis]) -> str:
    """Hex digits of texts, times and costs."""
    said = [
        (one.text, one.total_cost, [(w.start_s, w.end_s) for w in one.words])
        for one in hypotheses
    ]
    return hashlib.blake2b(repr(said).encode(), digest_size=8).hexdigest()


class KernelTime:
    """CPU seconds in a kernel, as the host calls it; called in its place."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self.seconds, self._kernel = 0.0, kernel

    def __call__(self, *arguments: Any) -> Any:
        begin = time.process_time()
        found = self._kernel(*arguments)
        self.seconds += time.process_time() - begin
        return found


def fastest_turn(
    decode: Callable[[], Any],
    timer: KernelTime,
    frames: int,
    repeats: int,
    phases: Mapping[str, int],
) -> Row:
    """Nanoseconds of a frame: of the kernel, of the host beside it, and by phase.

    Args:
        decode: Decodes all frames.
        timer: In the place of the kernel.
        frames: So many.
        repeats: Turns, of which the one with the fastest kernel counts.
        phases: Clocks in the kernel, by name.
    """
    best: Row = {"frame": np.inf}
    for _ in range(repeats):
        TICKS[:-1], timer.seconds = 0, 0.0
        began, first = time.process_time(), ticks_now()
        decode()
        whole, lasted = time.process_time() - began, ticks_now() - first
        if timer.seconds * 1e9 / frames >= best["frame"]:
            continue
        empty, ns = TICKS[-1, 0] / max(1, TICKS[-1, 1]), 1e9 * whole / lasted / frames
        best = {"frame": 1e9 * timer.seconds / frames}
        best["host"] = 1e9 * (whole - timer.seconds) / frames
        for name, phase in phases.items():
            taken, calls = TICKS[phase]
            best[name] = float(taken - calls * empty) * ns
            best[f"{name} calls"] = float(calls / frames)
    return {name: round(value, 2) for name, value in best.items()}
