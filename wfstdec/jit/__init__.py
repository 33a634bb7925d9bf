"""Decorators for numba kernels, and their common parts.

@jit       called from Python, may allocate
@kernel    called from Python, allocates nothing: no reference is counted
@part      called by kernels
@inlined   a part that is inlined into its callers
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numba
import numpy as np
from numba.extending import overload

from wfstdec.jit import members
from wfstdec.jit.cache import warn_of_numba

_OPTIONS = {"nogil": True, "error_model": "numpy"}
_NO_COUNTING = {**_OPTIONS, "_nrt": False}
_INLINED = {**_NO_COUNTING, "forceinline": True}


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel: no GIL, no bounds checks, no fast maths, cached on disk."""
    return _compiled("Entry", _OPTIONS)(function)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel that allocates nothing, without reference counts."""
    return _compiled("Entry", _NO_COUNTING)(function)


def part(function: Callable[..., Any]) -> Any:
    """Compile a part that kernels call. Called from Python, it runs as Python."""
    return _compiled("Part", _NO_COUNTING)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part that is inlined into its callers."""
    return _compiled("Part", _INLINED)(function)


def by_class(ways: Mapping[type, Callable[..., Any]]) -> Callable[..., Any]:
    """Return a part that is chosen by type at compile time, without a branch."""

    def call(*arguments: Any) -> Any:
        return ways[type(arguments[0])](*arguments)

    def choose(*types: Any) -> Callable[..., Any] | None:
        # Types are known at compile time, so that a kernel contains only one variant.
        way = ways.get(getattr(types[0], "instance_class", object))
        return getattr(way, "py_func", way)

    options = {**_INLINED, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    overload(call, jit_options=options, strict=False)(choose)
    return call


def _compiled(kind: str, options: Mapping[str, Any]) -> Any:
    """Return a decorator: `Entry` or `Part` of `linking`, or numba's own."""
    linking = _linking()
    if linking is None:
        return numba.njit(**_OPTIONS, pipeline_class=members.Compiler)
    return linking.compiled_by(getattr(linking, kind), options)


@functools.cache
def _linking() -> Any:
    """Return the module that links parts; None if numba lacks its internals."""
    try:
        from wfstdec.jit import linking

        linking.compiled_by(linking.Part, _INLINED)(lambda: None)
    except Exception as error:
        warn_of_numba(error)
        return None
    return linking


def read_only(array: np.ndarray) -> np.ndarray:
    """Make an array C-ordered and read-only, so that kernels are compiled once."""
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array
