"""Ways to cut the tokens of a path into words, for every search but the WFST's.

    cut = TokenCutter(tokens, separator)             # by the names of the tokens
    cut = PronouncedWords(vocabulary, prons)         # by the pronunciations of the path
    words = cut.words(path.tokens)
    timed(words, frame_shift_s)

The WFST's is `word_cut.Aligner`, which has the same methods: `Cutter`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from wfstdec.jit import jit
from wfstdec.jit.arrays import copy_columns, longer, twice
from wfstdec.jit.records import WeakCache
from wfstdec.search.hypothesis import SECONDS_DIGITS, Word
from wfstdec.search.paths.tokens import (
    NO_PRON,
    OPEN_PRON,
    JoinedPaths,
    PathTokens,
    TokenRows,
    join_paths,
)
from wfstdec.text.lexicon import WORD_START
from wfstdec.text.loading import word_ids
from wfstdec.text.tokens import EPSILON, TokenTable
from wfstdec.text.vocabulary import OovWords, Vocabulary

_Said_contra = TypeVar("_Said_contra", contravariant=True)


class CutPoint(NamedTuple):
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


BEGINNING = CutPoint()


class Words(NamedTuple):
    """Texts and frames of words.

    Attributes:
        texts: W texts.
        frames: int32 [W, 2], the first frame of each, one behind the last.
    """

    texts: list[str]
    frames: np.ndarray


class CountedWords(NamedTuple):
    """Words of a path that its account counts.

    Attributes:
        words: Their ids; 0 of open words that have none.
        pron_cost: The cost of their pronunciations, unscaled, where these are no part
            of the path's own.
    """

    words: list[int]
    pron_cost: float = 0.0


class WordsOfPaths(NamedTuple):
    """Words of several paths, one after the other.

    Attributes:
        words: Of all of them.
        splits: B + 1 positions, where those of each path begin.
        counted: Of each path.
    """

    words: Words
    splits: list[int]
    counted: list[CountedWords]


class Cutter(Protocol[_Said_contra]):
    """A way to cut what a path says into words."""

    def words_of_all(
        self, path: Sequence[_Said_contra], complete: Sequence[bool]
    ) -> WordsOfPaths:
        """Cut whole paths."""

    def words(self, path: _Said_contra, cut: CutPoint) -> Words:
        """Cut the rest of a path, whose last word may be only begun."""

    def settled_words(
        self, path: _Said_contra, cut: CutPoint
    ) -> tuple[Words, CutPoint]:
        """Cut settled tokens into those words that no further token changes."""

    def are_spoken(self, path: _Said_contra) -> np.ndarray:
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
    counted: CountedWords = CountedWords([])


class SpanCutter(ABC):
    """A `Cutter` that finds the words of any tokens by the positions of these."""

    _fillers: tuple[int, ...]
    """Tokens that stand between words."""

    @abstractmethod
    def spans(self, path: Any) -> Spans:
        """Find the words of some tokens."""

    def are_spoken(self, path: Any) -> np.ndarray:
        """Implement `Cutter.are_spoken`."""
        return ~np.isin(path.token, np.array(self._fillers, np.int32))

    def with_oov(self, oov: OovWords | None) -> Self:
        """Return itself, or a copy that knows the added words of an utterance."""
        return self

    def words(self, path: Any, cut: CutPoint = BEGINNING) -> Words:
        """Implement `Cutter.words`."""
        found = self.spans(path)
        return _framed(found.texts, found.spans, path)

    def settled_words(self, path: Any, cut: CutPoint) -> tuple[Words, CutPoint]:
        """Implement `Cutter.settled_words`; tokens behind a word are taken with it."""
        texts, spans, is_over, _ = self.spans(path)
        if not is_over:
            texts, spans = texts[:-1], spans[:-1]
        taken = self._taken(spans, len(path.token), is_over)
        words = _framed(texts, spans, path)
        behind = cut.tokens + taken, cut.words + len(words.texts)
        return words, cut._replace(tokens=behind[0], words=behind[1])

    def words_of_all(
        self, path: Sequence[Any], complete: Sequence[bool]
    ) -> WordsOfPaths:
        """Implement `Cutter.words_of_all`."""
        texts: list[str] = []
        frames, splits, counted = [_NO_FRAMES], [0], []
        for one in path:
            found = self.spans(one)
            words = _framed(found.texts, found.spans, one)
            texts += words.texts
            frames.append(words.frames)
            splits.append(len(texts))
            counted.append(found.counted)
        return WordsOfPaths(Words(texts, np.concatenate(frames)), splits, counted)

    def _taken(self, spans: list[Span], num_tokens: int, is_over: bool) -> int:
        """Count the tokens that settled words have used up."""
        return spans[-1][1] if spans else 0


class TokenCutter(SpanCutter):
    """Cuts paths of bare tokens: at separators, or before a piece with a mark.

    `separator`: the token between words, or None.
    """

    def __init__(self, tokens: TokenTable, separator: int | None) -> None:
        self._names, self._separator = tokens.names, separator
        self._fillers = () if separator is None else (separator,)
        self._is_piece = any(name.startswith(WORD_START) for name in tokens.names)

    def spans(self, path: Timed) -> Spans:
        """Find the words of some tokens; a mark alone has an empty text."""
        texts: list[str] = []
        spans: list[Span] = []
        new_word = True
        by_mark = self._separator is None and self._is_piece
        for i, token in enumerate(path.token.tolist()):
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
    """Cuts paths that carry the pronunciations of their words."""

    def __init__(self, vocabulary: Vocabulary, prons: Prons) -> None:
        self._words, self._prons = vocabulary.words, prons
        self._fillers = vocabulary.separators
        self._open, self._spelling = vocabulary.open_word, vocabulary.open_spelling
        self._oov: OovWords | None = None
        self._word_ids: dict[str, int] = {}  # of open words that are of the table
        if self._open is not None and self._open.kind != "phones":
            self._word_ids = word_ids(self._words[: self._open.word])

    def with_oov(self, oov: OovWords | None) -> Self:
        """Add words; numbers of their pronunciations follow those of the vocabulary."""
        if oov is None:
            return self
        other = copy.copy(self)
        other._oov = oov
        return other

    def spans(self, path: TokenRows) -> Spans:
        """Find the words whose pronunciations end within some tokens."""
        rows = path.rows
        ends = 1 + np.flatnonzero(rows[1:, 3] >= 0)  # at 0 the word is before them
        prons = rows[ends, 3]
        if path.last_pron >= 0:
            prons = np.append(prons, path.last_pron)
            ends = np.append(ends, len(rows))
        known = self._prons
        if (prons >= len(known.word)).any():
            return self._spans_beside(rows[:, 0].tolist(), prons, ends)
        words = known.word[prons].tolist()
        begins = (ends - known.length[prons]).tolist()
        return Spans(
            texts=[self._words[word] for word in words],
            spans=list(zip(begins, ends.tolist(), strict=True)),
            counted=CountedWords(words, float(known.cost[prons].sum(dtype=np.float64))),
        )

    def words_of_all(
        self, path: Sequence[TokenRows], complete: Sequence[bool]
    ) -> WordsOfPaths:
        """Implement `Cutter.words_of_all`: of all paths in one go."""
        known, first = self._prons, np.zeros(len(path) + 1, np.int64)
        np.cumsum([len(one.rows) for one in path], out=first[1:])
        rows = np.concatenate([_NO_ROWS, *(one.rows for one in path)])
        # A pronunciation stands with the token that it ends before: the last one of a
        # path takes the place of what ended before the next path's first token.
        at = np.append(rows[:, 3], np.int32(NO_PRON))
        at[first[:-1]] = NO_PRON
        for one, behind in zip(path, first[1:].tolist(), strict=True):
            if len(one.rows):
                at[behind] = one.last_pron
        ends = np.flatnonzero(at >= 0)
        prons = at[ends]
        if (prons >= len(known.word)).any():  # added or open words
            return super().words_of_all(path, complete)
        words, costs = known.word[prons].tolist(), known.cost[prons]
        texts = [self._words[word] for word in words]
        if not all(texts):
            return super().words_of_all(path, complete)
        frames = np.empty((len(ends), 2), np.int32)
        frames[:, 0] = rows[ends - known.length[prons], 1]
        frames[:, 1] = rows[ends - 1, 2]
        splits = np.searchsorted(ends, first, side="right").tolist()
        counted = [
            CountedWords(words[a:b], float(costs[a:b].sum(dtype=np.float64)))
            for a, b in zip(splits[:-1], splits[1:], strict=True)
        ]
        return WordsOfPaths(Words(texts, frames), splits, counted)

    def _spans_beside(
        self, tokens: list[int], prons: np.ndarray, ends: np.ndarray
    ) -> Spans:
        """Find the words where some of them are added or open ones."""
        known, oov, opened = self._prons, self._oov, self._open
        found, words, end, total = Spans([], []), [], 0, 0.0
        for pron, stop in zip(prons.tolist(), ends.tolist(), strict=True):
            if pron < len(known.word):
                word = int(known.word[pron])
                begin, text = stop - int(known.length[pron]), self._words[word]
                total += float(known.cost[pron])
            elif pron != OPEN_PRON:
                assert oov is not None
                number = pron - len(known.word)
                word = int(oov.word[number])
                begin = stop - int(oov.splits[number + 1] - oov.splits[number])
                new = word - oov.num_known
                text = oov.words[new] if new >= 0 else self._words[word]
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
        return found._replace(counted=CountedWords(words, float(total)))


def timed(words: Words, shift: float) -> list[Word]:
    """Words with their times; `shift` is in seconds per frame."""
    times = np.round(words.frames * shift, SECONDS_DIGITS).T.tolist()
    return list(map(Word, words.texts, *times, *words.frames.T.tolist()))


def _framed(texts: Sequence[str], spans: Sequence[Span], path: Timed) -> Words:
    """Words with their frames, those of empty texts left out."""
    found = [(text, span) for text, span in zip(texts, spans, strict=True) if text]
    frames = np.zeros((len(found), 2), np.int32)
    if found:
        first, stop = np.array([span for _, span in found]).T
        frames[:, 0], frames[:, 1] = path.start[first], path.end[stop - 1]
    return Words([text for text, _ in found], frames)


_NO_FRAMES, _NO_ROWS = np.zeros((0, 2), np.int32), np.zeros((0, 4), np.int32)


class Spoken(NamedTuple):
    """How words are said, as the kernels take it."""

    word_splits: np.ndarray  # int32 [words + 1], the pronunciations of each word
    splits: np.ndarray  # int32 [P + 1]
    tokens: np.ndarray  # int32
    cost: np.ndarray  # float32 [P]
    filler: np.ndarray  # bool [V], tokens that may stand between words
    open_word: int  # the word id of open words, -1 for none
    token_cost: float  # of open words
    begins: np.ndarray  # bool [V], tokens that may begin an open word
    extends: np.ndarray  # bool [V], tokens that may follow inside one


class Aligner:
    """Cuts the paths of one graph into words.

    Where the graph has no pronunciations (it came from elsewhere), a word spans the
    tokens between the label before and its own.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        prons, opened = vocabulary.pronunciations, vocabulary.open_word
        self._words, self._spelling = vocabulary.words, vocabulary.open_spelling
        filler, none = np.zeros((2, len(vocabulary.tokens)), np.bool_)
        filler[list(vocabulary.separators)] = True
        spelling = self._spelling
        self._spoken = Spoken(
            *(prons.word_splits, prons.splits, prons.tokens, prons.cost, filler),
            *((opened.word, opened.token_cost) if opened else (-1, 0.0)),
            *((spelling.begins, spelling.extends) if spelling else (none, none)),
        )

    def are_spoken(self, path: PathTokens) -> np.ndarray:
        """Implement `Cutter.are_spoken`."""
        return ~self._spoken.filler[path.token]

    def words(
        self, path: PathTokens, cut: CutPoint = BEGINNING, *, complete: bool = False
    ) -> Words:
        """Implement `Cutter.words`; `complete`: whether the last word must be whole."""
        words, _ = self._cut(path, cut, complete, goes_on=False)
        return words

    def settled_words(self, path: PathTokens, cut: CutPoint) -> tuple[Words, CutPoint]:
        """Implement `Cutter.settled_words`.

        A token whose end is not settled must not be among those that are said.
        """
        return self._cut(path, cut, complete=False, goes_on=True)

    def words_of_all(
        self, path: Sequence[PathTokens], complete: Sequence[bool]
    ) -> WordsOfPaths:
        """Implement `Cutter.words_of_all`, in a few calls for all paths."""
        joined = join_paths(path)
        paths, *at = joined
        whole = np.array(complete, np.bool_)
        frames = _frames_of_all(self._spoken, paths.token, *paths[1:6], *at, whole)
        words, splits = paths.word.tolist(), joined.word_splits.tolist()
        counted = [CountedWords(words[a:b]) for a, b in pairwise(splits)]
        return WordsOfPaths(Words(self._texts(joined, frames), frames), splits, counted)

    def _cut(
        self, path: PathTokens, cut: CutPoint, complete: bool, *, goes_on: bool
    ) -> tuple[Words, CutPoint]:
        """Cut a path, where it goes on into words that no further token changes."""
        how = complete, goes_on, cut.cost, cut.lost
        spans, count, cost, lost = _spans(
            self._spoken, path.token, path.word, path.word_token, how
        )
        frames = _frames_of(spans[:count], path.start, path.end, path.word_frame)
        splits = np.array([0, len(path.ilabel)]), np.array([0, count])
        words = Words(self._texts(JoinedPaths(path, *splits), frames), frames)
        if not count:
            return words, cut
        taken = cut.tokens + int(spans[count - 1, 1])
        return words, CutPoint(taken, cut.words + count, cost, lost)

    def _texts(self, joined: JoinedPaths, frames: np.ndarray) -> list[str]:
        """The texts of the words of paths; of open ones by their tokens.

        `frames`: int32 [W, 2], of their first words.
        """
        path, token_splits, word_splits = joined
        word = path.word[: len(frames)]
        texts = list(map(self._words.__getitem__, word.tolist()))
        if self._spelling is None:
            return texts
        for w in np.flatnonzero(word == self._spoken.open_word).tolist():
            i = int(np.searchsorted(word_splits, w, "right")) - 1
            first, end = token_splits[i : i + 2].tolist()
            begin, stop = first + np.searchsorted(path.start[first:end], frames[w])
            texts[w] = self._spelling.text(path.token[begin:stop].tolist())
        return texts


