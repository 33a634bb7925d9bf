"""Ways to cut the tokens of a path into words, for every search but the WFST's.

    cut = BareTokens(tokens, separator)              # by the names of the tokens
    cut = PronouncedWords(vocabulary, prons)         # by the pronunciations of the path
    words = cut.words(path.said)
    timed(words, frame_shift_s)

The WFST's is `word_cut.Aligner`, which has the same methods: `Cutter`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from wfstdec.search.hypothesis import SECONDS_DIGITS, Word
from wfstdec.search.paths.label_path import PathTokens
from wfstdec.search.paths.token_path import NO_PRON, OPEN_PRON, TokenRows
from wfstdec.text.lexicon import WORD_START
from wfstdec.text.loading import word_ids
from wfstdec.text.symbols import EPSILON, TokenTable
from wfstdec.text.vocabulary import OovWords, Vocabulary

_Said_contra = TypeVar("_Said_contra", contravariant=True)


class Cut(NamedTuple):
    """The place where a path was cut last, for the words that come after.

    Attributes:
        tokens: Tokens before the cut.
        words: Words before it.
        cost: Of the pronunciations before it, nats.
        lost: Whether the last word's tokens were not found: the next one may then
            begin behind tokens that are no fillers.
    """

    tokens: int = 0
    words: int = 0
    cost: float = 0.0
    lost: bool = False


BEGINNING = Cut()


class Words(NamedTuple):
    """Texts and frames of words.

    Attributes:
        texts: W texts.
        frames: int32 [W, 2], the first frame of each, one behind the last.
    """

    texts: list[str]
    frames: np.ndarray


class Counted(NamedTuple):
    """Words of a path that its account counts.

    Attributes:
        words: Their ids; 0 of open words that have none.
        pron_cost: The cost of their pronunciations, unscaled, where these are no part
            of the path's own.
    """

    words: list[int]
    pron_cost: float = 0.0


class WordsOfAll(NamedTuple):
    """Words of several paths, one after the other.

    Attributes:
        words: Of all of them.
        splits: B + 1 positions, where those of each path begin.
        counted: Of each path.
    """

    words: Words
    splits: list[int]
    counted: list[Counted]


class Cutter(Protocol[_Said_contra]):
    """A way to cut what a path says into words."""

    def words_of_all(
        self, said: Sequence[_Said_contra], complete: Sequence[bool]
    ) -> WordsOfAll:
        """Cut whole paths.

        Args:
            said: Of each path.
            complete: Whether the last word of each must be whole.
        """

    def words(self, said: _Said_contra, cut: Cut) -> Words:
        """Cut the rest of a path, whose last word may be only begun."""

    def settled_words(self, said: _Said_contra, cut: Cut) -> tuple[Words, Cut]:
        """Cut settled tokens into those words that no further token changes.

        Returns:
            The words, and the cut behind them.
        """

    def are_spoken(self, said: _Said_contra) -> np.ndarray:
        """Tell tokens of words from those that stand between words, bool [N]."""


Timed = TokenRows | PathTokens
"""Tokens with their frames."""
Span = tuple[int, int]
"""The positions of a word's tokens: first, and one behind the last."""


class Spans(NamedTuple):
    """Words of some tokens, by the positions of these.

    Attributes:
        texts: Of each; empty ones are no words for the user.
        spans: The tokens of each.
        last_is_over: Whether no further token can belong to the last one.
        counted: Those that the account counts.
    """

    texts: list[str]
    spans: list[Span]
    last_is_over: bool = True
    counted: Counted = Counted([])


