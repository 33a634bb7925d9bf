"""Grids of options: `["beam=8,10,13", "max_active=2000,7000"]` to settings.

A grid is the product of its options. Those joined by colons go together, value by
value: `["beam:beam_size=6:16,8:32"]` are two settings, not four. Options that say how
much of the search is kept (`WIDTHS`) make the settings of a search; any other makes
searches of their own, since their costs cannot be compared: `merge=max,sum` are two
searches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wfstdec.compare.points import Setting
from wfstdec.errors import OptionError

WIDTHS = (
    "beam",
    "max_active",
    "min_active",
    "beam_delta",
    "beam_size",
    "token_top_k",
    "blank_skip_threshold",
)
"""Options that make a search wider as they grow; None is the widest."""

WFST_GRID = ("beam=6,8,10,13,17",)
TRIE_GRID = ("beam:beam_size=5:16,6:16,7:32,8:32,10:128,14:256",)
"""Settings that are tried by default. The trie's pairs lie on the Pareto
front of 63 pairs of beams, 4 to 14, and sizes, 8 to 512, on 100 utterances of
LibriSpeech, or a hair's breadth behind it; search errors count against the last."""

Grid = Mapping[str | tuple[str, ...], Sequence[Any]]
"""Values by option; tuples of values by a tuple of options that go together."""

_Axis = tuple[tuple[str, ...], list[tuple[Any, ...]]]
"""Options that go together, and the values that they take."""


def parse_grid(
    texts: Iterable[str], known: Iterable[str]
) -> dict[str | tuple[str, ...], list[Any]]:
    """Parse `name=value,value` and `name:name=value:value,value:value` texts.

    Args:
        texts: Values are numbers, `inf`, `none`, `true`, `false` or words.
        known: The options that there are.

    Raises:
        OptionError: Malformed, an unknown option, or one twice.
    """
    names, seen = list(known), set()
    grid: dict[str | tuple[str, ...], list[Any]] = {}
    for text in texts:
        left, equals, right = text.partition("=")
        if not equals or not right.strip():
            raise OptionError(
                f"grid {text!r}, expected 'name=value,value', or "
                "'name:name=value:value,value:value'"
            )
        joined = tuple(name.strip().replace("-", "_") for name in left.split(":"))
        for name in joined:
            if name not in names:
                raise OptionError(f"grid {text!r}, expected one of {', '.join(names)}")
            if name in seen:
                raise OptionError(f"grid {text!r}: {name} a second time, expected once")
            seen.add(name)
        values = [_values(value, joined, text) for value in right.split(",")]
        if len(joined) > 1:
            grid[joined] = values
        else:
            grid[joined[0]] = [value for [value] in values]
    return grid


class GridPart(NamedTuple):
    """A search of a grid.

    Attributes:
        label: What tells it from others of the grid; empty for the only one.
        options: What all its settings have in common.
        settings: The narrowest first.
    """

    label: str
    options: Setting
    settings: list[Setting]


def split_grid(grid: Grid) -> list[GridPart]:
    """The searches of a grid, each with its settings.

    Raises:
        OptionError: A width is no number, or values that go together are not as many
            as their options.
    """
    axes = [_axis(names, values) for names, values in grid.items()]
    widths = [(names, values) for names, values in axes if set(names) <= set(WIDTHS)]
    others = [axis for axis in axes if axis not in widths]
    widths = [(names, sorted(values, key=_width)) for names, values in widths]
    varied = [axis for axis in widths if len(axis[1]) > 1] or widths
    fixed = [axis for axis in widths if axis not in varied]
    settings, [common] = _combinations(varied), _combinations(fixed)
    return [
        GridPart(label(options), {**common, **options}, settings)
        for options in _combinations(others)
    ]


def combinations(grid: Grid) -> list[Setting]:
    """All combinations of the values, the last option changing fastest."""
    return _combinations([_axis(names, values) for names, values in grid.items()])


def label(setting: Setting) -> str:
    """`beam 8, max_active 2000`."""
    return ", ".join(
        f"{name} {x:g}" if isinstance(x, float) else f"{name} {str(x).lower()}"
        for name, x in setting.items()
    )


def _axis(names: str | tuple[str, ...], values: Sequence[Any]) -> _Axis:
    if isinstance(names, str):
        return (names,), [(value,) for value in values]
    for value in values:
        if not isinstance(value, Sequence) or len(value) != len(names):
            raise OptionError(
                f"grid of {':'.join(names)}: {value!r}, expected {len(names)} values"
            )
    return names, [tuple(value) for value in values]


def _combinations(axes: Iterable[_Axis]) -> list[Setting]:
    named = [
        [[*zip(names, value, strict=True)] for value in values]
        for names, values in axes
    ]
    return [dict(itertools.chain(*row)) for row in itertools.product(*named)]


def _width(values: tuple[Any, ...]) -> tuple[float, ...]:
    """Sort key of widths: None is infinite."""
    for value in values:
        if value is not None and not isinstance(value, int | float):
            raise OptionError(f"width {value!r}, expected a number or 'none'")
    return tuple(math.inf if value is None else float(value) for value in values)


def _values(text: str, names: tuple[str, ...], whole: str) -> tuple[Any, ...]:
    """The values of options that go together."""
    values = tuple(_value(value.strip()) for value in text.split(":"))
    if len(values) != len(names):
        raise OptionError(
            f"grid {whole!r}: found {text.strip()!r}, expected {len(names)} values "
            "joined by ':'"
        )
    return values


def _value(text: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
