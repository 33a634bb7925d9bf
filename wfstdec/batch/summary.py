"""Summary of a run over many utterances: how many, how fast, which did not end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from wfstdec.errors import InputError, OptionError
from wfstdec.io.outputs import Results
from wfstdec.search.hypothesis import Hypothesis

_NAMED_AT_MOST = 5
_TRIED_AT_MOST = 64
_log = logging.getLogger("wfstdec.batch")


@dataclass(kw_only=True)
class Tally:
    """Counts of a run in which some utterances may be left out.

    Attributes:
        num_utterances: Done in this run.
        num_kept: Done by an earlier one, which was stopped.
        failures: What is wrong with the utterances that were left out: each has the
            `utterance`, and the `path` where it was read from a file.
    """

    num_utterances: int = 0
    num_kept: int = 0
    failures: list[InputError] = field(default_factory=list)
    _named: int = 0

    def go_on(self, results: Results) -> set[str]:
        """Take over what an earlier run did; failures go to both from here on.

        Returns:
            The utterances of that run: what failed in it would fail again.
        """
        self.num_kept, self.failures = len(results.done), results.failures
        self._named = len(self.failures)
        return {*results.done, *(str(one.utterance) for one in self.failures)}

    def fail(self, error: InputError, *, strict: bool = False) -> None:
        """Leave an utterance out.

        Raises:
            InputError: The same, if `strict`, or if it is an `OptionError`, which all
                utterances would have.
        """
        if strict or isinstance(error, OptionError):
            raise error
        self.failures.append(error)

    def check(self, *, at_end: bool = False) -> None:
        """Name the failures since the last call in the log, one line each.

        Raises:
            InputError: The first of them, where many utterances fail and no other goes
                well: then it is no fault of an utterance.
        """
        if self.num_utterances + self.num_kept:
            for error in self.failures[self._named :]:
                _log.error("left out: %s", error)
            self._named = len(self.failures)
        elif self.failures and (at_end or len(self.failures) >= _TRIED_AT_MOST):
            raise self.failures[0]

    def check_all_done(self) -> None:
        """Raise unless every utterance was done.

        Raises:
            InputError: Says how many were left out, and names some.
        """
        if self.failures:
            found = [str(error.utterance) for error in self.failures]
            total = self.num_utterances + self.num_kept + len(found)
            raise InputError(f"left out {len(found)} of {total}: {named(found)}")

    def extras(self) -> str:
        """Add to a line for people what is beside what was done; mostly nothing."""
        kept = f"; {self.num_kept} kept from an earlier run" if self.num_kept else ""
        return kept + (f"; {len(self.failures)} left out" if self.failures else "")


def named(utterances: Sequence[str]) -> str:
    """The first few of some utterances, for people."""
    more = " ..." if len(utterances) > _NAMED_AT_MOST else ""
    return " ".join(utterances[:_NAMED_AT_MOST]) + more


@dataclass
class Summary(Tally):
    """Counts of a run; `str()` is a line for a person. Others as of `Tally`.

    Attributes:
        frame_shift_s: Seconds per frame of what was decoded.
        num_utterances: Utterances that this run decoded.
        num_frames: Their frames.
        decode_s: Seconds on the wall in the decoder, without reading, writing and
            compiling kernels.
        unfinished: The utterances that did not reach a final state.
    """

    frame_shift_s: float
    num_frames: int = 0
    decode_s: float = 0.0
    unfinished: list[str] = field(default_factory=list)

    def add(
        self, utterance: str, num_frames: int, hypotheses: Sequence[Hypothesis]
    ) -> None:
        """Count a decoded utterance with its hypotheses, best first."""
        self.num_utterances += 1
        self.num_frames += num_frames
        if not hypotheses[0].reached_final:
            self.unfinished.append(utterance)

    @property
    def audio_s(self) -> float:
        """Seconds of audio."""
        return self.num_frames * self.frame_shift_s

    @property
    def speed(self) -> float:
        """Seconds of audio per second of the clock; 0 where nothing was decoded.

        RTFx, in tables, is per second of processor time and of one thread.
        """
        return self.audio_s / self.decode_s if self.decode_s else 0.0

    def __str__(self) -> str:
        text = (
            f"decoded {self.num_utterances} utterances, {self.audio_s:.1f} s of audio "
            f"in {self.decode_s:.2f} s of the clock (speed {self.speed:.0f})"
        )
        if not self.unfinished:
            return text + "; all reached a final state" + self.extras()
        found = f"{len(self.unfinished)} did not reach a final state"
        return f"{text}; {found}: {named(self.unfinished)}{self.extras()}"