class SpanCutter(ABC):
    """A `Cutter` that finds the words of any tokens by the positions of these."""

    _fillers: tuple[int, ...]
    """Tokens that stand between words."""

    @abstractmethod
    def spans(self, said: Any) -> Spans:
        """Find the words of some tokens."""

    def are_spoken(self, said: Any) -> np.ndarray:
        """Implement `Cutter.are_spoken`."""
        return ~np.isin(said.token, np.array(self._fillers, np.int32))

    def with_added(self, added: OovWords | None) -> Self:
        """Return itself, or a copy that knows the added words of an utterance."""
        return self

    def words(self, said: Any, cut: Cut = BEGINNING) -> Words:
        """Implement `Cutter.words`."""
        found = self.spans(said)
        return _framed(found.texts, found.spans, said)

    def settled_words(self, said: Any, cut: Cut) -> tuple[Words, Cut]:
        """Implement `Cutter.settled_words`; tokens behind a word are taken with it."""
        texts, spans, is_over, _ = self.spans(said)
        if not is_over:
            texts, spans = texts[:-1], spans[:-1]
        taken = self._taken(spans, len(said.token), is_over)
        words = _framed(texts, spans, said)
        behind = cut.tokens + taken, cut.words + len(words.texts)
        return words, cut._replace(tokens=behind[0], words=behind[1])

    def words_of_all(self, said: Sequence[Any], complete: Sequence[bool]) -> WordsOfAll:
        """Implement `Cutter.words_of_all`."""
        texts: list[str] = []
        frames, splits, counted = [_NO_FRAMES], [0], []
        for one in said:
            found = self.spans(one)
            words = _framed(found.texts, found.spans, one)
            texts += words.texts
            frames.append(words.frames)
            splits.append(len(texts))
            counted.append(found.counted)
        return WordsOfAll(Words(texts, np.concatenate(frames)), splits, counted)

    def _taken(self, spans: list[Span], num_tokens: int, is_over: bool) -> int:
        """Count the tokens that settled words have used up."""
        return spans[-1][1] if spans else 0


class BareTokens(SpanCutter):
    """Cuts paths of bare tokens: at separators, or before a piece with a mark.

    Args:
        tokens: The token table.
        separator: The token between words, or None.
    """

    def __init__(self, tokens: TokenTable, separator: int | None) -> None:
        self._names, self._separator = tokens.names, separator
        self._fillers = () if separator is None else (separator,)
        self._is_piece = any(name.startswith(WORD_START) for name in tokens.names)

    def spans(self, said: Timed) -> Spans:
        """Find the words of some tokens; a mark alone has an empty text."""
        texts: list[str] = []
        spans: list[Span] = []
        new_word = True
        by_mark = self._separator is None and self._is_piece
        for i, token in enumerate(said.token.tolist()):
            if token == self._separator:
                new_word = True
                continue
            name = self._names[token]
            if new_word or (by_mark and name.startswith(WORD_START)):
                texts.append("")
                spans.append((i, i))
            texts[-1] += name.removeprefix(WORD_START) if by_mark else name
            spans[-1] = (spans[-1][0], i + 1)
            new_word = self._separator is None and not self._is_piece
        return Spans(texts, spans, new_word)

    def _taken(self, spans: list[Span], num_tokens: int, is_over: bool) -> int:
        """Separators behind a word that is over are taken with it."""
        return num_tokens if is_over else super()._taken(spans, num_tokens, is_over)


class Prons(NamedTuple):
    """Pronunciations by the numbers that paths carry.

    Attributes:
        word: int32 [P], the word of each.
        length: int32 [P], its tokens.
        cost: float32 [P], nats.
    """

    word: np.ndarray
    length: np.ndarray
    cost: np.ndarray


