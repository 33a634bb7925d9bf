"""What a user can set on the token-passing search; checked at birth."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wfstdec.errors import OptionError


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
        self._check("beam", self.beam >= 0, "a number of nats, 0 or more, or inf")
        limit = self.max_active
        self._check("max_active", limit is None or limit >= 1, "1 or more, or None")
        low = 0 <= self.min_active <= (limit or self.min_active)
        self._check("min_active", low, f"0 to max_active ({limit!r})")
        for name in ("acoustic_scale", "lm_scale"):
            value = getattr(self, name)
            self._check(name, math.isfinite(value) and value >= 0, "0 or more, finite")
        for name in ("word_insertion", "blank_penalty"):
            self._check(name, math.isfinite(getattr(self, name)), "a finite number")
        skip = self.blank_skip_threshold
        self._check(
            "blank_skip_threshold",
            skip is None or 0 < skip <= 1,
            "a probability above 0, at most 1, or None",
        )
        delta = self.beam_delta
        self._check("beam_delta", delta is None or delta >= 0, "0 or more, or None")

    def _check(self, name: str, good: bool, expected: str) -> None:
        if not good:
            raise OptionError(f"{name}={getattr(self, name)!r}, expected {expected}")
