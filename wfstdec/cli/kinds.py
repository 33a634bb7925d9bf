"""The kinds of flags there are, as the tables of flags have them.

"--quiet": switch("say nothing but results and errors"),
"--lexicon": takes("FILE", "words and their tokens"),
"--repeats": takes("N", "time every point so often", int, default=3),

made_of(AlignOptions, args)                 # its fields by flags of their names
build_graph(**values_of(args, "lm blank"))  # lm=args.lm, blank=args.blank
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any, TypeVar, cast

Flag = dict[str, Any]
"""Arguments of `add_argument`, but for the names."""
_Made = TypeVar("_Made")


def switch(text: str, **how: Any) -> Flag:
    """Make a flag that is given or not."""
    return {"action": "store_true", "help": text, **how}


def takes(
    metavar: str | tuple[str, ...] | None,
    text: str,
    kind: Callable[[str], Any] = str,
    **how: Any,
) -> Flag:
    """Make a flag with a value, which `kind` reads; None shows the flag's name."""
    return {"type": kind, "metavar": metavar, "help": _told(text, how), **how}


def one_of(choices: Collection[str], text: str, **how: Any) -> Flag:
    """Make a flag with one of some words."""
    return {"choices": choices, "help": _told(text, how), **how}


def made_of(kind: type[_Made], args: argparse.Namespace, **others: Any) -> _Made:
    """Make an object of a dataclass: fields are flags by name, but for `others`."""
    names = {field.name for field in fields(cast(Any, kind))} - others.keys()
    return kind(**{n: v for n, v in vars(args).items() if n in names}, **others)


def values_of(args: argparse.Namespace, names: str) -> dict[str, Any]:
    """Values of flags, by names with spaces between: arguments of the same names."""
    return {name: getattr(args, name) for name in names.split()}


def _told(text: str, how: Flag) -> str:
    """Add the default, where there is one and the text says nothing of it."""
    default = how.get("default")
    if not default or "(default" in text:
        return text
    if isinstance(default, tuple):
        between = " " if isinstance(default[0], str) else " to "
        return f"{text} (default: {between.join(map(str, default))})"
    shown = f"{default:g}" if isinstance(default, float) else default
    return f"{text} (default: {shown})"
