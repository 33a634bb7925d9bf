"""Hold lexicon, language model and references against each other: case, coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from wfstdec.doctor.report import Finding, Status, examples, percent
from wfstdec.text.lexicon import MARKS

PAIRS = (
    ("lexicon", "LM"),
    ("references", "lexicon"),
    ("references", "LM"),
)
"""What goes into what: words of the first that the second lacks are lost."""
CASED = 0.9
"""A share of the words that is as good as all."""
FOLDED = 0.05
"""What a coverage gains without case, where case is what it lacks."""


def case_finding(words: Mapping[str, Collection[str]]) -> Finding | None:
    """Say what case words are in, and whether that is why they differ.

    Args:
        words: Of lexicon, language model, references: those that there are.

    Returns:
        A finding; None where there is nothing to compare.
    """
    said = {name: set(some) - MARKS for name, some in words.items()}
    said = {name: some for name, some in said.items() if some}
    if len(said) < 2:
        return None
    cases = {name: case_of(some) for name, some in said.items()}
    worst: Status = "ok"
    differ = []
    for one, other in PAIRS:
        if not (one in said and other in said):
            continue
        exact = _share(said[one], said[other])
        folded = _share(_folded(said[one]), _folded(said[other]))
        if folded - exact >= FOLDED:
            worst = "wrong" if exact < folded / 2 else worst
            worst = "look" if worst == "ok" else worst
            differ.append(
                f"{percent(exact)} of {one} in {other}, {percent(folded)} without case"
            )
    text = ", ".join(f"{name} {case}" for name, case in cases.items())
    if differ:
        text += f"; {'; '.join(differ)}: write them in one case"
    return Finding("case", worst, text)


def case_of(words: Iterable[str]) -> str:
    """The case of most words: lower, UPPER, or mixed; none of some scripts."""
    cased = [word for word in words if word.lower() != word.upper()]
    if not cased:
        return "without case"
    if sum(map(str.islower, cased)) >= CASED * len(cased):
        return "lower case"
    if sum(map(str.isupper, cased)) >= CASED * len(cased):
        return "UPPER CASE"
    return "mixed case"


def coverage_finding(
    one: str, words: Mapping[str, int], other: str, known: Collection[str]
) -> Finding:
    """Say what share of some words others have, with the words that they lack.

    Args:
        one: What the words are of, as in `PAIRS`.
        words: How often each is there; of types, once.
        other: What may have them.
        known: The words that it has.
    """
    counts = Counter({word: n for word, n in words.items() if word not in MARKS})
    missing = Counter({word: n for word, n in counts.items() if word not in known})
    share = 1 - missing.total() / max(counts.total(), 1)
    ok, look = (0.95, 0.8) if one == "references" else (0.6, 0.1)
    status: Status = "ok" if share >= ok else "look" if share >= look else "wrong"
    running = "running words" if one == "references" else "words"
    text = f"has {percent(share)} of {counts.total():,} {running} of the {one}"
    if missing:
        often = missing.most_common() if one == "references" else missing.items()
        named = (f"{w!r}" + (f" ({n} times)" if n > 1 else "") for w, n in often)
        text += f"; {len(missing):,} it lacks: {examples(named)}"
    return Finding(f"{one} in {other}", status, text)


def _folded(words: Iterable[str]) -> set[str]:
    return {word.casefold() for word in words}


def _share(words: Collection[str], known: Collection[str]) -> float:
    return sum(word in known for word in words) / len(words)
