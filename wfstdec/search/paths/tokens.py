"""Paths of searches: on the arcs of a graph (WFST), or of tokens (all others)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from wfstdec.text.tokens import token_of

NO_PRON, OPEN_PRON = -1, 1 << 30
"""In the place of a pronunciation: no word ends; an open word ends."""
SPELLINGS_PER_TEXT = 8
"""Token sequences per text of an n-best list without a lexicon: some of them spell the
same text, by other word pieces or with one more separator."""
_NONE, _NO_LABELS = np.zeros((0, 4), np.int32), np.zeros(0, np.int32)


class TokenRows(NamedTuple):
    """Tokens with frames, and the pronunciations that end between them."""

    # int32 [N, 4], of each token, blanks left out: token, first frame, one behind the
    # last frame, pronunciation that ended before it or -1: its number, those of OOV
    # words behind those of the lexicon, or `OPEN_PRON`.
    rows: np.ndarray
    last_pron: int = NO_PRON  # the one that ends with the last token

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
    """An alignment and its reading as words."""

    rows: np.ndarray  # as in `TokenRows`
    last_pron: int
    acoustic: float  # the unscaled acoustic cost; NaN where alignments were summed
    search_cost: float  # the total of the search: float32 steps, float64 base
    reached_final: bool  # whether the tokens are whole words and the end was accepted
    num_frames: int
    died_at_frame: int  # the frame that no entry survived, or -1

    @property
    def tokens(self) -> TokenRows:
        """Tokens of the path and its pronunciations."""
        return TokenRows(self.rows, self.last_pron)


class PathTokens(NamedTuple):
    """The tokens of a path, blanks left out, and its word labels."""

    ilabel: np.ndarray  # int32 [N], of the tokens
    start: np.ndarray  # int32 [N], first frame
    end: np.ndarray  # int32 [N], one behind the last frame
    word: np.ndarray  # int32 [W], word ids
    word_token: np.ndarray  # int32 [W], tokens that had begun when the label came
    word_frame: np.ndarray  # int32 [W], frames that had passed then
    graph_cost: float  # float64 sums over the arcs
    acoustic_cost: float

    @property
    def token(self) -> np.ndarray:
        """Tokens, int32 [N]."""
        return token_of(self.ilabel)


class BestPath(NamedTuple):
    """The least-cost path of one utterance; the same from every backend."""

    tokens: PathTokens
    final_cost: float  # unscaled, 0.0 where the path ends in no final state
    search_cost: float  # the total of the search: float32 steps, float64 base
    reached_final: bool
    num_frames: int
    died_at_frame: int  # the frame that nothing survived, or -1


class JoinedTokens(NamedTuple):
    """Tokens of P paths, one path after the other, as kernels take them."""

    token: np.ndarray  # int32 [N]
    start: np.ndarray  # int32 [N]
    end: np.ndarray  # int32 [N]
    label: np.ndarray  # int32 [W], word ids, or pronunciations
    label_token: np.ndarray  # int32 [W], tokens of its path that had begun before each
    label_frame: np.ndarray  # int32 [W], frames passed then; of word ids alone
    token_splits: np.ndarray  # int64 [P + 1], where each path begins
    label_splits: np.ndarray  # int64 [P + 1]


def joined(paths: Sequence[PathTokens | TokenRows]) -> JoinedTokens:
    """Join the tokens of paths of one search."""
    if paths and isinstance(paths[0], TokenRows):
        return _joined_rows(paths)
    if len(paths) == 1:  # as of a partial result
        one: Any = paths[0]
        splits = [np.array([0, len(column)]) for column in (one.start, one.word)]
        return JoinedTokens(one.token, *one[1:6], *splits)
    columns = list(zip(*paths, strict=True)) or [()] * len(PathTokens._fields)
    ilabel, *others = [np.concatenate((_NO_LABELS, *one)) for one in columns[:6]]
    splits = [np.cumsum([0, *map(len, columns[at])]) for at in (0, 3)]
    return JoinedTokens(token_of(ilabel), *others, *splits)


def _joined_rows(paths: Sequence[Any]) -> JoinedTokens:
    if len(paths) == 1:
        rows, last_pron = paths[0]
        token, start, end, pron = rows.T.copy()
        ends = np.flatnonzero(pron[1:] >= 0) + 1
        label = pron[ends]
        if last_pron >= 0 and len(rows):
            label = np.append(label, np.int32(last_pron))
            ends = np.append(ends, len(rows))
        before, splits = (
            ends.astype(np.int32),
            np.array([[0, len(rows)], [0, len(ends)]]),
        )
        return JoinedTokens(token, start, end, label, before, before, *splits)
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


_Tokens = TypeVar("_Tokens")
_Tokens_co = TypeVar("_Tokens_co", covariant=True)


class Settled(Protocol[_Tokens_co]):
    """Tokens and words that all paths of a search have in common."""

    @property
    def num_words(self) -> int:
        """Words, also those whose times are not settled; 0 of searches of tokens."""

    def whole_since(self, token: int, word: int) -> _Tokens_co:
        """Skip the first tokens and words, and a token whose end is not settled."""


class PartialPath(NamedTuple, Generic[_Tokens]):
    """How far the best path of a search has come."""

    settled: Settled[_Tokens]  # its beginning, in common with all others
    # Given how many settled tokens and words to skip: the others
    unsettled: Callable[[int, int], _Tokens]
    num_frames: int
    # Of ending here, over that of the best path, nats, scaled; inf where none can end
    final_cost: float


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
    """Tokens that can no longer change, in an array that grows; see `Settled`."""

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
        # The end of a token is in the node after it.
        new[:-1, 2], new[:, 3] = nodes["previous_end"][1:], nodes["pron"]
        if first and len(nodes):
            self._rows[first - 1, 2] = nodes["previous_end"][0]
        self._num_whole = self._count
        if self._count and end >= 0:
            self._rows[self._count - 1, 2] = end
        elif self._count:  # the last token may continue
            self._num_whole -= 1

    def whole_since(self, token: int, word: int) -> TokenRows:
        """Implement `Settled.whole_since`."""
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
