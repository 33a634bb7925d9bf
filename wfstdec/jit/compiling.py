"""Compiling kernels with numba, and caching them safely.

Numba's disk cache looks at the file of the function it compiles, and not at the files
of the functions that this one calls: a change to one of them would leave old machine
code in use. Here the cache is keyed by the content of the function's module and of all
modules of the package that it imports, and they import. What other contents have left
is not even read: it may name what is no more.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.registry import CPUDispatcher
from numba.extending import overload

_OPTIONS = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,  # nobody asks for the address of a kernel
}
_NO_COUNTING = {**_OPTIONS, "_nrt": False}
_PART = {**_NO_COUNTING, "no_cpython_wrapper": True}
"""Taking records of arrays from Python apart is most of the code of a small function:
without it, kernels compile in half of the time."""
_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(
    r"^[ ]*(?:from[ ]+([\w.]+)[ ]+)?import[ ]+(?:\(([^)]*)\)|([^\n(]+))", re.MULTILINE
)
"""An import statement: the module it is from, and what it names."""


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel: no GIL, no bounds checks, no fast maths, cached on disk."""
    return _keyed_by_sources(numba.njit(**_OPTIONS)(function))


def kernel(function: Callable[..., Any]) -> Any:
    """Compile without reference counts: it may allocate nothing.

    Counting the references of arrays that come in a tuple makes a search three times
    slower.
    """
    return _keyed_by_sources(numba.njit(**_NO_COUNTING)(function))


def part(function: Callable[..., Any]) -> Any:
    """Compile a part of kernels: they call it. Called from Python it runs as Python."""
    return _as_part(numba.njit(**_PART)(function))


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part of kernels that is inlined into whatever calls it."""
    return _as_part(numba.njit(**_PART, forceinline=True)(function))


def by_class(ways: Mapping[type, Callable[..., Any]]) -> Callable[..., Any]:
    """A part of a `kernel` that is chosen when that is compiled: no branch is left.

    Args:
        ways: By the class of the first argument, a NamedTuple: what is `inlined`.
    """

    def call(*arguments: Any) -> Any:
        return ways[type(arguments[0])](*arguments)

    def choose(*types: Any) -> Callable[..., Any] | None:
        way = ways.get(getattr(types[0], "instance_class", object))
        return getattr(way, "py_func", way)

    options = {**_PART, "forceinline": True}
    del options["cache"]  # with what calls it
    overload(call, jit_options=options, strict=False)(choose)
    return call


def read_only(array: np.ndarray) -> np.ndarray:
    """In C order and read-only: this is part of the type that kernels are compiled for.

    Arrays that threads share are, wherever they come from, so that kernels are compiled
    once.
    """
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array


@functools.cache
def stamp(module: str) -> str:
    """A digest of the sources of a module and of what it imports of its package."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sources(module):
        digest.update(_source(name))
    return digest.hexdigest()


def sources(module: str) -> list[str]:
    """A module and those of the package that it imports, and they import; sorted."""
    found, waiting = {module}, [module]
    while waiting:
        for name in _imported(waiting.pop()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return sorted(found)


@functools.cache
def _imported(module: str) -> tuple[str, ...]:
    """The modules of the package that a module may import, whatever it does when."""
    names: list[str] = []
    for match in _IMPORT.finditer(_source(module).decode()):
        source, *named = match.groups()
        parts = (named[0] or named[1] or "").split(",")
        plain = [part.split("#")[0].split(" as ")[0].strip() for part in parts]
        names += [source, *(f"{source}.{n}" for n in plain)] if source else plain
    return tuple(name for name in names if _path(name) is not None)


@functools.cache
def _source(module: str) -> bytes:
    path = _path(module)
    return path.read_bytes() if path else b""


def _path(module: str) -> Path | None:
    """The file of a module of the package; None of any other."""
    for path in _paths(module):
        if path.is_file():
            return path
    return None


def _paths(module: str) -> Iterator[Path]:
    root, *parts = module.split(".")
    if root == _PACKAGE.name:
        place = _PACKAGE.joinpath(*parts)
        yield place / "__init__.py"
        yield place.with_suffix(".py")


class _Part(CPUDispatcher):
    """A compiled function that has no way in from Python."""

    def __call__(self, *arguments: Any) -> Any:
        with np.errstate(all="ignore"):  # compiled, it says nothing of it either
            return self.py_func(*arguments)


def _as_part(dispatcher: Any) -> Any:
    if isinstance(dispatcher, CPUDispatcher):  # not where the JIT is off
        dispatcher.__class__ = _Part
    return _keyed_by_sources(dispatcher)


def _keyed_by_sources(dispatcher: Any) -> Any:
    """Replace numba's stamp of one file (there is no public way to say more)."""
    if hasattr(dispatcher, "_cache"):  # it is a plain function where the JIT is off
        file = dispatcher._cache._cache_file
        source = stamp(dispatcher.py_func.__module__)
        file._version = f"{numba.__version__} {source}"
    return dispatcher