_ALIGNERS: WeakCache[Vocabulary, Aligner] = WeakCache(Aligner)


def aligner_of(vocabulary: Vocabulary) -> Aligner:
    """Make the aligner of a vocabulary, once while that is there."""
    return _ALIGNERS.of(vocabulary)


@jit
def _frames_of_all(
    spoken, token, start, end, word, word_token, word_frame, tokens, words, complete
):
    """The frames of the words of many paths, which stand one after the other."""
    frames = np.empty((len(word), 2), np.int32)
    for i in range(len(complete)):
        t, behind_t, w, behind_w = tokens[i], tokens[i + 1], words[i], words[i + 1]
        if w == behind_w:
            continue
        spans, _, _, _ = _spans(
            spoken,
            token[t:behind_t],
            word[w:behind_w],
            word_token[w:behind_w],
            (complete[i], False, 0.0, False),
        )
        of_path = _frames_of(
            spans, start[t:behind_t], end[t:behind_t], word_frame[w:behind_w]
        )
        copy_columns(of_path, frames[w:behind_w])
    return frames


@jit
def _spans(spoken, token, word, word_token, how):
    """Cut tokens into words: int32 [W, 2], positions in `token`, and how many hold.

    Keeps the cheapest way to cut the words so far for each end position; they are few.

    `how`: whether the last word must be whole; whether more tokens may follow, so that
    only words which these cannot change hold; cost and `lost` of the cut before.
    """
    complete, goes_on, cost_before, lost = how
    num_words, num_tokens = len(word), len(token)
    # A way: [position behind the word, its first token, the way before], and its cost.
    ways = np.empty((32 + 2 * num_words, 3), np.int64)
    costs = np.empty(len(ways), np.float64)
    ways[0, 0], ways[0, 1], ways[0, 2] = 0, 0, -1
    costs[0] = cost_before
    lost_before, was_lost = lost, np.zeros(num_words, np.bool_)
    first, last, done = 0, 1, num_words
    for w in range(num_words):
        begin, open_end = last, False
        ends_path = w == num_words - 1 and not complete and not goes_on
        p_begin, p_end = 0, 0
        if word[w] + 1 < len(spoken.word_splits):
            p_begin = spoken.word_splits[word[w]]
            p_end = spoken.word_splits[word[w] + 1]
        for way in range(first, begin):
            at, found = ways[way, 0], False
            while at <= num_tokens:
                for p in range(p_begin, p_end):
                    spelling = spoken.tokens[spoken.splits[p] : spoken.splits[p + 1]]
                    behind = _says(token, at, spelling)
                    # The tokens break off within it: no word, unless the path ends so.
                    if behind >= 0 and at + len(spelling) > num_tokens:
                        open_end = open_end or goes_on
                        behind = behind if ends_path else -1
                    if behind < 0:
                        continue
                    found = True
                    other = begin
                    while other < last and ways[other, 0] != behind:
                        other += 1
                    total = costs[way] + np.float64(spoken.cost[p])
                    if other == last:
                        if last == len(ways):
                            ways, costs = twice(ways), longer(costs, 0)
                        last += 1
                    elif costs[other] <= total:
                        continue
                    ways[other, 0], ways[other, 1], ways[other, 2] = behind, at, way
                    costs[other] = total
                if at == num_tokens:
                    break
                if lost and (found or at >= word_token[w]):
                    break
                if not lost and not spoken.filler[token[at]]:
                    break
                at += 1
        if word[w] == spoken.open_word and word_token[w] <= num_tokens:
            end = np.int64(word_token[w])
            at, way = _open_word(spoken, token, end, lost, (ways, costs, first, begin))
            if way >= 0:
                if last == len(ways):
                    ways, costs = twice(ways), longer(costs, 0)
                ways[last, 0], ways[last, 1], ways[last, 2] = end, at, way
                costs[last] = costs[way] + spoken.token_cost * (end - at)
                last += 1
        lost = was_lost[w] = last == begin
        if goes_on and (open_end or (lost and word_token[w] > num_tokens)):
            done, last = w, begin
            break
        if lost:
            if last == len(ways):
                ways, costs = twice(ways), longer(costs, 0)
            way = first + np.argmin(costs[first:begin])
            end = min(max(np.int64(word_token[w]), ways[way, 0]), num_tokens)
            at = ways[way, 0]
            while at < end and spoken.filler[token[at]]:
                at += 1
            while end > at and spoken.filler[token[end - 1]]:
                end -= 1
            ways[last, 0], ways[last, 1], ways[last, 2] = end, at, way
            costs[last] = costs[way]
            last += 1
        first = begin
    best = _best_way(spoken, token, complete, first, last, ways, costs)
    spans = np.zeros((num_words, 2), np.int32)
    way = best
    for w in range(done - 1, -1, -1):
        spans[w, 0], spans[w, 1], way = ways[way, 1], ways[way, 0], ways[way, 2]
    hold = done
    for other in range(first, last if goes_on else first):
        way, w = best, done - 1
        while other != way:
            if ways[other, 0] != ways[way, 0] or ways[other, 1] != ways[way, 1]:
                hold = min(hold, w)
            other, way, w = ways[other, 2], ways[way, 2], w - 1
    way = best
    for _ in range(done - hold):
        way = ways[way, 2]
    return spans, hold, costs[way], was_lost[hold - 1] if hold else lost_before


