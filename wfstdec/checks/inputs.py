"""Check the first utterances of a run, and warn once if they are not log-probs."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.checks.rows import FEWEST_ROWS, RowKind, kind_of
from wfstdec.checks.token_counts import TokenCounts
from wfstdec.errors import LogprobWarning
from wfstdec.text.lexicon import is_mark
from wfstdec.text.tokens import TokenTable
from wfstdec.text.vocabulary import Vocabulary

UTTERANCES = 6
"""Utterances that are checked."""
EVERY = 32
"""Batches of which one is checked, after the first."""
SESSION_FRAMES = 50
"""Frames of a session that are checked."""
_STACK = 6
"""Frames of the stack from a warning to the caller of `decode` or `advance`."""
FRAMES = 200
"""Frames of each, from its middle."""
BATCH_PAIRS = 512
"""Pairs of neighbours that tell the axes of a batch."""
LEAST_SHARED, MORE_SHARED = 0.1, 1.5
"""Least that neighbours in time share, and its factor over what utterances share."""

# Every search reports probabilities by itself.
_WRONG = frozenset(RowKind) - {RowKind.LOGPROBS, RowKind.PROBABILITIES}

Pairs = Iterable[tuple[str, np.ndarray]]


@dataclass(frozen=True)
class OutputTokens:
    """Parts that a decoder makes of tokens."""

    tokens: TokenTable  # The token table
    between: tuple[int, ...] = ()  # Tokens that it knows to stand between words
    # Tokens that its words have; None where any may be in a word
    words: frozenset[int] | None = None

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> OutputTokens:
        """Read a vocabulary; where it has no pronunciations any token may be one."""
        words = None
        if vocabulary.words and vocabulary.open_word is None:
            entries: Any = vocabulary.entries
            if hasattr(entries, "tokens"):
                words = frozenset(np.unique(entries.tokens).tolist())
            else:
                words = frozenset().union(*entries.pronunciations)
        return cls(vocabulary.tokens, vocabulary.separators, words or None)

    @classmethod
    def spelled(cls, tokens: TokenTable, between: tuple[int, ...]) -> OutputTokens:
        """Take words that are spelled with the tokens: those of letters or digits."""
        words = {
            token
            for token, name in enumerate(tokens.names)
            if not is_mark(name) and any(map(str.isalnum, name))
        }
        return cls(tokens, between, frozenset(words))


def checked(logprobs: Pairs, used: OutputTokens) -> Iterator[tuple[str, np.ndarray]]:
    """Pass utterances on, and warn of what seems wrong with the first ones."""
    utterances, counts = iter(logprobs), TokenCounts(len(used.tokens))
    kinds: set[RowKind | None] = set()
    for _, (utterance, array) in zip(range(UTTERANCES), utterances, strict=False):
        if array.ndim == 2 and array.shape[1] == len(used.tokens):
            kind = kind_of(array)
            if kind in _WRONG and kind not in kinds:
                warnings.warn(kind.doubt, LogprobWarning, stacklevel=2)
            kinds.add(kind)
            middle = max(len(array) - FRAMES, 0) // 2
            counts.add(array[middle : middle + FRAMES])
        yield utterance, array
    for doubt in doubts(counts, used):
        warnings.warn(doubt, LogprobWarning, stacklevel=2)
    yield from utterances


def doubts(counts: TokenCounts, used: OutputTokens) -> list[str]:
    """Warnings about the blank and unused tokens, a line each."""
    names, blank = used.tokens.names, used.tokens.blank
    other = counts.likely_blank(blank, used.between)
    if other is not None:
        return [blank_doubt(used.tokens, other)]
    if used.words is None:
        return []
    known = used.words.union(used.between)
    return [
        f"logprobs: the model often says {names[token]!r}, which no word has, expected "
        f"tokens of words, or between them; --separator {names[token]!r} where graph "
        "or decoder is made, or --silence?"
        for token in counts.unused_tokens(names, blank, known)[:1]
    ]


def blank_doubt(tokens: TokenTable, other: int) -> str:
    """A warning about the blank."""
    found = f"{tokens.names[tokens.blank]!r}, token {tokens.blank}"
    likely = f"{tokens.names[other]!r}, token {other}"
    return (
        f"logprobs: the blank ({found}) wins few frames while {likely}, wins "
        f"most, between all others, expected the reverse; --blank {other}?"
    )


class InputCheck:
    """Samples what a decoder is given, and warns once of each finding."""

    # The first utterances are checked for all that `checked` checks; later on one
    # utterance of every `EVERY` batches, and the first frames of one of 8 sessions, for
    # numbers that are no log-probs. Much less than 1 % of the time of decoding.

    def __init__(self, used: Callable[[], OutputTokens]) -> None:
        self._outputs, self._counts = used, TokenCounts(0)
        self._batches = self._counted = 0
        self._warned: set[str] = set()
        self.enabled = True

    def skip_first(self) -> None:
        """Leave the first utterances to `checked`."""
        self._counted, self._batches = UTTERANCES, 1

    def batch(self, given: Any, utterances: Sequence[Any], blank: int) -> None:
        """Check some of a batch `given` as [B, T, V] or a sequence; [T, V] each."""
        self._batches += 1
        first = self._batches == 1 or self._counted < UTTERANCES
        if not (first or self._batches % EVERY == 0):
            return
        if getattr(given, "ndim", 0) == 3 and _are_axes_swapped(utterances, blank):
            self._warn(
                f"logprobs: a batch {tuple(given.shape)} goes on in time along its "
                "first axis, expected [B, T, V]; [T, B, V]? then swap the first two"
            )
            return
        enough = (one for one in utterances if len(one) >= FEWEST_ROWS)
        for one in itertools.islice(enough, UTTERANCES if first else 1):
            self._check(one)

    def session(self, frames: np.ndarray) -> None:
        """Check the first frames of a session, [T, V]."""
        self._check(frames)

    def _check(self, rows: Any) -> None:
        """Check an utterance's rows, and count its tokens if it is one of the first."""
        if not (self.enabled and isinstance(rows, np.ndarray) and len(rows)):
            return  # on a device
        if rows.min() < 0:  # what has nothing below 0 is reported by the search
            kind = kind_of(rows)
            if kind in _WRONG:
                self._warn(kind.doubt)
                return
        if self._counted >= UTTERANCES:
            return
        if not self._counted:
            self._output_tokens = self._outputs()
            self._counts = TokenCounts(len(self._output_tokens.tokens))
        middle = max(len(rows) - FRAMES, 0) // 2
        self._counts.add(rows[middle : middle + FRAMES])
        self._counted += 1
        if self._counted == UTTERANCES:
            for doubt in doubts(self._counts, self._output_tokens):
                self._warn(doubt)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, LogprobWarning, stacklevel=_STACK)


