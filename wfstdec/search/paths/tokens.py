"""Paths of searches over tokens (trie, greedy, transducer), from every backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from wfstdec.text.tokens import token_of

NO_PRON = -1
"""In the place of a pronunciation: no word ends."""
OPEN_PRON = 1 << 30
"""In the place of a pronunciation: an open word ends."""
_NONE, _NO_LABELS = np.zeros((0, 4), np.int32), np.zeros(0, np.int32)
SPELLINGS_PER_TEXT = 8
"""Without a lexicon so many times `nbest` token sequences are handed over, since some
of them spell the same text: by other word pieces, or with one more separator."""


class TokenRows(NamedTuple):
    """Tokens with frames, and the pronunciations that end between them.

    Attributes:
        rows: int32 [N, 4], of each token, blanks left out: token, first frame, one
            behind the last frame, pronunciation that ended before it or -1: its number,
            behind those of the lexicon an added one or `OPEN_PRON`.
        last_pron: The pronunciation that ends with the last token, -1 for none.
    """

    rows: np.ndarray
    last_pron: int = NO_PRON

    @property
    def token(self) -> np.ndarray:
        """Tokens, int32 [N]."""
        return self.rows[:, 0]

    @property
    def start(self) -> np.ndarray:
        """First frames, int32 [N]."""
        return self.rows[:, 1]

    @property
    def end(self) -> np.ndarray:
        """Frames one behind the last, int32 [N]."""
        return self.rows[:, 2]


class TokenPath(NamedTuple):
    """An alignment and its reading as words.

    Attributes:
        rows, last_pron: As in `TokenRows`.
        acoustic: The unscaled acoustic cost; NaN where alignments were summed.
        search_cost: The total as the search added it up: float32 steps, float64 base.
        reached_final: Whether the tokens are whole words and the end was accepted.
        num_frames: Frames that the path covers.
        died_at_frame: The frame that no entry survived, or -1.
    """

    rows: np.ndarray
    last_pron: int
    acoustic: float
    search_cost: float
    reached_final: bool
    num_frames: int
    died_at_frame: int

    @property
    def tokens(self) -> TokenRows:
        """Tokens of the path and its pronunciations."""
        return TokenRows(self.rows, self.last_pron)

    @property
    def token(self) -> np.ndarray:
        """The tokens, int32 [N]."""
        return self.rows[:, 0]


def partial_tokens(
    rows: np.ndarray,
    num_settled: int,
    last_pron: int = NO_PRON,
    *,
    num_frames: int,
    final_cost: float,
) -> PartialPath[TokenRows]:
    """How far a search has come whose tokens are at hand."""
    return PartialPath(
        settled=SettledTokens(rows[:num_settled]),
        unsettled=lambda token, _: TokenRows(rows[token:], last_pron),
        num_frames=num_frames,
        final_cost=final_cost,
    )


class SettledTokens:
    """Tokens that can no longer change, in an array that grows.

    `rows`: int32 [N, 4], the first ones, as in `TokenRows`.

    Attributes:
        num_words: 0: words are read from tokens.
    """

    num_words = 0

    def __init__(self, rows: np.ndarray = _NONE) -> None:
        self._rows, self._count, self._num_whole = rows, len(rows), len(rows)

    def add(self, nodes: np.ndarray, end: int) -> None:
        """Add trace nodes, in order, and where the last token ends, -1 if not known."""
        first, self._count = self._count, self._count + len(nodes)
        if self._count > len(self._rows):
            longer = np.zeros((2 * self._count, 4), np.int32)
            longer[:first] = self._rows[:first]
            self._rows = longer
        new = self._rows[first : self._count]
        new[:, 0], new[:, 1] = nodes["token"], nodes["start"]
        new[:-1, 2], new[:, 3] = nodes["previous_end"][1:], nodes["pron"]
        # Where a token ends is known to the node after it.
        if first and len(nodes):
            self._rows[first - 1, 2] = nodes["previous_end"][0]
        self._num_whole = self._count
        if self._count and end >= 0:
            self._rows[self._count - 1, 2] = end
        # The last one may still go on: it is no whole token yet.
        elif self._count:
            self._num_whole -= 1

    def whole_since(self, token: int, word: int) -> TokenRows:
        """All but the first tokens, and no token whose end is in question."""
        return TokenRows(self._rows[token : self._num_whole].copy())

    def followed_by(self, rows: np.ndarray, end: int, since: int = 0) -> np.ndarray:
        """All tokens of a path but the first ones, int32 [N, 4]."""
        if self._count == 0:
            return rows
        if since >= self._count:
            return rows[since - self._count :]
        before = self._rows[since : self._count].copy()
        before[-1, 2] = end
        return np.concatenate([before, rows])


class PathTokens(NamedTuple):
    """The tokens of a path, blanks left out, and its word labels.

    Attributes:
        ilabel: int32 [N], of the tokens.
        start, end: int32 [N], first frame, one behind the last frame.
        word: int32 [W], word ids.
        word_token: int32 [W], how many tokens had begun when the label came.
        word_frame: int32 [W], how many frames had passed then.
        graph_cost, acoustic_cost: float64 sums over the arcs.
    """

    ilabel: np.ndarray
    start: np.ndarray
    end: np.ndarray
    word: np.ndarray
    word_token: np.ndarray
    word_frame: np.ndarray
    graph_cost: float
    acoustic_cost: float

    @property
    def token(self) -> np.ndarray:
        """Tokens, int32 [N]."""
        return token_of(self.ilabel)


class JoinedTokens(NamedTuple):
    """Tokens of P paths, one path after the other, as kernels take them."""

    token: np.ndarray  # int32 [N]
    start: np.ndarray  # int32 [N], first frame
    end: np.ndarray  # int32 [N], one behind the last frame
    label: np.ndarray  # int32 [W], word ids, or pronunciations
    label_token: np.ndarray  # int32 [W], tokens of its path that had begun before each
    label_frame: np.ndarray  # int32 [W], frames passed then; of word ids alone
    token_splits: np.ndarray  # int64 [P + 1], where each path begins
    label_splits: np.ndarray  # int64 [P + 1]


def joined(paths: Sequence[PathTokens | TokenRows]) -> JoinedTokens:
    """Join the tokens of paths of one search."""
    if paths and isinstance(paths[0], TokenRows):
        return _joined_rows(paths)
    columns = list(zip(*paths, strict=True)) or [()] * len(PathTokens._fields)
    ilabel, *others = [np.concatenate((_NO_LABELS, *one)) for one in columns[:6]]
    splits = [np.cumsum([0, *map(len, columns[at])]) for at in (0, 3)]
    return JoinedTokens(token_of(ilabel), *others, *splits)


def _joined_rows(paths: Sequence[Any]) -> JoinedTokens:
    splits = np.cumsum([0, *(len(one.rows) for one in paths)])
    token, start, end, pron = np.concatenate([one.rows for one in paths]).T.copy()
    # A pronunciation stands with the token that it ends before: the last one of a
    # path takes the place of what ended before the next path's first token.
    at = np.append(pron, np.int32(NO_PRON))
    at[splits[:-1]] = NO_PRON
    for one, behind in zip(paths, splits[1:].tolist(), strict=True):
        if len(one.rows):
            at[behind] = one.last_pron
    ends = np.flatnonzero(at >= 0)
    label_splits = np.searchsorted(ends, splits, side="right")
    first = np.repeat(splits[:-1], np.diff(label_splits))
    before = (ends - first).astype(np.int32)
    labels = at[ends], before, before
    return JoinedTokens(token, start, end, *labels, splits, label_splits)


class BestPath(NamedTuple):
    """The least-cost path of one utterance; the same from every backend.

    Attributes:
        tokens: Its tokens and words.
        final_cost: Unscaled final cost, 0.0 where the path ends in no final state.
        search_cost: The total as the search added it up: float32 steps, float64 base.
        reached_final: Whether the path ends in a final state.
        num_frames: Frames that the path covers.
        died_at_frame: The frame that nothing survived, or -1.
    """

    tokens: PathTokens
    final_cost: float
    search_cost: float
    reached_final: bool
    num_frames: int
    died_at_frame: int


_Said = TypeVar("_Said")
_Said_co = TypeVar("_Said_co", covariant=True)


class Settled(Protocol[_Said_co]):
    """Tokens and words that all paths of a search have in common."""

    @property
    def num_words(self) -> int:
        """Count the words, also those whose times are not settled.

        0 where nothing but tokens tells words.
        """

    def whole_since(self, token: int, word: int) -> _Said_co:
        """All but the first tokens and words, and no token whose end is in question.

        Costs are not known.
        """


class PartialPath(NamedTuple, Generic[_Said]):
    """How far the best path of a search has come.

    Attributes:
        settled: What it has in common with all others.
        unsettled: Given how many tokens and words to leave out at the beginning,
            settled ones: the others.
        num_frames: Frames decoded.
        final_cost: What ending here costs more than the best path, nats, scaled; `inf`
            where no path can end.
    """

    settled: Settled[_Said]
    unsettled: Callable[[int, int], _Said]
    num_frames: int
    final_cost: float
