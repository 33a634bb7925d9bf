"""Checks of a run's first utterances, with warnings if they are not log-probs.

Counts of the best token of each frame show a wrong blank, and tokens without words. A
run is a sequence of frames with the same best token. CTC's blank wins many frames, in
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

UTTERANCES = 6  # Utterances that are checked
EVERY = 32  # Batches of which one is checked, after the first
SESSION_FRAMES = 50  # Frames of a session that are checked
FRAMES = 200  # Frames of each, from its middle
BATCH_PAIRS = 512  # Pairs of neighbours that determine the axes of a batch
LEAST_SHARED, MORE_SHARED = 0.1, 1.5
"""Least share of neighbours in time, and its factor over that of utterances."""

FEWEST_FRAMES = 50  # Frames needed to judge the blank
RARER = 1 / 3  # A blank wins at least this many times the frames of any other token
BLANK_FRAMES, BLANK_RUNS = 0.35, 0.25
"""Shares of frames and of runs that only a blank has (on real speech: 0.70, 0.45)."""
FEWEST_RUNS, FEWEST_TIMES = 30, 5  # Runs needed in all, and of one token, to judge it
OFTEN = 0.12
"""Share of runs above which an unused token is reported; letters have up to 0.12."""
OFTEN_BETWEEN = 0.03  # The same for tokens named like separators (on real speech: 0.20)
_BETWEEN = frozenset("| ▁ _ wb space ws boundary sep sil silence sp pau".split())

_WRONG = frozenset(RowKind) - {RowKind.LOGPROBS}

Pairs = Iterable[tuple[str, np.ndarray]]


class TokenCounts:
    """Counts of the best tokens in frames of log-probs."""

    def __init__(self, num_tokens: int) -> None:
        # Frames that each token wins, and its runs.
        self.frames, self.runs = np.zeros((2, num_tokens), np.int64)

    def add(self, logprobs: np.ndarray) -> np.ndarray:
        """Count the frames of [T, V]; return the token of each run, int64."""
        if not len(logprobs):
            return np.zeros(0, np.int64)
        # NumPy's argmax of float16 is slow.
        best = logprobs.astype(np.float32, copy=False).argmax(axis=1)
        runs = best[np.flatnonzero(np.diff(best, prepend=-1))]
        self.frames += np.bincount(best, minlength=len(self.frames))
        self.runs += np.bincount(runs, minlength=len(self.runs))
        return runs

    @property
    def num_frames(self) -> int:
        """Number of counted frames."""
        return int(self.frames.sum())

    def frame_share(self, token: int) -> float:
        """Return the share of the frames that a token wins."""
        return float(self.frames[token] / max(self.num_frames, 1))

    def run_share(self, token: int, blank: int) -> float:
        """Return a token's share of all runs, without those of the blank."""
        return float(self.runs[token] / max(self.runs.sum() - self.runs[blank], 1))

    def likely_blank(self, blank: int, between: Collection[int] = ()) -> int | None:
        """Return a token that behaves as a blank; None if the blank may be right."""
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
        """Return frequent tokens that are in no word, the most frequent first."""
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
    """Return whether a token is named like a separator or silence."""
    return name.isspace() or name.lower().strip("<>[]") in _BETWEEN


@dataclass(frozen=True)
class OutputTokens:
    """Roles of tokens in a decoder's output."""

    tokens: TokenTable  # Token table
    between: tuple[int, ...] = ()  # Known tokens between words
    # Tokens of its words; None if any may be in a word
    words: frozenset[int] | None = None

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> OutputTokens:
        """Return the roles in a vocabulary; any without pronunciations."""
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
        """Return the roles if letters and digits spell words."""
        words = {
            token
            for token, name in enumerate(tokens.names)
            if not is_mark(name) and any(map(str.isalnum, name))
        }
        return cls(tokens, between, frozenset(words))


def checked(logprobs: Pairs, used: OutputTokens) -> Iterator[tuple[str, np.ndarray]]:
    """Yield utterances unchanged; warn if the first ones do not look like log-probs."""
    utterances, check = iter(logprobs), InputCheck(lambda: used)
    for _, (utterance, array) in zip(range(UTTERANCES), utterances, strict=False):
        if array.ndim == 2 and array.shape[1] == len(used.tokens):
            check.warn_of_kind(array)
            check.count(array)
        yield utterance, array
    check.warn_of_tokens()
    yield from utterances