def _are_axes_swapped(utterances: Sequence[Any], blank: int) -> bool:
    """Tell whether time runs along the first axis."""
    # In time, neighbours share much of what is no blank; utterances share it by chance.
    # On real speech one axis shares 2.4 times as much as the other, or more.
    times, width = len(utterances), len(utterances[0]) if len(utterances) else 0
    if not (times > width and times >= FEWEST_ROWS and width > 0):
        return False  # more frames than utterances, as it should be
    if not all(isinstance(x, np.ndarray) and len(x) == width for x in utterances):
        return False  # on a device; or with lengths, which fit the first axis
    along_first = _shared(utterances, blank, (1, 0))
    along_second = _shared(utterances, blank, (0, 1)) if width > 1 else 0.0
    return along_first > max(LEAST_SHARED, MORE_SHARED * along_second)


def _shared(
    utterances: Sequence[np.ndarray], blank: int, step: tuple[int, int]
) -> float:
    """The share of what is no blank that neighbours along an axis have in common."""
    times, width = len(utterances) - step[0], len(utterances[0]) - step[1]
    count = min(BATCH_PAIRS, times * width)
    places = [divmod(k * times * width // count, width) for k in range(count)]
    here = np.exp(np.stack([utterances[i][j] for i, j in places]))
    there = np.exp(np.stack([utterances[i + step[0]][j + step[1]] for i, j in places]))
    here[:, blank] = 0
    return float(np.minimum(here, there).sum() / max(float(here.sum()), 1e-6))
