"""Options of a search: checks of their fields when they are made, shared defaults."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from wfstdec.errors import OptionError

MAX_NATS = 1e6
"""Largest scale and number of nats: so that no sum of costs reaches infinity."""
MAX_COUNT = (1 << 31) - 1
"""Largest count: there are no more states."""

DEFAULT_LATTICE_BEAM = 8.0
"""Nats; of a search whose beam is no narrower."""


class CheckedOptions:
    """Checks of fields, for dataclasses of options; each raises `OptionError`."""

    def check(
        self,
        name: str,
        good: Callable[[Any], bool],
        expected: str,
        *,
        optional: bool = False,
    ) -> None:
        """A number that is good, or `None` where that is allowed."""
        value = getattr(self, name)
        if value is None and optional:
            return
        if not (isinstance(value, numbers.Real) and good(value)):
            raise OptionError(f"{name}={value!r}, expected {expected}")

    def check_width(self, name: str, *, optional: bool = False) -> None:
        """Nats, 0 or more; infinity is allowed."""
        expected = f"a number of nats, 0 to {MAX_NATS:g}, "
        expected += "inf or None" if optional else "or inf"
        self.check(name, _is_width, expected, optional=optional)

    def check_scales(self, *names: str) -> None:
        """Factors, 0 or more."""
        for name in names:
            self.check(name, lambda x: 0 <= x <= MAX_NATS, f"0 to {MAX_NATS:g}")

    def check_nats(self, *names: str) -> None:
        """Costs of either sign."""
        for name in names:
            expected = f"a number of nats, -{MAX_NATS:g} to {MAX_NATS:g}"
            self.check(name, lambda x: abs(x) <= MAX_NATS, expected)

    def check_probability(self, name: str) -> None:
        """A probability above 0, or `None`."""
        expected = "a probability above 0, at most 1, or None"
        self.check(name, lambda x: 0 < x <= 1, expected, optional=True)

    def check_count(self, name: str, *, optional: bool = False) -> None:
        """1 or more, or `None` where that is allowed."""
        expected = f"1 to {MAX_COUNT}" + (", or None" if optional else "")
        self.check(name, is_count(1), expected, optional=optional)

    def check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        """Check that a value is one of some names."""
        if getattr(self, name) not in choices:
            known = ", ".join(map(repr, choices))
            raise OptionError(f"{name}={getattr(self, name)!r}, expected {known}")


class LatticeOptions(CheckedOptions):
    """Options of a search that records lattices: `beam` and `lattice_beam`."""

    beam: float
    lattice_beam: float | None

    @property
    def beam_of_lattice(self) -> float:
        """`lattice_beam`, or what stands for it."""
        given = self.lattice_beam
        return min(DEFAULT_LATTICE_BEAM, self.beam) if given is None else given

    def check_lattice_beam(self) -> None:
        """Nats, no more than the beam, or `None`."""
        expected = f"a number of nats, 0 to the beam ({self.beam!r}), or None"
        good = self._is_lattice_beam
        self.check("lattice_beam", good, expected, optional=True)

    def _is_lattice_beam(self, value: float) -> bool:
        return 0 <= value <= self.beam


def is_count(low: int, high: int = MAX_COUNT) -> Callable[[Any], bool]:
    """Tell whether a value is an integer of that range."""
    return lambda x: isinstance(x, numbers.Integral) and low <= int(x) <= high


def _is_width(x: Any) -> bool:
    return 0 <= x <= MAX_NATS or x == math.inf