def doubts(counts: TokenCounts, used: OutputTokens) -> list[str]:
    """Return warnings about the blank and unused tokens."""
    names, blank = used.tokens.names, used.tokens.blank
    other = counts.likely_blank(blank, used.between)
    if other is not None:
        return [blank_doubt(used.tokens, other)]
    if used.words is None:
        return []
    known = used.words.union(used.between)
    return [
        f"logprobs: the model often outputs {names[token]!r}, which no word has, "
        f"expected tokens of words, or between them; --separator {names[token]!r} "
        "of graph or decoder, or --silence?"
        for token in counts.unused_tokens(names, blank, known)[:1]
    ]


def blank_doubt(tokens: TokenTable, other: int) -> str:
    """Return a warning about the blank."""
    found = f"{tokens.names[tokens.blank]!r}, token {tokens.blank}"
    likely = f"{tokens.names[other]!r}, token {other}"
    return (
        f"logprobs: the blank ({found}) wins few frames while {likely}, wins "
        f"most, between all others, expected the reverse; --blank "
        f"{tokens.flag(other)}?"
    )


class InputCheck:
    """Sampler of a decoder's inputs that warns once of each problem."""

    # The first utterances get all tests of `checked`. Later, one utterance of every
    # `EVERY` batches, and the first frames of one of 8 sessions, are tested for
    # log-probs. Much less than 1 % of the time of decoding.

    def __init__(self, used: Callable[[], OutputTokens]) -> None:
        self._outputs, self._counts = used, TokenCounts(0)
        self._batches = self._counted = 0
        self._warned: set[str] = set()
        self.enabled = True

    def skip_first(self) -> None:
        """Leave the first utterances to `checked`."""
        self._counted, self._batches = UTTERANCES, 1

    def batch(self, given: Any, utterances: Sequence[Any], blank: int) -> None:
        """Check samples of a batch `given`, whose `utterances` are [T, V] each."""
        self._batches += 1
        first = self._batches == 1 or self._counted < UTTERANCES
        if not (first or self._batches % EVERY == 0):
            return
        if getattr(given, "ndim", 0) == 3 and _are_axes_swapped(utterances, blank):
            self._warn(
                f"logprobs: a batch {tuple(given.shape)} has time along its first "
                "axis, expected [B, T, V]; [T, B, V]? then swap the first two"
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
        # NaN is reported by the search.
        if not rows.max() < np.inf:
            return
        if (rows.any() and self.warn_of_kind(rows)) or self._counted >= UTTERANCES:
            return
        self.count(rows)
        if self._counted == UTTERANCES:
            self.warn_of_tokens()

    def warn_of_kind(self, rows: np.ndarray) -> bool:
        """Warn if rows [T, V] are not log-probs; return whether they are not."""
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
        """Warn of the blank and of unused tokens, by the counts."""
        for doubt in doubts(self._counts, self._output_tokens) if self._counted else ():
            self._warn(doubt)

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, LogprobWarning, stacklevel=levels_inside())


def _are_axes_swapped(utterances: Sequence[Any], blank: int) -> bool:
    """Return whether time runs along the first axis."""
    # Neighbours in time share much outside the blank; utterances share it by chance. On
    # real speech one axis shares 2.4 times as much as the other, or more.
    times, width = len(utterances), len(utterances[0]) if len(utterances) else 0
    if not (times > width and times >= FEWEST_ROWS and width > 0):
        return False  # more frames than utterances, as usual
    if not all(isinstance(x, np.ndarray) and len(x) == width for x in utterances):
        return False  # on a device; or with lengths, which fit the first axis
    along_first = _shared(utterances, blank, (1, 0))
    along_second = _shared(utterances, blank, (0, 1)) if width > 1 else 0.0
    return along_first > max(LEAST_SHARED, MORE_SHARED * along_second)


def _shared(
    utterances: Sequence[np.ndarray], blank: int, step: tuple[int, int]
) -> float:
    """Return the share outside the blank common to neighbours along an axis."""
    times, width = len(utterances) - step[0], len(utterances[0]) - step[1]
    count = min(BATCH_PAIRS, times * width)
    places = [divmod(k * times * width // count, width) for k in range(count)]
    here = np.exp(np.stack([utterances[i][j] for i, j in places]))
    there = np.exp(np.stack([utterances[i + step[0]][j + step[1]] for i, j in places]))
    here[:, blank] = 0
    return float(np.minimum(here, there).sum() / max(float(here.sum()), 1e-6))
