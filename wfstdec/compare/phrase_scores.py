"""Scores of listed phrases: precision, recall, F.

An occurrence of a phrase is a place in a text at which its words stand one after the
other; occurrences may overlap, also those of one phrase. Counts are of an utterance and
a phrase: with r occurrences in the reference and h in the hypothesis, min(r, h) are
hits, wherever in the text they are. Over all utterances and phrases then

    precision = hits / sum of h      recall = hits / sum of r
    F = 2 * hits / (sum of h + sum of r)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PhraseScore:
    """Occurrences of phrases in references and hypotheses.

    Attributes:
        hits: Occurrences that both have.
        in_references: Those in the references.
        in_hypotheses: Those in the hypotheses.
    """

    hits: int
    in_references: int
    in_hypotheses: int

    @property
    def precision(self) -> float | None:
        """Hits among the occurrences in the hypotheses; None where there are none."""
        return _share(self.hits, self.in_hypotheses)

    @property
    def recall(self) -> float | None:
        """Hits among the occurrences in the references; None where there are none."""
        return _share(self.hits, self.in_references)

    @property
    def f_score(self) -> float | None:
        """Harmonic mean of precision and recall; None where no phrase occurs."""
        return _share(2 * self.hits, self.in_references + self.in_hypotheses)


class PhraseCounter:
    """Counts the occurrences of phrases in texts; a text costs the same for any list.

    Args:
        phrases: Words joined by spaces; repeated ones count once.
    """

    def __init__(self, phrases: Iterable[str]) -> None:
        self._by_length: dict[int, set[tuple[str, ...]]] = defaultdict(set)
        for phrase in phrases:
            words = tuple(phrase.split())
            if words:
                self._by_length[len(words)].add(words)

    def __len__(self) -> int:
        """Number of phrases."""
        return sum(map(len, self._by_length.values()))

    def count(self, words: Sequence[str]) -> Counter[tuple[str, ...]]:
        """The phrases that occur in a text, and how often."""
        text = tuple(words)
        return Counter(
            text[start : start + length]
            for length, known in self._by_length.items()
            for start in range(len(text) - length + 1)
            if text[start : start + length] in known
        )

    def score(
        self,
        references: Mapping[str, Sequence[str]],
        hypotheses: Mapping[str, Sequence[str]],
    ) -> PhraseScore:
        """Score the hypotheses of all utterances of the references.

        Args:
            references: The words of each utterance.
            hypotheses: The same; one that is missing counts as empty.
        """
        hits = in_references = in_hypotheses = 0
        for utterance, reference in references.items():
            said = self.count(reference)
            heard = self.count(hypotheses.get(utterance, ()))
            hits += (said & heard).total()
            in_references += said.total()
            in_hypotheses += heard.total()
        return PhraseScore(hits, in_references, in_hypotheses)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
