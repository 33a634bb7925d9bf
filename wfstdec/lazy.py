"""Lazy imports of public names, with checks of argument types.

__getattr__, __dir__, __all__ = names_of_stub(__name__, __file__)

`__init__.pyi` lists the imports, also for type checkers. Functions and methods of
public names raise `OptionError` for arguments of wrong types.
"""

import ast
import builtins
import functools
import importlib
import inspect
import numbers
import re
import reprlib
import typing
from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

from wfstdec.errors import OptionError, WfstdecError


def names_of_stub(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package."""
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text("utf-8"))
    homes = {
        alias.name: node.module or ""
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names = sorted(homes)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:  # a module of the package
            return importlib.import_module(f"{package}.{name}")
        found = getattr(importlib.import_module(homes[name]), name)
        if inspect.isclass(found):
            for base in found.__mro__:
                check_methods(base)
        return _checked(found, package) if inspect.isfunction(found) else found

    return get, lambda: names, names


@functools.cache
def _checked(function: Callable, package: str) -> Callable:
    checked = checked_types(function)
    checked.__module__ = package  # where pickles look it up
    return checked


@functools.cache
def check_methods(kind: type) -> type:
    """Add `checked_types` to the public methods of a class; return it."""
    is_protocol = getattr(kind, "_is_protocol", False)
    is_ours = kind.__module__.startswith("wfstdec.") and not is_protocol
    for name, member in list(vars(kind).items()) if is_ours else ():
        if name == "__init__" or not name.startswith("_"):
            if inspect.isfunction(member):
                setattr(kind, name, checked_types(member))
            elif isinstance(member, classmethod):
                setattr(kind, name, classmethod(checked_types(member.__func__)))
    return kind


_Call = TypeVar("_Call", bound=Callable[..., Any])
_WIDER: dict[Any, type] = {int: numbers.Integral, float: numbers.Real}
_WIDER |= {tuple: Sequence, list: Sequence}


def checked_types(call: _Call) -> _Call:
    """Raise `OptionError` if a call fails and an argument does not match its hint.

    Hints are compared only after a failure: successful calls have no overhead, and
    accept anything that works.
    """

    @functools.wraps(call)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except (WfstdecError, RuntimeError, OSError):  # not caused by a type
            raise
        except Exception as error:  # also of kernels that are not compiled for it
            if misfit := _misfit(call, args, kwargs):
                raise OptionError(misfit) from error
            raise

    return typing.cast(_Call, checked)


def _misfit(call: Callable, args: Any, kwargs: Any) -> str | None:
    try:
        given = inspect.signature(call).bind(*args, **kwargs).arguments
    except TypeError:  # Python names missing or unknown arguments
        return None
    # Types imported only for type checkers match anything.
    known = ChainMap(call.__globals__, vars(builtins), defaultdict(lambda: Any))
    hints = typing.get_type_hints(call, localns=known)
    for name, value in given.items():
        if not _fits(value, hints.get(name, Any)):
            expected = re.sub(r"(\w+\.)+", "", inspect.formatannotation(hints[name]))
            return f"{name}={reprlib.repr(value)}, expected {expected}"
    return None


def _fits(value: Any, hint: Any) -> bool:
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is typing.Literal:
        return isinstance(value, str) and value in inner
    if kind is Any or not isinstance(kind, type):
        return True
    if getattr(kind, "_is_protocol", False):
        members = [*vars(kind), *inspect.get_annotations(kind)]
        return all(hasattr(value, one) for one in members if not one.startswith("_"))
    if kind is bool:
        return isinstance(value, int) or getattr(value, "dtype", None) == "bool"
    if isinstance(value, str | bytes) and inner:
        return False  # each letter would be a name
    if isinstance(value, Iterator) and inner == (str,):
        return False  # already read: its content made the call fail
    if inner and hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, _WIDER.get(kind, kind)):
        return False
    if isinstance(value, Mapping) and len(inner) == 2:
        return all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    parts: Iterable = value if isinstance(value, list | tuple | set | dict) else ()
    is_like = len(inner) == 1 or inner[1:] == (...,)
    return not is_like or all(_fits(part, inner[0]) for part in parts)
