"""Word error rates in the format of Kaldi's compute-wer.

    score = score_texts(references, hypotheses)      # {utterance: words}
    print(score.wer_line)                            # %WER 14.71 [ 2432 / 16533, ...
    score.missing, score.worst(10)
    score.interval                                   # 95 %: 13.52 to 15.96
    wer_gain(errors, others, words)                  # of one search over another

Ties between alignments are decided as in Kaldi.

Intervals are those of M. Bisani and H. Ney, "Bootstrap estimates for confidence
intervals in ASR performance evaluation", ICASSP 2004: all utterances are drawn with
replacement, `RESAMPLES` times; the interval contains the middle 95 % of the WERs of
these draws. Two searches are compared on the same draws, which detects far smaller
differences than two intervals do. Utterances are assumed to be independent: with few
speakers the true interval is wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from operator import add
from typing import NamedTuple

import kaldialign
import numpy as np

from wfstdec.errors import FormatError, ShapeError
from wfstdec.lazy import checked_types

GAP = "*"  # Placeholder in an alignment for a missing word
RESAMPLES = 1000  # Draws of all utterances of a bootstrap; the seed is fixed
_LEVEL = 95.0
_DRAWN_AT_ONCE = 1 << 22  # Indices of utterances in memory at once


class Interval(NamedTuple):
    """Ends of a 95 % interval, percent."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.2f} to {self.high:.2f}"