@jit
def _open_word(spoken, token, end, lost, known):
    """The cheapest open word up to `end`: its first token, and the way before or -1."""
    ways, costs, first, begin = known
    best_at, best, least = np.int64(0), -1, np.inf
    for way in range(first, begin):
        at = ways[way, 0]
        while at < end and not _spells(spoken, token, at, end):
            if not (lost or spoken.filler[token[at]]):
                at = end
            at += 1
        total = costs[way] + spoken.token_cost * (end - at)
        if at < end and total < least:
            best_at, best, least = at, way, total
    return best_at, best


@jit
def _spells(spoken, token, at, end):
    """Tell whether tokens may be an open word."""
    if not spoken.begins[token[at]]:
        return False
    for i in range(at + 1, end):
        if not spoken.extends[token[i]]:
            return False
    return True


@jit
def _best_way(spoken, token, complete, first, last, ways, costs):
    """The cheapest way; of a complete path, one that leaves fillers alone, if any."""
    best, best_ends_well = first, False
    for way in range(first, last):
        rest = ways[way, 0]
        while rest < len(token) and spoken.filler[token[rest]]:
            rest += 1
        ends_well = rest == len(token) or not complete
        cheaper = costs[way] < costs[best] and ends_well == best_ends_well
        if cheaper or (ends_well and not best_ends_well):
            best, best_ends_well = way, ends_well
    return best


@jit
def _says(token, at, spelling):
    """Position after `spelling` at `at`, or where the tokens end within it; else -1."""
    end = min(at + len(spelling), len(token))
    for i in range(at, end):
        if token[i] != spelling[i - at]:
            return -1
    return end


@jit
def _frames_of(spans, start, end, word_frame):
    """Token positions to frames; a word with no token stands where its label does."""
    frames = np.empty(spans.shape, np.int32)
    for w in range(len(spans)):
        if spans[w, 0] < spans[w, 1]:
            frames[w, 0] = start[spans[w, 0]]
            frames[w, 1] = end[spans[w, 1] - 1]
        else:
            frames[w, 0] = frames[w, 1] = word_frame[w]
    return frames
