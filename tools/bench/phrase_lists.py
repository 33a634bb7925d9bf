"""Lists of phrases for experiments: rare words that are said, and words nobody says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from wfstdec.compare.phrase_scores import PhraseCounter

Row = dict[str, float | None]


def rare_words(references: Mapping[str, Sequence[str]], letters: int) -> list[str]:
    """Words of so many letters or more that the references have once, sorted."""
    counts = Counter(word for words in references.values() for word in words)
    return sorted(w for w, n in counts.items() if n == 1 and len(w) >= letters)


def unsaid_words(
    lines: Iterable[str],
    references: Mapping[str, Sequence[str]],
    letters: int,
    seed: int,
) -> list[str]:
    """Words of a text that no reference has, of so many letters or more, shuffled."""
    said = {word for words in references.values() for word in words}
    of_text = {word for line in lines for word in line.split()}
    found = sorted(w for w in of_text if len(w) >= letters and w not in said)
    random.Random(seed).shuffle(found)
    return found


def phrase_figures(
    phrases: Iterable[str],
    references: Mapping[str, Sequence[str]],
    texts: Mapping[str, str],
) -> Row:
    """Precision, recall and F of phrases, percent; None where there are none."""
    heard = {name: text.split() for name, text in texts.items()}
    score = PhraseCounter(phrases).score(references, heard)
    names = "precision", "recall", "f_score"
    found = {name: getattr(score, name) for name in names}
    return {n: None if one is None else 100 * one for n, one in found.items()}
