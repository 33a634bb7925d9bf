"""What a user can set on the token-passing search; checked at birth."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wfstdec.errors import OptionError

LARGEST = 1e6
"""Scales and nats may not be larger: so that no sum of costs reaches infinity."""
MOST = (1 << 31) - 1
"""Counts may not be larger: there are no more states."""


@dataclass(frozen=True)
class DecodeOptions:
    """Options of the WFST decoder; costs are in nats, lower is better.

        total = acoustic_scale * acoustic + lm_scale * graph
                + word_insertion * words - boosts

    Attributes:
        beam: Entries that cost more than the frame's best plus `beam` are dropped;
            `inf` drops none.
        max_active: The most distinct search states that a frame goes on from; `None`
            sets no limit.
        min_active: The fewest that a frame goes on from while there are so many,
            whatever the beam.
        acoustic_scale: Multiplies the negated log-probs.
        lm_scale: Multiplies the costs of the graph: arcs and final costs.
        word_insertion: Added for every word; above 0 penalises.
        blank_penalty: Subtracted from the blank's log-prob, before the scale; part
            of the acoustic cost.
        blank_skip_threshold: At a frame where the blank's probability is at least
            this, only blank arcs are followed; `None` follows all.
        beam_delta: Where `max_active` binds, the next frame's beam is the worst kept
            cost plus this, if that is less than `beam`; `None` keeps the beam.

    Raises:
        OptionError: A value is out of range.
    """

    beam: float = 13.0
    max_active: int | None = 7000
    min_active: int = 0
    acoustic_scale: float = 1.0
    lm_scale: float = 1.0
    word_insertion: float = 0.0
    blank_penalty: float = 0.0
    blank_skip_threshold: float | None = None
    beam_delta: float | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        self._check("beam", _is_width, f"a number of nats, 0 to {LARGEST:g}, or inf")
        self._check("max_active", _is_count(1), f"1 to {MOST}, or None", optional=True)
        limit = MOST if self.max_active is None else self.max_active
        expected = f"0 to max_active ({self.max_active!r})"
        self._check("min_active", _is_count(0, limit), expected)
        for name in ("acoustic_scale", "lm_scale"):
            self._check(name, lambda x: 0 <= x <= LARGEST, f"0 to {LARGEST:g}")
        for name in ("word_insertion", "blank_penalty"):
            expected = f"a number of nats, -{LARGEST:g} to {LARGEST:g}"
            self._check(name, lambda x: abs(x) <= LARGEST, expected)
        expected = "a probability above 0, at most 1, or None"
        skip = "blank_skip_threshold"
        self._check(skip, lambda x: 0 < x <= 1, expected, optional=True)
        expected = f"a number of nats, 0 to {LARGEST:g}, inf or None"
        self._check("beam_delta", _is_width, expected, optional=True)

    def _check(
        self,
        name: str,
        good: Callable[[Any], bool],
        expected: str,
        *,
        optional: bool = False,
    ) -> None:
        value = getattr(self, name)
        if value is None and optional:
            return
        if not (isinstance(value, numbers.Real) and good(value)):
            raise OptionError(f"{name}={value!r}, expected {expected}")


def _is_count(low: int, high: int = MOST) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, numbers.Integral) and low <= int(x) <= high


def _is_width(x: Any) -> bool:
    return 0 <= x <= LARGEST or x == math.inf
