"""Quality of word confidences: reliability, normalised cross-entropy, ROC.

A word of a hypothesis is right where the alignment with the reference pairs it with an
equal word (Kaldi's choice among alignments). Of N words with confidences:

    nce  = (H - mean -log2 p(what a word is)) / H     H: of the share of right words
    auc  = how often a right word is surer than a wrong one, a tie being half
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.errors import FormatError
from wfstdec.metrics import GAP, align
from wfstdec.text.normalize import AS_IT_STANDS, Normalizer

_LEAST = 1e-6
"""Confidences are taken to be no nearer to 0 and 1."""


class Reliability(NamedTuple):
    """Words of about the same confidence.

    Attributes:
        confidence: Their mean confidence.
        right: The share that is right.
        words: How many they are.
    """

    confidence: float
    right: float
    words: int


class Quality(NamedTuple):
    """Figures of the quality of confidences.

    Attributes:
        nce: Normalised cross-entropy.
        auc: The area under the ROC curve.
        words: How many words there are.
        right: The share of them that is right.
        bins: For a reliability plot.
    """

    nce: float
    auc: float
    words: int
    right: float
    bins: list[Reliability]

    def __str__(self) -> str:
        share = f"{self.words} words, {100 * self.right:.1f} % right"
        return f"NCE {self.nce:.3f}, AUC {self.auc:.3f} ({share})"


def quality(confidences: Sequence[float], right: Sequence[bool]) -> Quality:
    """All measures of the confidences of some words.

    Raises:
        FormatError: All words are right, or all are wrong.
    """
    return Quality(
        normalised_cross_entropy(confidences, right),
        area_under_roc(confidences, right),
        len(right),
        sum(right) / len(right),
        reliability(confidences, right),
    )


def score_confidences(
    references: Mapping[str, Sequence[str]],
    hypotheses: Mapping[str, Sequence[tuple[str, float]]],
    normalizer: Normalizer = AS_IT_STANDS,
) -> Quality:
    """Score the confidences of hypotheses whose utterances have a reference.

    Args:
        references: Words by utterance.
        hypotheses: Words with their confidences.
        normalizer: How words are compared; references are by it already.

    Raises:
        FormatError: All words are right, or all are wrong; or there are none.
    """
    right: list[bool] = []
    confidences: list[float] = []
    for utterance, said in hypotheses.items():
        if utterance in references:
            words = [word for word, _ in said]
            right += right_words(references[utterance], words, normalizer)
            confidences += [confidence for _, confidence in said]
    return quality(confidences, right)


def right_words(
    reference: Sequence[str],
    hypothesis: Sequence[str],
    normalizer: Normalizer = AS_IT_STANDS,
) -> list[bool]:
    """Mark the words of a hypothesis that are right, all words of each, if several."""
    parts = [normalizer.word(word) for word in hypothesis]
    pairs = align(reference, [part for several in parts for part in several])
    marks = iter([said == heard for said, heard in pairs if heard != GAP])
    return [all([next(marks) for _ in several]) for several in parts]


def normalised_cross_entropy(
    confidences: Sequence[float], right: Sequence[bool]
) -> float:
    """1 where they know all, 0 where they are as good as the share, below 0 worse.

    Raises:
        FormatError: All words are right, or all are wrong.
    """
    p, is_right = _checked(confidences, right)
    share = is_right.mean()
    whole = -(share * np.log2(share) + (1 - share) * np.log2(1 - share))
    left = -np.log2(np.where(is_right, p, 1 - p)).mean()
    return float((whole - left) / whole)


def area_under_roc(confidences: Sequence[float], right: Sequence[bool]) -> float:
    """The probability that a right word is surer than a wrong one; ties are half.

    Raises:
        FormatError: All words are right, or all are wrong.
    """
    p, is_right = _checked(confidences, right)
    values, place, counts = np.unique(p, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    num_right, num_wrong = is_right.sum(), (~is_right).sum()
    above = rank[is_right].sum() - num_right * (num_right + 1) / 2
    return float(above / (num_right * num_wrong))


def reliability(
    confidences: Sequence[float], right: Sequence[bool], bins: int = 10
) -> list[Reliability]:
    """Words by confidence, in bins of equal width; empty ones are left out."""
    p, is_right = np.asarray(confidences, float), np.asarray(right, bool)
    at = np.minimum((p * bins).astype(int), bins - 1)
    return [
        Reliability(
            float(p[at == b].mean()), float(is_right[at == b].mean()), int(sum(at == b))
        )
        for b in range(bins)
        if (at == b).any()
    ]


def _checked(
    confidences: Sequence[float], right: Sequence[bool]
) -> tuple[np.ndarray, np.ndarray]:
    p, is_right = np.asarray(confidences, float), np.asarray(right, bool)
    if not len(is_right):
        raise FormatError("no words, expected some with confidences")
    if is_right.all() or not is_right.any():
        raise FormatError(
            f"{is_right.sum()} of {len(is_right)} words are right, expected right ones "
            "and wrong ones"
        )
    return np.clip(p, _LEAST, 1 - _LEAST), is_right
