"""Grids of options, `["beam=8,10,13", "max_active=2000,7000"]`, and their tuning.

A grid is the product of its options. Options joined by colons vary together:
`["beam:beam_size=6:16,8:32"]` has two settings, not four. Widths (`WIDTHS`) define the
settings of a search. Any other option defines separate searches, since their costs are
not comparable: `merge=max,sum` are two searches.
"""

import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wfstdec.compare.comparison import Decode, Setting, label
from wfstdec.compare.speech import Speech
from wfstdec.errors import OptionError
from wfstdec.metrics import (
    Interval,
    WerGain,
    WordErrors,
    score_texts,
    wer_gain,
    wer_interval,
)

WIDTHS = (
    *("beam", "max_active", "beam_delta", "beam_size", "token_top_k"),
    "blank_skip_threshold",
)
"""Options that widen a search as they grow; None is the widest."""

WFST_GRID = ("beam=6,8,10,13,17",)
TRIE_GRID = ("beam:beam_size=5:16,6:16,7:32,8:32,10:128,14:256",)
"""Default settings. The trie's pairs are on or close to the Pareto front of 63 pairs of
beams, 4 to 14, and sizes, 8 to 512, on 100 utterances of LibriSpeech; search errors are
relative to the last.
"""

Grid = Mapping[str | tuple[str, ...], Sequence[Any]]
"""Values by option; tuples of values by a tuple of options that vary together."""


def parse_grid(
    texts: Iterable[str], known: Iterable[str], words: Collection[str] = ()
) -> dict[str | tuple[str, ...], list[Any]]:
    """Parse `name=value,value` and `name:name=value:value,value:value` texts.

    Args:
        texts: Values are numbers, `inf`, `none`, `true`, `false` or words.
        known: Known options.
        words: Options whose values are words, including `none`.

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
        values: list[Any] = []
        for several in right.split(","):
            parts = [part.strip() for part in several.split(":")]
            if len(parts) != len(joined):
                raise OptionError(
                    f"grid {text!r}: found {several.strip()!r}, expected {len(joined)} "
                    "values joined by ':'"
                )
            pairs = zip(parts, joined, strict=True)
            values.append(tuple(_value(part, name in words) for part, name in pairs))
        if len(joined) > 1:
            grid[joined] = values
        else:
            grid[joined[0]] = [value for [value] in values]
    return grid


class GridPart(NamedTuple):
    """Search of a grid."""

    label: str  # Options that distinguish it in the grid; empty for the only one
    options: Setting  # Common options of its settings
    settings: list[Setting]  # Narrowest first


def split_grid(grid: Grid) -> list[GridPart]:
    """Return the searches of a grid, each with its settings."""
    widths = {
        names: sorted(values, key=_width)
        for names, values in grid.items()
        if set((names,) if isinstance(names, str) else names) <= set(WIDTHS)
    }
    others = {names: grid[names] for names in grid if names not in widths}
    varied = {names: x for names, x in widths.items() if len(x) > 1} or widths
    fixed = {names: x for names, x in widths.items() if names not in varied}
    settings, [common] = combinations(varied), combinations(fixed)
    return [
        GridPart(label(options), {**common, **options}, settings)
        for options in combinations(others)
    ]


def combinations(grid: Grid) -> list[Setting]:
    """Return all combinations of the values, the last option changing fastest."""
    axes = []
    for names, values in grid.items():
        if isinstance(names, str):
            axes.append([{names: value} for value in values])
            continue
        for value in values:
            if not isinstance(value, Sequence) or len(value) != len(names):
                raise OptionError(
                    f"grid of {':'.join(names)}: {value!r}, expected {len(names)} "
                    "values"
                )
        axes.append([dict(zip(names, value, strict=True)) for value in values])
    return [
        {name: value for part in row for name, value in part.items()}
        for row in itertools.product(*axes)
    ]


def _width(value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, list | tuple) else (value,)
    for one in values:
        if one is not None and not isinstance(one, int | float):
            raise OptionError(f"width {one!r}, expected a number or 'none'")
    return tuple(math.inf if one is None else float(one) for one in values)


def _value(text: str, is_word: bool) -> Any:
    constants = {"none": "none" if is_word else None, "true": True, "false": False}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


COARSE = 5  # Values of each option in the first grid, including both ends of the range
HALVINGS = 3  # Number of halvings of the step afterwards
DIGITS = 6  # Decimals to which values are rounded

Range = tuple[float, float]
RANGES: Mapping[str, Range] = {
    "lm_scale": (0.2, 1.8),
    "word_insertion": (-4.0, 4.0),
    "boost_scale": (0.0, 2.0),
}
"""Default ranges of options; the scale of boosts applies only with boosts."""

_log = logging.getLogger("wfstdec.compare")
_Place = tuple[float, ...]


@dataclass(frozen=True)
class Trial:
    """Evaluation of a setting."""

    setting: Setting  # The values of the options
    errors: WordErrors  # On the whole dev set
    # `"default"`, `"grid"`, or the step of the pattern search, `"step 1"` and so on
    stage: str
    # Word errors and reference words of each utterance, int64 [U] both
    counts: tuple[np.ndarray, np.ndarray] = field(compare=False, repr=False)

    @property
    def wer(self) -> float:
        """Word errors per hundred reference words."""
        return self.errors.rate

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the WER, percent; None as in `wer_interval`."""
        return wer_interval(*self.counts)

    @property
    def rank(self) -> tuple[float, ...]:
        """Sort key, lower is better."""
        scales = {n: x for n, x in self.setting.items() if n.endswith("_scale")}
        others = [abs(x) for n, x in self.setting.items() if n not in scales]
        from_one = [round(abs(x - 1), DIGITS) for x in scales.values()]
        return (self.errors.total, *others, *from_one, *self.setting.values())

    def __str__(self) -> str:
        text = f"%WER {self.wer:.2f} ({self.errors.total} errors)"
        return f"{label(self.setting)}: {text}"


@dataclass(frozen=True)
class Tuning:
    """Best options, and all trials."""

    best: Trial  # Best trial
    trials: tuple[Trial, ...]  # All trials, in order
    ranges: Mapping[str, Range]  # Searched ranges
    complete: bool  # Whether the search converged, not stopped by `max_trials`
    # The setting without tuning: the first of the trials, unless outside the ranges
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
        """Ends of ranges that the best setting reaches: better ones may be beyond."""
        # Such as `"lm_scale 0.2 is the lower end of its range"`. Fixed values have no
        # ends, and scales are not below 0.
        found = []
        for name, (low, high) in self.ranges.items():
            value = self.best.setting[name]
            for end, side in ((low, "lower"), (high, "upper")):
                beyond = low < high and not (end == 0 and name.endswith("_scale"))
                if value == end and beyond:
                    found.append(f"{name} {value:g} is the {side} end of its range")
        return found


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
        prepare: Returns a decoder with these options, such as `DecoderSearch.prepare`.
        speech: The dev set.
        ranges: Range of each option, both ends included; equal ends fix it. `None` is
            `RANGES`.
        boosts: Boosts of each utterance, for `prepare`'s decoder.
        max_trials: Most evaluations; one more if the ranges exclude the default.
        default: Reference values of the gain; 1 for scales and 0 for others if missing.
        say: Called with each trial; None logs it.

    Raises:
        FormatError: No decoded word of the first trial occurs in the references, but
            some would in another spelling.
        OptionError: `max_trials` is below 1, no option, or a range upside down.
        ShapeError, LogprobError: As the decoder's.
    """
    if ranges is None:
        ranges = {n: r for n, r in RANGES.items() if boosts or n != "boost_scale"}
    _check(ranges, max_trials)
    utterances, say = list(speech.logprobs.values()), say or partial(_log.info, "%s")
    done: dict[_Place, Trial] = {}

    def evaluate(place: _Place, stage: str) -> Trial:
        setting = dict(zip(ranges, place, strict=True))
        hypotheses = speech.words_of(prepare(setting)(utterances, boosts))
        # If no word is ever correct, the references are spelled differently: report it
        # now, not after 80 trials.
        if not done:
            speech.check_words(hypotheses)
        score = score_texts(speech.references, hypotheses)
        return Trial(setting, score.errors, stage, score.counts)

    def visit(places: Iterable[_Place], stage: str) -> bool:
        """Evaluate new settings, clipped to the ranges; return False at the limit."""
        for place in places:
            pairs = zip(place, ranges.values(), strict=True)
            inside = tuple(round(min(max(x, lo), hi), DIGITS) for x, (lo, hi) in pairs)
            if inside in done:
                continue
            if len(done) == max_trials:
                return False
            done[inside] = evaluate(inside, stage)
            say(done[inside])
        return True

    def best() -> Trial:
        return min(done.values(), key=lambda trial: trial.rank)

    # The default comes first; fixed values are kept. A missing scale is 1, a missing
    # insertion 0.
    given = {name: float(name.endswith("_scale")) for name in ranges}
    given.update(default or {})
    place = tuple(
        round(low if low == high else float(given[name]), DIGITS)
        for name, (low, high) in ranges.items()
    )
    pairs = zip(place, ranges.values(), strict=True)
    if all(low <= x <= high for x, (low, high) in pairs):
        visit([place], "default")
        first = done[place]
    else:  # none of the trials
        first = evaluate(place, "default")
    # A coarse grid next, so that refinement begins near the global best.
    axes = (
        [low + (high - low) * i / (COARSE - 1) for i in range(COARSE)]
        for low, high in ranges.values()
    )
    complete = visit(itertools.product(*axes), "grid")
    moves = [m for m in itertools.product((-1, 0, 1), repeat=len(ranges)) if any(m)]
    moves.sort(key=lambda move: sum(map(abs, move)))  # along the axes first
    for halving in range(1, HALVINGS + 1):
        parts = (COARSE - 1) * 2**halving
        steps = [(high - low) / parts for low, high in ranges.values()]
        centre = None
        # To better neighbours until there are none.
        while complete and best() is not centre:
            centre = best()
            at = centre.setting.values()
            places = (
                tuple(x + m * s for x, m, s in zip(at, move, steps, strict=True))
                for move in moves
            )
            complete = visit(places, f"step {halving}")
    return Tuning(best(), tuple(done.values()), dict(ranges), complete, first)


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
