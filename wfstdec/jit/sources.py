"""Digests of the sources that a kernel is made of.

numba's disk cache looks at the file of the function it compiles, and not at the files
of the functions that this one calls: a change to one of them would leave old machine
code in use. Here a digest is of the function's module and of all modules of the package
that it imports, and they import.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]
_IMPORT = re.compile(
    r"^[ ]*(?:from[ ]+([\w.]+)[ ]+)?import[ ]+(?:\(([^)]*)\)|([^\n(]+))", re.MULTILINE
)
"""An import statement: the module it is from, and what it names."""


def digest_of(function: Callable[..., Any]) -> str:
    """The digest of what a function is made of; of its file alone in other packages.

    Raises:
        OSError: There is no file.
    """
    module = function.__module__
    if _path(module) is not None:
        return stamp(module)
    content = Path(function.__code__.co_filename).read_bytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


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
    root, *parts = module.split(".")
    place = _PACKAGE.joinpath(*parts)
    files = [place / "__init__.py", place.with_suffix(".py")]
    return next((f for f in files if root == _PACKAGE.name and f.is_file()), None)
