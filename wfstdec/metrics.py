"""Word error rates, counted and written as Kaldi's compute-wer does.

    score = score_texts(references, hypotheses)      # {utterance: words}
    print(score.wer_line)                            # %WER 14.71 [ 2432 / 16533, ...
    score.missing, score.worst(10)

Where several alignments have the fewest errors, Kaldi's choice is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import kaldialign

from wfstdec.errors import FormatError

GAP = "*"
"""Stands in an alignment where one side has no word."""


@dataclass(frozen=True)
class WordErrors:
    """Word errors of an alignment with the fewest of them.

    Attributes:
        insertions: Hypothesis words that answer to no reference word.
        deletions: Reference words that answer to no hypothesis word.
        substitutions: Pairs of words that differ.
        reference_words: The length of the reference.
    """

    insertions: int = 0
    deletions: int = 0
    substitutions: int = 0
    reference_words: int = 0

    @property
    def total(self) -> int:
        """All errors."""
        return self.insertions + self.deletions + self.substitutions

    def __add__(self, other: WordErrors) -> WordErrors:
        return WordErrors(
            self.insertions + other.insertions,
            self.deletions + other.deletions,
            self.substitutions + other.substitutions,
            self.reference_words + other.reference_words,
        )


@dataclass(frozen=True)
class UtteranceScore:
    """The errors of one utterance, with the words of both sides."""

    utterance: str
    errors: WordErrors
    reference: tuple[str, ...]
    hypothesis: tuple[str, ...]

    def alignment(self) -> list[tuple[str, str]]:
        """Pairs of reference and hypothesis words; `GAP` where one side has none."""
        return align(self.reference, self.hypothesis)


@dataclass(frozen=True)
class Score:
    """The scores of all utterances of the references.

    Attributes:
        utterances: One score each, in the order of the references.
        missing: Utterances without a hypothesis; their words count as deletions.
        extra: Hypotheses without a reference; they count for nothing.
    """

    utterances: tuple[UtteranceScore, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def errors(self) -> WordErrors:
        """The errors of all utterances together."""
        return sum((score.errors for score in self.utterances), WordErrors())

    @property
    def wer(self) -> float:
        """Word errors per hundred reference words."""
        return _percent(self.errors.total, self.errors.reference_words)

    @property
    def wer_line(self) -> str:
        """`%WER 14.71 [ 2432 / 16533, 201 ins, 310 del, 1921 sub ]`."""
        e = self.errors
        return (
            f"%WER {self.wer:.2f} [ {e.total} / {e.reference_words}, "
            f"{e.insertions} ins, {e.deletions} del, {e.substitutions} sub ]"
        )

    @property
    def ser_line(self) -> str:
        """`%SER 75.00 [ 30 / 40 ]`: utterances with any error."""
        wrong = sum(score.errors.total > 0 for score in self.utterances)
        count = len(self.utterances)
        return f"%SER {_percent(wrong, count):.2f} [ {wrong} / {count} ]"

    def worst(self, count: int) -> list[UtteranceScore]:
        """Up to `count` utterances that have errors, those with the most first."""
        wrong = [score for score in self.utterances if score.errors.total]
        return sorted(wrong, key=lambda score: -score.errors.total)[:count]


def count_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> WordErrors:
    """Count the word errors of one utterance."""
    found = kaldialign.edit_distance(reference, hypothesis)
    return WordErrors(found["ins"], found["del"], found["sub"], len(reference))


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of words with the fewest that differ; `GAP` where one side has none."""
    return kaldialign.align(reference, hypothesis, GAP)


def score_texts(
    references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, Sequence[str]]
) -> Score:
    """Score all hypotheses against their references.

    Args:
        references: The words of each utterance.
        hypotheses: The words of each utterance; missing ones count as empty.

    Raises:
        FormatError: There are no references, or they have no words.
    """
    if not any(references.values()):
        raise FormatError("the references have no words, expected at least one")
    scores = []
    for utterance, reference in references.items():
        hypothesis = hypotheses.get(utterance, ())
        errors = count_errors(reference, hypothesis)
        scores.append(
            UtteranceScore(utterance, errors, tuple(reference), tuple(hypothesis))
        )
    return Score(
        utterances=tuple(scores),
        missing=tuple(u for u in references if u not in hypotheses),
        extra=tuple(u for u in hypotheses if u not in references),
    )


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole
