"""Hold lexicon, language model and references against each other, and what is said.

By words: case, and coverage. By tokens: the errors of greedy paths, without language
model or search.

    errors = token_errors(words, said, pronunciations)     # (errors, tokens), or None

A word with several pronunciations is held against the nearest: the edit distance runs
over all of them side by side, and goes on from the least. Tokens are counted by the
first pronunciation of each word.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from wfstdec.doctor.report import Finding, Status, examples, percent
from wfstdec.text.lexicon import MARKS, Lexicon, Pronunciation

PAIRS = (("lexicon", "LM"), ("references", "lexicon"), ("references", "LM"))
"""What goes into what: words of the first that the second lacks are lost."""
CASED = 0.9
"""A share of the words that is as good as all."""
FOLDED = 0.05
"""What a coverage gains without case, where case is what it lacks."""
FINE, DOUBTFUL = 0.3, 0.6
"""Error rates of models that fit, and of those that may."""

Ways = Mapping[str, Sequence[Pronunciation]]


def case_findings(words: Mapping[str, Collection[str]]) -> list[Finding]:
    """Say what case words are in, and whether that is why they differ.

    Args:
        words: Of lexicon, language model, references: those that there are.

    Returns:
        A finding; none where there is nothing to compare.
    """
    said = {name: set(some) - MARKS for name, some in words.items()}
    said = {name: some for name, some in said.items() if some}
    if len(said) < 2:
        return []
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
    return [Finding("case", worst, text)]


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


def token_errors(
    words: Sequence[str], said: Sequence[int], ways: Ways
) -> tuple[int, int] | None:
    """Count the errors of what was said against words.

    Args:
        words: The reference.
        said: Tokens.
        ways: The pronunciations of each word.

    Returns:
        Errors, and tokens of the reference; None where a word has no pronunciation.
    """
    if not all(word in ways for word in words):
        return None
    tokens = np.array(said, np.int64)
    row = np.arange(len(said) + 1)  # errors to here, by tokens of `said` so far
    for word in words:
        row = np.minimum.reduce([_after(row, way, tokens) for way in ways[word]])
    return int(row[-1]), sum(len(ways[word][0]) for word in words)


def _after(row: np.ndarray, way: Pronunciation, said: np.ndarray) -> np.ndarray:
    """Errors after the tokens of a pronunciation more."""
    places = np.arange(len(row))
    for token in way:
        left_out = row + 1
        left_out[1:] = np.minimum(left_out[1:], row[:-1] + (said != token))
        # Tokens too many: the least of what is before, and one for each since then.
        row = np.minimum.accumulate(left_out - places) + places
    return row


def error_findings(
    said: Iterable[tuple[str, Sequence[int]]],
    references: Mapping[str, Sequence[str]],
    lexicon: Lexicon,
) -> list[Finding]:
    """Say the greedy token error rate; nothing where no utterance can be counted.

    Args:
        said: The tokens of utterances, without blanks and what is between words.
        references: Their words.
        lexicon: The pronunciations of words.
    """
    ways: dict[str, list[Pronunciation]] = defaultdict(list)
    for word, tokens in zip(lexicon.words, lexicon.pronunciations, strict=True):
        ways[word].append(tokens)
    found = [
        token_errors(references[utterance], tokens, ways)
        for utterance, tokens in said
        if utterance in references
    ]
    counted = [one for one in found if one is not None]
    total = sum(tokens for _, tokens in counted)
    if not total:
        return []
    rate = sum(errors for errors, _ in counted) / total
    status: Status = "ok" if rate < FINE else "look" if rate < DOUBTFUL else "wrong"
    text = (
        f"{percent(rate)} of {total:,} tokens of the references, by the nearest "
        f"pronunciation, in the {len(counted)} utterances whose words all have some"
    )
    if status != "ok":
        text += "; are tokens, lexicon, references and log-probs of one model and task?"
    return [Finding("greedy token errors", status, text)]


def _folded(words: Iterable[str]) -> set[str]:
    return {word.casefold() for word in words}


def _share(words: Collection[str], known: Collection[str]) -> float:
    return sum(word in known for word in words) / len(words)
