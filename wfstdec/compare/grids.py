"""Grids of options: `["beam=8,10,13", "max_active=2000,7000"]` to settings.

A grid is the product of its options. Options that say how much of the search is kept
(`WIDTHS`) make the settings of a search; any other makes searches of their own, since
their costs cannot be compared: `merge=max,sum` are two searches.
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

Grid = Mapping[str, Sequence[Any]]


def parse_grid(texts: Iterable[str], known: Iterable[str]) -> dict[str, list[Any]]:
    """Parse `name=value,value` texts.

    Args:
        texts: Values are numbers, `inf`, `none`, `true`, `false` or words.
        known: The options that there are.

    Raises:
        OptionError: Malformed, an unknown option, or one twice.
    """
    names = list(known)
    grid: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not values.strip():
            raise OptionError(f"grid {text!r}, expected 'name=value,value'")
        if name not in names:
            raise OptionError(f"grid {text!r}, expected one of {', '.join(names)}")
        if name in grid:
            raise OptionError(f"grid {text!r}: {name} a second time, expected once")
        grid[name] = [_value(value.strip()) for value in values.split(",")]
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
    """The searches of a grid, each with its settings."""
    widths = {
        name: sorted(values, key=_width)
        for name, values in grid.items()
        if name in WIDTHS
    }
    many = {name: values for name, values in widths.items() if len(values) > 1}
    varied = many or widths
    fixed = {name: values[0] for name, values in widths.items() if name not in varied}
    others = {name: values for name, values in grid.items() if name not in WIDTHS}
    settings = list(settings_of(varied))
    return [
        GridPart(label(options), {**fixed, **options}, settings)
        for options in settings_of(others)
    ]


def label(setting: Setting) -> str:
    """`beam 8, max_active 2000`."""
    return ", ".join(f"{name} {_text(value)}" for name, value in setting.items())


def settings_of(grid: Grid) -> Iterable[Setting]:
    """All combinations of the values, the last option changing fastest."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _width(value: Any) -> float:
    if value is None:
        return math.inf
    if not isinstance(value, int | float):
        raise OptionError(f"width {value!r}, expected a number or 'none'")
    return float(value)


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


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
