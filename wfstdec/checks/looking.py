"""Look at the first utterances of a run, and say once what seems wrong with them.

for utterance, logprobs in looked_at(reader, Heard.of(vocabulary)): ...
look = FirstLook()                         # of a decoder, at what it is given first
look.at(batch, utterances, blank)

Wrong input decodes into wrong words in silence: nothing else tells. Warnings have no
figures, so that each is said once, whoever notices it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.checks.rows import FEWEST_ROWS, RowKind, kind_of
from wfstdec.checks.said import Said
from wfstdec.errors import LogprobWarning
from wfstdec.text.lexicon import is_mark
from wfstdec.text.symbols import TokenTable
from wfstdec.text.vocabulary import Vocabulary

UTTERANCES = 6
"""Utterances looked at."""
FRAMES = 200
"""Frames of each, from its middle."""
BATCH_PAIRS = 512
"""Pairs of neighbours that tell the axes of a batch."""
LEAST_SHARED, MORE_SHARED = 0.1, 1.5
"""Least that neighbours in time share, and its factor over what utterances share."""

Pairs = Iterable[tuple[str, np.ndarray]]


@dataclass(frozen=True)
class Heard:
    """Parts that a decoder makes of tokens.

    Attributes:
        tokens: The token table.
        between: Tokens that it knows to stand between words.
        words: Tokens that its words have; None where any may be in a word.
    """

    tokens: TokenTable
    between: tuple[int, ...] = ()
    words: frozenset[int] | None = None

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Heard:
        """Read a vocabulary; where it has no pronunciations any token may be one."""
        words = None
        if vocabulary.words and vocabulary.open_word is None:
            entries: Any = vocabulary.entries
            if hasattr(entries, "tokens"):
                words = frozenset(np.unique(entries.tokens).tolist())
            else:
                words = frozenset().union(*entries.pronunciations)
        # Where there are no pronunciations, any token may be one.
        words = words or None
        return cls(vocabulary.tokens, vocabulary.separators, words)

    @classmethod
    def spelled(cls, tokens: TokenTable, between: tuple[int, ...]) -> Heard:
        """Take words that are spelled with the tokens: those of letters or digits."""
        words = {
            token
            for token, name in enumerate(tokens.names)
            if not is_mark(name) and any(map(str.isalnum, name))
        }
        return cls(tokens, between, frozenset(words))


def looked_at(logprobs: Pairs, heard: Heard) -> Iterator[tuple[str, np.ndarray]]:
    """Pass utterances on, and warn of what seems wrong with the first ones.

    Args:
        logprobs: Pairs of an utterance id and its log-probs, [T, V].
        heard: What they are decoded by.

    Yields:
        The pairs as they come.

    Warns:
        LogprobWarning: No natural log-probs; a blank that never wins while another
            token does; a token that is said often and that no word has.
    """
    utterances, said = iter(logprobs), Said(len(heard.tokens))
    kinds: set[RowKind | None] = set()
    for _, (utterance, array) in zip(range(UTTERANCES), utterances, strict=False):
        if array.ndim == 2 and array.shape[1] == len(heard.tokens):
            if (kind := kind_of(array)) not in kinds:
                warn_of_rows(kind, stacklevel=2)
            kinds.add(kind)
            middle = max(len(array) - FRAMES, 0) // 2
            said.add(array[middle : middle + FRAMES])
        yield utterance, array
    for doubt in doubts(said, heard):
        warnings.warn(doubt, LogprobWarning, stacklevel=2)
    yield from utterances


def doubts(said: Said, heard: Heard) -> list[str]:
    """Warnings about the blank and unheard tokens, a line each."""
    names, blank = heard.tokens.names, heard.tokens.blank
    other = said.likely_blank(blank, heard.between)
    if other is not None:
        return [blank_doubt(heard.tokens, other)]
    if heard.words is None:
        return []
    known = heard.words.union(heard.between)
    return [
        f"logprobs: the model often says {names[token]!r}, which no word has, expected "
        f"tokens of words, or between them; --separator {names[token]!r} where graph "
        "or decoder is made, or --silence?"
        for token in said.unheard(names, blank, known)[:1]
    ]


def blank_doubt(tokens: TokenTable, other: int) -> str:
    """A warning about the blank."""
    found = f"{tokens.names[tokens.blank]!r}, token {tokens.blank}"
    likely = f"{tokens.names[other]!r}, token {other}"
    return (
        f"logprobs: the blank ({found}) wins few frames while {likely}, wins "
        f"most, between all others, expected the reverse; --blank {other}?"
    )


def warn_of_rows(kind: RowKind | None, stacklevel: int) -> None:
    """Warn where rows are no log-probs; probabilities every search tells by itself."""
    if kind not in (None, RowKind.LOGPROBS, RowKind.PROBABILITIES):
        warnings.warn(kind.doubt, LogprobWarning, stacklevel=stacklevel + 1)


class FirstLook:
    """A decoder's look at the first batch that it is given.

    Attributes:
        is_done: Whether there is nothing left to look at.
    """

    def __init__(self) -> None:
        self.is_done = False

    def at(self, given: Any, utterances: Sequence[Any], blank: int) -> None:
        """Look at a batch, if it is the first with enough rows to tell.

        Args:
            given: What the user gave: [B, T, V], or a sequence.
            utterances: What was made of it, [T, V] each.
            blank: The token that is CTC's blank.

        Warns:
            LogprobWarning: No natural log-probs, or [T, B, V].
        """
        first: Any = next((one for one in utterances if len(one) >= FEWEST_ROWS), None)
        swapped = getattr(given, "ndim", 0) == 3 and _are_axes_swapped(
            utterances, blank
        )
        self.is_done = first is not None or swapped
        if swapped:
            text = (
                f"logprobs: a batch {tuple(given.shape)} goes on in time along "
                "its first axis, expected [B, T, V]; [T, B, V]? then swap the first two"
            )
            warnings.warn(text, LogprobWarning, stacklevel=5)
        elif isinstance(first, np.ndarray) and first.min() < 0:
            # What has nothing below 0 was told when it was checked.
            warn_of_rows(kind_of(first), stacklevel=5)


def _are_axes_swapped(utterances: Sequence[Any], blank: int) -> bool:
    """Tell whether time runs along the first axis.

    In time, neighbours share much of what is no blank; utterances share it by chance.
    On real speech one axis shares 2.4 times as much as the other, or more.
    """
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
