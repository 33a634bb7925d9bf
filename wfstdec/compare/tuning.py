"""Find the LM scale and the word insertion with the fewest errors on a dev set.

    tuning = tune(prepare, speech, {"lm_scale": (0.3, 1.5), "word_insertion": (-2, 2)})
    tuning.best.setting, tuning.best.wer, tuning.borders
    tuning.interval, tuning.gain              # of the best WER; above the default's

The default setting is tried first, so that the best is never worse than it is. Then
coarse to fine: a grid of five values of each option; then a pattern search, which tries
the neighbours of the best so far (eight for two options), one step away, moves to the
best while that gets better, and halves the step where it does not. Better is: fewer
word errors; then insertions nearer to 0; then scales nearer to 1; then the smaller
values. Nothing is evaluated twice or by chance, so two runs do the same.

The gain on the default setting is told from chance, on the dev set: of many trials the
best is better there than it will be on other data.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from wfstdec.compare.grids import label
from wfstdec.compare.points import Decode, Search, Setting
from wfstdec.compare.speech import Speech
from wfstdec.errors import OptionError
from wfstdec.metrics import (
    Interval,
    Score,
    WerGain,
    WordErrors,
    score_texts,
    wer_gain,
    wer_interval,
)

COARSE = 5
"""Values of each option in the first grid; the ends of the range are two of them."""
HALVINGS = 3
"""Number of times that the step is halved after that."""
DIGITS = 6
"""Values are rounded to so many."""

Range = tuple[float, float]
RANGES: Mapping[str, Range] = {
    "lm_scale": (0.2, 1.8),
    "word_insertion": (-4.0, 4.0),
    "boost_scale": (0.0, 2.0),
}
"""Default ranges of options; the scale of boosts only where there are any."""

_log = logging.getLogger("wfstdec.compare")
_Place = tuple[float, ...]


@dataclass(frozen=True)
class Trial:
    """An evaluation.

    Attributes:
        setting: The values of the options.
        errors: On the whole dev set.
        stage: `"default"`, `"grid"`, or the step of the pattern search, `"step 1"` and
            so on.
        counts: Word errors and reference words of each utterance, int64 [U] both.
    """

    setting: Setting
    errors: WordErrors
    stage: str
    counts: tuple[np.ndarray, np.ndarray] = field(compare=False, repr=False)

    @property
    def wer(self) -> float:
        """Word errors per hundred reference words."""
        return 100.0 * self.errors.total / self.errors.reference_words

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the WER, percent; None as of `wer_interval`."""
        return wer_interval(*self.counts)

    @property
    def rank(self) -> tuple[float, ...]:
        """The lower the better."""
        scales = {n: x for n, x in self.setting.items() if n.endswith("_scale")}
        others = [abs(x) for n, x in self.setting.items() if n not in scales]
        from_one = [round(abs(x - 1), DIGITS) for x in scales.values()]
        return (self.errors.total, *others, *from_one, *self.setting.values())

    def __str__(self) -> str:
        text = f"%WER {self.wer:.2f} ({self.errors.total} errors)"
        return f"{label(self.setting)}: {text}"


@dataclass(frozen=True)
class Tuning:
    """Best options, and all that was tried.

    Attributes:
        best: The best trial.
        trials: All of them, in order.
        ranges: Where was looked.
        complete: Whether the search ended by itself, and not by `max_trials`.
        default: The setting without tuning: the first of the trials, unless the ranges
            leave it out.
    """

    best: Trial
    trials: tuple[Trial, ...]
    ranges: Mapping[str, Range]
    complete: bool
    default: Trial

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the best WER, percent."""
        return self.best.interval

    @property
    def gain(self) -> WerGain | None:
        """Difference of the best WER and the default's, of paired draws."""
        errors, words = self.best.counts
        return wer_gain(errors, self.default.counts[0], words)

    @property
    def borders(self) -> list[str]:
        """At which ends of the ranges the best lies: better ones may lie beyond.

        Such as `"lm_scale 0.2 is the lower end of its range"`. A fixed value has no
        ends, and no scale is below 0.
        """
        found = []
        for name, (low, high) in self.ranges.items():
            value = self.best.setting[name]
            for end, side in ((low, "lower"), (high, "upper")):
                beyond = low < high and not (end == 0 and name.endswith("_scale"))
                if value == end and beyond:
                    found.append(f"{name} {value:g} is the {side} end of its range")
        return found


