"""Check the first utterances of a run, and warn once if they are not log-probs.

Tokens that win in frames are counted: is the blank right, is a token in no word? A run
is a token that wins in frames one after the other. CTC's blank wins many frames, in
many short runs between all other tokens; silence wins many in few long ones.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wfstdec.checks.rows import FEWEST_ROWS, RowKind, kind_of
from wfstdec.errors import LogprobWarning, levels_inside
from wfstdec.text.lexicon import is_mark
from wfstdec.text.tokens import TokenTable
from wfstdec.text.vocabulary import Vocabulary

UTTERANCES = 6
"""Utterances that are checked."""
EVERY = 32
"""Batches of which one is checked, after the first."""
SESSION_FRAMES = 50
"""Frames of a session that are checked."""
FRAMES = 200
"""Frames of each, from its middle."""
BATCH_PAIRS = 512
"""Pairs of neighbours that tell the axes of a batch."""
LEAST_SHARED, MORE_SHARED = 0.1, 1.5
"""Least that neighbours in time share, and its factor over what utterances share."""

FEWEST_FRAMES = 50
"""Frames needed to judge the blank."""
RARER = 1 / 3
"""A blank wins at least this many times the frames of any other token."""
BLANK_FRAMES, BLANK_RUNS = 0.35, 0.25
"""Shares of frames and of runs that only a blank has (on real speech: 0.70, 0.45)."""
FEWEST_RUNS, FEWEST_TIMES = 30, 5
"""Runs needed in all, and of one token, to judge it."""
OFTEN = 0.12
"""Share of runs above which an unused token is reported; letters have up to 0.12."""
OFTEN_BETWEEN = 0.03
"""The same of tokens that are called as separators are (on real speech: 0.20)."""
_BETWEEN = frozenset("| ▁ _ wb space ws boundary sep sil silence sp pau".split())

_WRONG = frozenset(RowKind) - {RowKind.LOGPROBS}

Pairs = Iterable[tuple[str, np.ndarray]]


class TokenCounts:
    """Counts of the tokens that win in frames of log-probs."""

    def __init__(self, num_tokens: int) -> None:
        # Frames that each token wins, and its runs.
        self.frames, self.runs = np.zeros((2, num_tokens), np.int64)

    def add(self, logprobs: np.ndarray) -> np.ndarray:
        """Count the frames of [T, V]; the token of each run, int64."""
        if not len(logprobs):
            return np.zeros(0, np.int64)
        # NumPy finds the largest of float16 slowly.
        best = logprobs.astype(np.float32, copy=False).argmax(axis=1)
        runs = best[np.flatnonzero(np.diff(best, prepend=-1))]
        self.frames += np.bincount(best, minlength=len(self.frames))
        self.runs += np.bincount(runs, minlength=len(self.runs))
        return runs

    @property
    def num_frames(self) -> int:
        """Frames counted."""
        return int(self.frames.sum())

    def frame_share(self, token: int) -> float:
        """The share of the frames that a token wins."""
        return float(self.frames[token] / max(self.num_frames, 1))

    def run_share(self, token: int, blank: int) -> float:
        """Share of a token among all runs but those of the blank."""
        return float(self.runs[token] / max(self.runs.sum() - self.runs[blank], 1))

    def likely_blank(self, blank: int, between: Collection[int] = ()) -> int | None:
        """A token that behaves as a blank; None where the blank may be right."""
        other = int(self.frames.argmax())
        few = self.num_frames < FEWEST_FRAMES
        if few or self.frames[blank] >= RARER * self.frames[other]:
            return None
        wins = self.frame_share(other) >= BLANK_FRAMES
        alternates = self.runs[other] >= BLANK_RUNS * self.runs.sum()
        return other if wins and alternates and other not in between else None

    def unused_tokens(
        self, names: Sequence[str], blank: int, used: Collection[int]
    ) -> list[int]:
        """Frequent tokens that are in no word, the most frequent first."""
        count = self.runs.sum() - self.runs[blank]
        if count < FEWEST_RUNS:
            return []
        return [
            token
            for token in np.argsort(-self.runs, kind="stable").tolist()
            if token != blank
            and token not in used
            and self.runs[token] >= FEWEST_TIMES
            and self.runs[token]
            >= count * (OFTEN_BETWEEN if called_separator(names[token]) else OFTEN)
        ]


def called_separator(name: str) -> bool:
    """Tell whether a token's name is one that separators or silence have."""
    return name.isspace() or name.lower().strip("<>[]") in _BETWEEN


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
    utterances, check = iter(logprobs), InputCheck(lambda: used)
    for _, (utterance, array) in zip(range(UTTERANCES), utterances, strict=False):
        if array.ndim == 2 and array.shape[1] == len(used.tokens):
            check.warn_of_kind(array)
            check.count(array)
        yield utterance, array
    check.warn_of_tokens()
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
        f"most, between all others, expected the reverse; --blank "
        f"{tokens.flag(other)}?"
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
        # What has no number is reported by the search.
        if not rows.max() < np.inf:
            return
        if (rows.any() and self.warn_of_kind(rows)) or self._counted >= UTTERANCES:
            return
        self.count(rows)
        if self._counted == UTTERANCES:
            self.warn_of_tokens()

    def warn_of_kind(self, rows: np.ndarray) -> bool:
        """Warn of rows [T, V] that are no log-probs; tell whether they are none."""
        kind = kind_of(rows)
        if kind in _WRONG:
            self._warn(kind.doubt)
        return kind in _WRONG

    def count(self, rows: np.ndarray) -> None:
        """Count tokens in the middle of rows [T, V]."""
        if not self._counted:
            self._output_tokens = self._outputs()
            self._counts = TokenCounts(len(self._output_tokens.tokens))
        middle = max(len(rows) - FRAMES, 0) // 2
        self._counts.add(rows[middle : middle + FRAMES])
        self._counted += 1

    def warn_of_tokens(self) -> None:
        """Warn of the blank and of unused tokens, by what was counted."""
        for doubt in doubts(self._counts, self._output_tokens) if self._counted else ():
            self._warn(doubt)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, LogprobWarning, stacklevel=levels_inside())


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