class WerGain(NamedTuple):
    """Difference of two WERs on the same utterances."""

    gain: float  # Percent of the reference words, negative if it is higher
    interval: Interval  # Of the gain
    sure: float  # Share of the draws in which it is lower

    @property
    def above_chance(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval.low > 0 or self.interval.high < 0

    def __str__(self) -> str:
        verdict = "more than chance" if self.above_chance else "may be chance"
        return (
            f"{self.gain:+.2f} % WER (95 %: {self.interval.low:+.2f} to "
            f"{self.interval.high:+.2f}, lower in {100 * self.sure:.0f} % of "
            f"{RESAMPLES} draws): {verdict}"
        )


@dataclass(frozen=True)
class WordErrors:
    """Word errors of an alignment with the fewest errors."""

    insertions: int = 0  # Hypothesis words without a reference word
    deletions: int = 0  # Reference words without a hypothesis word
    substitutions: int = 0  # Pairs of different words
    reference_words: int = 0  # Length of the reference

    @property
    def total(self) -> int:
        """All errors."""
        return self.insertions + self.deletions + self.substitutions

    @property
    def rate(self) -> float:
        """Errors per hundred reference words."""
        return 100.0 * self.total / self.reference_words

    def __add__(self, other: WordErrors) -> WordErrors:
        return WordErrors(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class UtteranceScore:
    """Errors of one utterance, with the words of both sides."""

    utterance: str
    errors: WordErrors
    reference: tuple[str, ...]
    hypothesis: tuple[str, ...]

    def alignment(self) -> list[tuple[str, str]]:
        """Pairs of reference and hypothesis words; `GAP` for a missing one."""
        return align(self.reference, self.hypothesis)


@dataclass(frozen=True)
class Score:
    """Scores of all utterances of the references."""

    utterances: tuple[UtteranceScore, ...]  # In the order of the references
    missing: tuple[str, ...]  # Without a hypothesis; their words count as deletions
    extra: tuple[str, ...]  # Without a reference; they are ignored
    name: str = "WER"  # Name of the rate

    @property
    def errors(self) -> WordErrors:
        """Sum of the errors of all utterances."""
        return sum((score.errors for score in self.utterances), WordErrors())

    @property
    def wer(self) -> float:
        """Word errors per hundred reference words."""
        return self.errors.rate

    @property
    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Word errors and reference words of each utterance, int64 [U] both."""
        errors = [score.errors for score in self.utterances]
        wrong = np.array([one.total for one in errors], np.int64)
        return wrong, np.array([one.reference_words for one in errors], np.int64)

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the WER, percent; None as in `wer_interval`."""
        return wer_interval(*self.counts)

    @property
    def wer_line(self) -> str:
        """`%WER 14.71 [ 2432 / 16533, 201 ins, 310 del, 1921 sub ]`."""
        e = self.errors
        return (
            f"%{self.name} {self.wer:.2f} [ {e.total} / {e.reference_words}, "
            f"{e.insertions} ins, {e.deletions} del, {e.substitutions} sub ]"
        )

    @property
    def ser_line(self) -> str:
        """`%SER 75.00 [ 30 / 40 ]`: utterances with any error."""
        wrong = sum(score.errors.total > 0 for score in self.utterances)
        count = len(self.utterances)
        return f"%SER {100.0 * wrong / count:.2f} [ {wrong} / {count} ]"

    def worst(self, count: int) -> list[UtteranceScore]:
        """Return at most `count` utterances with errors, most errors first."""
        wrong = [score for score in self.utterances if score.errors.total]
        return sorted(wrong, key=lambda score: -score.errors.total)[:count]


@checked_types
def count_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> WordErrors:
    """Return the word errors of one utterance."""
    found = kaldialign.edit_distance(reference, hypothesis)
    return WordErrors(found["ins"], found["del"], found["sub"], len(reference))


@checked_types
def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of words with the fewest differences; `GAP` for a missing one."""
    return kaldialign.align(reference, hypothesis, GAP)


@checked_types
def score_texts(
    references: Mapping[str, Sequence[str]],
    hypotheses: Mapping[str, Sequence[str]],
    name: str = "WER",
) -> Score:
    """Score all hypotheses against their references; `name` is that of the rate."""
    if not any(references.values()):
        raise FormatError("the references have no words, expected at least one")
    scores = []
    for utterance, reference in references.items():
        sides = tuple(reference), tuple(hypotheses.get(utterance, ()))
        scores.append(UtteranceScore(utterance, count_errors(*sides), *sides))
    missing = tuple(u for u in references if u not in hypotheses)
    extra = tuple(u for u in hypotheses if u not in references)
    return Score(tuple(scores), missing, extra, name)


@checked_types
def wer_interval(errors: np.ndarray, words: np.ndarray) -> Interval | None:
    """Return the bootstrap 95 % interval of a WER over utterances, percent.

    `errors`, `words`: int [U], word errors and reference words of each utterance. None
    for fewer than two utterances, or without any error.
    """
    _check_counts(errors, words)
    if len(errors) < 2 or not np.any(errors):
        return None
    return _interval(_drawn_wers(np.asarray([errors]), words)[0])


@checked_types
def wer_gain(
    errors: np.ndarray, others: np.ndarray, words: np.ndarray
) -> WerGain | None:
    """Return the bootstrap difference of two WERs on the same draws.

    `errors`, `others`: int [U], word errors of each utterance by both. `words`: int
    [U], reference words. None for fewer than two utterances.
    """
    _check_counts(errors, others, words)
    if len(errors) < 2:
        return None
    mine, theirs = _drawn_wers(np.asarray([errors, others]), words)
    gain = 100.0 * int(np.sum(others) - np.sum(errors)) / int(np.sum(words))
    return WerGain(gain, _interval(theirs - mine), float(np.mean(mine < theirs)))


def _check_counts(*counts: np.ndarray) -> None:
    kinds = {(one.shape, one.dtype.kind) for one in map(np.asarray, counts)}
    if len(kinds) > 1 or any(len(s) != 1 or kind not in "iu" for s, kind in kinds):
        raise ShapeError(f"counts are {kinds}, expected integers [U] each")


def _drawn_wers(errors: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return WERs of draws with words, float64 [S, RESAMPLES], percent."""
    generator, count, sums = np.random.default_rng(0), len(words), []
    step = max(1, _DRAWN_AT_ONCE // count)
    for begin in range(0, RESAMPLES, step):
        size = min(step, RESAMPLES - begin), count
        drawn = generator.integers(count, size=size)
        sums.append([counts[drawn].sum(axis=1) for counts in (*errors, words)])
    *wrong, spoken = np.concatenate(sums, axis=1)
    has_words = spoken > 0
    return 100.0 * np.array(wrong)[:, has_words] / spoken[has_words]


def _interval(drawn: np.ndarray) -> Interval:
    outside = (100 - _LEVEL) / 2
    low, high = np.percentile(drawn, [outside, 100 - outside])
    return Interval(round(float(low), 4), round(float(high), 4))