@dataclass
class _Search:
    """A pattern search under way."""

    evaluate: Callable[[Setting], Score]
    ranges: Mapping[str, Range]
    max_trials: int
    say: Callable[[Trial], None]
    done: dict[_Place, Trial] = field(default_factory=dict)
    cut_short: bool = False

    @property
    def best(self) -> Trial:
        return min(self.done.values(), key=lambda trial: trial.rank)

    def visit(self, places: Iterable[_Place], stage: str) -> None:
        """Evaluate those that are new, moved into the ranges; no more than allowed."""
        for place in places:
            pairs = zip(place, self.ranges.values(), strict=True)
            inside = tuple(round(min(max(x, lo), hi), DIGITS) for x, (lo, hi) in pairs)
            if inside in self.done:
                continue
            if len(self.done) == self.max_trials:
                self.cut_short = True
                return
            setting = dict(zip(self.ranges, inside, strict=True))
            self.done[inside] = self.tried(setting, stage)
            self.say(self.done[inside])

    def tried(self, setting: Setting, stage: str) -> Trial:
        """Evaluate a setting."""
        score = self.evaluate(setting)
        return Trial(setting, score.errors, stage, score.counts)

    def default(self, given: Setting) -> Trial:
        """Try the default setting first, fixed values staying what they are.

        Where the ranges leave it out it is evaluated, and is none of the trials.
        """
        setting = {
            # A scale that nobody gives is 1, an insertion 0.
            name: round(
                low if low == high else float(given.get(name, name.endswith("_scale"))),
                DIGITS,
            )
            for name, (low, high) in self.ranges.items()
        }
        place, ranges = tuple(setting.values()), self.ranges.values()
        if all(lo <= x <= hi for x, (lo, hi) in zip(place, ranges, strict=True)):
            self.visit([place], "default")
            return self.done[place]
        return self.tried(setting, "default")

    def refine(self, steps: _Place, stage: str) -> None:
        """Move to better neighbours until there are none."""
        moves = [m for m in itertools.product((-1, 0, 1), repeat=len(steps)) if any(m)]
        moves.sort(key=lambda move: sum(map(abs, move)))  # along the axes first
        while not self.cut_short:
            before = self.best
            centre = tuple(before.setting.values())
            places = (
                tuple(x + m * s for x, m, s in zip(centre, move, steps, strict=True))
                for move in moves
            )
            self.visit(places, stage)
            if self.best is before:
                return


def tune(
    prepare: Callable[[Setting], Decode],
    speech: Speech,
    ranges: Mapping[str, Range] | None = None,
    *,
    boosts: Sequence[Any] | None = None,
    max_trials: int = 80,
    default: Setting | None = None,
    say: Callable[[Trial], None] | None = None,
) -> Tuning:
    """Search for the options with the fewest word errors.

    Args:
        prepare: Makes a decoder with these options; `DecoderSearch.prepare`, for one.
        speech: The dev set.
        ranges: Where to look for each option, both ends included; equal ends fix it.
            `None` is `RANGES`.
        boosts: Of each utterance, as `prepare`'s decoder takes them.
        max_trials: The most evaluations; one more where the ranges leave the default
            out.
        default: Values that the gain is told against; 1 for scales and 0 for others
            where they are not given.
        say: Called with each trial; None logs it.

    Raises:
        FormatError: No word that the first trial finds is one of the references, and
            written otherwise some are.
        OptionError: `max_trials` is below 1, no option, or a range upside down.
        ShapeError, LogprobError: As the decoder's.
    """
    if ranges is None:
        ranges = {n: r for n, r in RANGES.items() if boosts or n != "boost_scale"}
    _check(ranges, max_trials)
    utterances = list(speech.logprobs.values())

    def evaluate(setting: Setting) -> Score:
        found = prepare(setting)(utterances, boosts)
        hypotheses = speech.words_of(one.text for one in found)
        # Where no word is ever right, references are in another form: better said at
        # once than after 80 trials.
        if not search.done:
            speech.check_heard(hypotheses)
        return score_texts(speech.references, hypotheses)

    say = say or partial(_log.info, "%s")
    search = _Search(evaluate, ranges, max_trials, say)
    tried_first = search.default(default or {})
    # A coarse grid first, so that refinement begins near the best of all.
    axes = (
        [low + (high - low) * i / (COARSE - 1) for i in range(COARSE)]
        for low, high in ranges.values()
    )
    search.visit(itertools.product(*axes), "grid")
    for halving in range(1, HALVINGS + 1):
        parts = (COARSE - 1) * 2**halving
        steps = tuple((high - low) / parts for low, high in ranges.values())
        search.refine(steps, f"step {halving}")
    trials = tuple(search.done.values())
    complete = not search.cut_short
    return Tuning(search.best, trials, dict(ranges), complete, tried_first)


def one_setting(searches: Sequence[Search]) -> Callable[[Setting], Decode]:
    """Make what `tune` calls of a grid that is one search at one setting.

    Raises:
        OptionError: It is several.
    """
    if len(searches) != 1 or len(searches[0].settings) != 1:
        raise OptionError("several settings to tune, expected one value each")
    [search] = searches
    return lambda setting: search.prepare({**search.settings[0], **setting})


def _check(ranges: Mapping[str, Range], max_trials: int) -> None:
    if max_trials < 1:
        raise OptionError(f"max_trials={max_trials!r}, expected 1 or more")
    if not ranges:
        raise OptionError("no ranges, expected at least one option")
    for name, (low, high) in ranges.items():
        if not -1e6 <= low <= high <= 1e6:
            raise OptionError(
                f"range of {name} {low!r} to {high!r}, expected the lower end first"
            )
