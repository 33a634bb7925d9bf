"""Count the token errors of greedy paths: no language model, no search.

errors = token_errors(words, said, pronunciations)     # (errors, tokens), or None

A word with several pronunciations is held against the nearest: the edit distance runs
over all of them side by side, and goes on from the least. Tokens are counted by the
first pronunciation of each word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from wfstdec.doctor.report import Finding, Status, percent
from wfstdec.text.lexicon import Lexicon, Pronunciation

FINE, DOUBTFUL = 0.3, 0.6
"""Error rates of models that fit, and of those that may."""

Ways = Mapping[str, Sequence[Pronunciation]]


def ways_of(lexicon: Lexicon) -> dict[str, list[Pronunciation]]:
    """All pronunciations of each word."""
    ways: dict[str, list[Pronunciation]] = {}
    for word, tokens in zip(lexicon.words, lexicon.pronunciations, strict=True):
        ways.setdefault(word, []).append(tokens)
    return ways


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


def errors_finding(
    said: Iterable[tuple[str, Sequence[int]]],
    references: Mapping[str, Sequence[str]],
    ways: Ways,
) -> Finding | None:
    """Say the greedy token error rate; None where no utterance can be counted.

    Args:
        said: The tokens of utterances, without blanks and what is between words.
        references: Their words.
        ways: The pronunciations of words.
    """
    found = [
        token_errors(references[utterance], tokens, ways)
        for utterance, tokens in said
        if utterance in references
    ]
    counted = [one for one in found if one is not None]
    total = sum(tokens for _, tokens in counted)
    if not total:
        return None
    rate = sum(errors for errors, _ in counted) / total
    status: Status = "ok" if rate < FINE else "look" if rate < DOUBTFUL else "wrong"
    text = (
        f"{percent(rate)} of {total:,} tokens of the references, by the nearest "
        f"pronunciation, in the {len(counted)} utterances whose words all have some"
    )
    if status != "ok":
        text += "; are tokens, lexicon, references and log-probs of one model and task?"
    return Finding("greedy token errors", status, text)
