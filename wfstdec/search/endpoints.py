"""Endpoints: when an utterance of a session is over.

    endpointer = Endpointer(decoder.frame_shift_s)
    sessions.advance({one: chunk})
    if endpointer.ended(sessions.partial(one)):
        hypothesis, one = sessions.close(one), sessions.open()

Rules and defaults follow Kaldi's `online2/online-endpoint.h`. Silence means blanks and
separators after the last token of a word.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from wfstdec.errors import OptionError, levels_inside
from wfstdec.search.hypothesis import Partial
from wfstdec.search.options import CheckedOptions


@dataclass(frozen=True)
class EndpointRule(CheckedOptions):
    """Endpoint rule; it holds if all of its conditions do.

    Attributes:
        silence_s: Least seconds of silence at the end.
        max_final_cost: Largest `Partial.final_cost`, nats.
        needs_speech: Whether there must be a word.
        length_s: Least seconds of the utterance.

    Raises:
        OptionError: A value is out of range.

    Warns:
        UserWarning: The silence is so short that the cuts raise WER.
    """

    silence_s: float = 0.0
    max_final_cost: float = math.inf
    needs_speech: bool = True
    length_s: float = 0.0
    _least_silence_s: ClassVar[float] = 0.2

    def __post_init__(self) -> None:
        for name in ("silence_s", "length_s"):
            self.check(name, lambda x: 0 <= x < math.inf, "seconds, 0 or more")
        self.check_width("max_final_cost")
        # WER of 40 utterances of the demo: 14.5 at 0.3 s, 14.9 at 0.2, 24.5 at 0.1;
        # 13.9 without cuts.
        if 0 < self.silence_s < self._least_silence_s:
            text = f"silence_s={self.silence_s:g}, expected {self._least_silence_s:g} "
            text += "or more: cuts in shorter pauses cost words"
            warnings.warn(text, stacklevel=levels_inside())


class Signal(EndpointRule):
    """Rule that signals an endpoint; the utterance continues."""

    _least_silence_s = 0.0


DEFAULT_RULES = (
    EndpointRule(silence_s=5.0, needs_speech=False),
    EndpointRule(silence_s=0.5, max_final_cost=2.0),
    EndpointRule(silence_s=1.0, max_final_cost=8.0),
    EndpointRule(silence_s=2.0),
    EndpointRule(length_s=20.0, needs_speech=False),
)
"""No word in 5 s; 0.5 s after a likely end, 1 s after a less likely one, 2 s after any;
20 s in all."""


@dataclass(frozen=True)
class Endpointer:
    """Detects the end of an utterance.

    Attributes:
        frame_shift_s: Seconds per frame of the session.
        rules: The utterance ends when any of them holds.

    Raises:
        OptionError: `frame_shift_s` is out of range, or there are no rules.
    """

    frame_shift_s: float
    rules: Sequence[EndpointRule] = DEFAULT_RULES

    def __post_init__(self) -> None:
        if not (math.isfinite(self.frame_shift_s) and self.frame_shift_s > 0):
            raise OptionError(
                f"frame_shift_s={self.frame_shift_s!r}, expected seconds, above 0"
            )
        if not self.rules:
            raise OptionError("no rules, expected at least one")

    def ended(self, partial: Partial) -> EndpointRule | None:
        """Return the first rule that holds; None while the utterance continues."""
        silence_s = self._seconds(partial.silent_frames)
        length_s = self._seconds(partial.num_frames)
        for rule in self.rules:
            if (
                silence_s >= rule.silence_s
                and length_s >= rule.length_s
                and partial.final_cost <= rule.max_final_cost
                and (
                    partial.silent_frames < partial.num_frames or not rule.needs_speech
                )
            ):
                return rule
        return None

    def frames_to_go(self, partial: Partial) -> int:
        """Return frames until a rule may hold if the best path does not change."""
        silent, length = partial.silent_frames, partial.num_frames
        spoken = silent < length
        return min(
            max(least - length, pause - (silent if spoken or not speech else 0), 0)
            for least, pause, speech in self._in_frames
        )

    @cached_property
    def _in_frames(self) -> list[tuple[int, int, bool]]:
        """Length and silence of each rule in frames, and `needs_speech`."""
        return [
            (self._frames(one.length_s), self._frames(one.silence_s), one.needs_speech)
            for one in self.rules
        ]

    def _frames(self, seconds: float) -> int:
        return math.ceil(round(seconds / self.frame_shift_s, 3))

    def _seconds(self, frames: int) -> float:
        # Rounded: 25 frames of 0.02 s are half a second.
        return round(frames * self.frame_shift_s, 6)