class PronouncedWords(SpanCutter):
    """Cuts paths that carry the pronunciations of their words.

    Args:
        vocabulary: Words by the ids that pronunciations have, how open words are
            spelled, and the token between words, if any, as the only filler.
        prons: Those of the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary, prons: Prons) -> None:
        self._words, self._prons = vocabulary.words, prons
        self._fillers = vocabulary.separators
        self._open, self._spelling = vocabulary.open_word, vocabulary.open_spelling
        self._added: OovWords | None = None
        self._word_ids: dict[str, int] = {}  # of open words that are of the table
        if self._open is not None and self._open.kind != "phones":
            self._word_ids = word_ids(self._words[: self._open.word])

    def with_added(self, added: OovWords | None) -> Self:
        """Add words; numbers of their pronunciations follow those of the vocabulary."""
        if added is None:
            return self
        other = copy.copy(self)
        other._added = added
        return other

    def spans(self, said: TokenRows) -> Spans:
        """Find the words whose pronunciations end within some tokens."""
        rows = said.rows
        ends = 1 + np.flatnonzero(rows[1:, 3] >= 0)  # at 0 the word is before them
        prons = rows[ends, 3]
        if said.last_pron >= 0:
            prons = np.append(prons, said.last_pron)
            ends = np.append(ends, len(rows))
        known = self._prons
        if (prons >= len(known.word)).any():
            return self._spans_beside(rows[:, 0].tolist(), prons, ends)
        words = known.word[prons].tolist()
        begins = (ends - known.length[prons]).tolist()
        return Spans(
            texts=[self._words[word] for word in words],
            spans=list(zip(begins, ends.tolist(), strict=True)),
            counted=Counted(words, float(known.cost[prons].sum(dtype=np.float64))),
        )

    def words_of_all(
        self, said: Sequence[TokenRows], complete: Sequence[bool]
    ) -> WordsOfAll:
        """Implement `Cutter.words_of_all`: of all paths in one go."""
        known, first = self._prons, np.zeros(len(said) + 1, np.int64)
        np.cumsum([len(one.rows) for one in said], out=first[1:])
        rows = np.concatenate([_NO_ROWS, *(one.rows for one in said)])
        # A pronunciation stands with the token that it ends before: the last one of a
        # path takes the place of what ended before the next path's first token.
        at = np.append(rows[:, 3], np.int32(NO_PRON))
        at[first[:-1]] = NO_PRON
        for one, behind in zip(said, first[1:].tolist(), strict=True):
            if len(one.rows):
                at[behind] = one.last_pron
        ends = np.flatnonzero(at >= 0)
        prons = at[ends]
        if (prons >= len(known.word)).any():  # added or open words
            return super().words_of_all(said, complete)
        words, costs = known.word[prons].tolist(), known.cost[prons]
        texts = [self._words[word] for word in words]
        if not all(texts):
            return super().words_of_all(said, complete)
        frames = np.empty((len(ends), 2), np.int32)
        frames[:, 0] = rows[ends - known.length[prons], 1]
        frames[:, 1] = rows[ends - 1, 2]
        splits = np.searchsorted(ends, first, side="right").tolist()
        counted = [
            Counted(words[a:b], float(costs[a:b].sum(dtype=np.float64)))
            for a, b in zip(splits[:-1], splits[1:], strict=True)
        ]
        return WordsOfAll(Words(texts, frames), splits, counted)

    def _spans_beside(
        self, tokens: list[int], prons: np.ndarray, ends: np.ndarray
    ) -> Spans:
        """Find the words where some of them are added or open ones."""
        known, added, opened = self._prons, self._added, self._open
        found, words, end, total = Spans([], []), [], 0, 0.0
        for pron, stop in zip(prons.tolist(), ends.tolist(), strict=True):
            if pron < len(known.word):
                word = int(known.word[pron])
                begin, text = stop - int(known.length[pron]), self._words[word]
                total += float(known.cost[pron])
            elif pron != OPEN_PRON:
                assert added is not None
                number = pron - len(known.word)
                word = int(added.word[number])
                begin = stop - int(added.splits[number + 1] - added.splits[number])
                new = word - added.num_known
                text = added.words[new] if new >= 0 else self._words[word]
            else:
                assert opened is not None and self._spelling is not None
                begin = end
                while tokens[begin] in self._fillers:
                    begin += 1
                text = self._spelling.text(tokens[begin:stop])
                word = self._word_ids.get(text, EPSILON)
                if word == EPSILON:
                    # In float32, and so what is added from there on: the search has
                    # the cost of a word as float32.
                    word_cost = np.float32(opened.word_cost or 0)
                    total += word_cost + (stop - begin) * opened.token_cost
            end = stop
            found.texts.append(text)
            found.spans.append((begin, stop))
            words.append(word)
        return found._replace(counted=Counted(words, float(total)))


def timed(words: Words, shift: float) -> list[Word]:
    """Words with their times; `shift` is in seconds per frame."""
    times = np.round(words.frames * shift, SECONDS_DIGITS).T.tolist()
    return list(map(Word, words.texts, *times, *words.frames.T.tolist()))


def _framed(texts: Sequence[str], spans: Sequence[Span], said: Timed) -> Words:
    """Words with their frames, those of empty texts left out."""
    found = [(text, span) for text, span in zip(texts, spans, strict=True) if text]
    frames = np.zeros((len(found), 2), np.int32)
    if found:
        first, stop = np.array([span for _, span in found]).T
        frames[:, 0], frames[:, 1] = said.start[first], said.end[stop - 1]
    return Words([text for text, _ in found], frames)


_NO_FRAMES, _NO_ROWS = np.zeros((0, 2), np.int32), np.zeros((0, 4), np.int32)
