"""Compiling kernels with numba, and caching them safely.

Numba's disk cache looks at the file of the function it compiles, and not at the files
of the functions that this one calls: a change to one of them would leave old machine
code in use. Here the cache is keyed by the content of the whole package instead. What
another version of the package has left is not even read: it may name what is no more.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
_NO_COUNTING = {**_OPTIONS, "_nrt": False}


def jit(function: Callable[..., Any]) -> Any:
    """Compile a kernel: no GIL, no bounds checks, no fast maths, cached on disk."""
    return _keyed_by_package(numba.njit(**_OPTIONS)(function))


def kernel(function: Callable[..., Any]) -> Any:
    """Compile without reference counts: it may allocate nothing.

    Counting the references of arrays that come in a tuple makes a search three times
    slower.
    """
    return _keyed_by_package(numba.njit(**_NO_COUNTING)(function))


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a part of a `kernel`: it is inlined into whatever calls it."""
    return _keyed_by_package(numba.njit(**_NO_COUNTING, forceinline=True)(function))


def read_only(array: np.ndarray) -> np.ndarray:
    """In C order and read-only: this is part of the type that kernels are compiled for.

    Arrays that threads share are, wherever they come from, so that kernels are compiled
    once.
    """
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array


@functools.cache
def _package_stamp() -> str:
    """A digest of all sources of the package."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _keyed_by_package(dispatcher: Any) -> Any:
    """Replace numba's stamp of one file (there is no public way to say more)."""
    if hasattr(dispatcher, "_cache"):  # it is a plain function where the JIT is off
        file = dispatcher._cache._cache_file
        file._version = f"{numba.__version__} {_package_stamp()}"
    return dispatcher
