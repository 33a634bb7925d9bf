"""The frames of words: the tokens of a path cut into the words' pronunciations.

A word's label may stand anywhere in the word, or behind it, since determinization moves
labels. So words are found by matching the tokens of the path, fillers skipped, with
the pronunciations that the graph carries:

    tokens   <wb> h ə l oʊ <wb> w ɝ l d        words   hello world
    spans         |------|      |-----|

An open word (`fst/open_words.py`) has its label on its last token: it is the tokens
behind the word before, fillers skipped, up to there.

The rule is local: words are cut from left to right, and one whose tokens are not there
(the path ends inside it, or the graph says it in another way) spans the tokens up to
its label; the next one is looked for from there on. So what comes later changes the
frames of a word only while there are two ways to cut it, and a session can say when
they are settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wfstdec.jit import jit
from wfstdec.jit.copying import copy_columns, longer, twice
from wfstdec.jit.pool import Once
from wfstdec.search.paths.label_path import JoinedPaths, PathTokens, join_paths
from wfstdec.search.paths.words import BEGINNING, Counted, Cut, Words, WordsOfAll
from wfstdec.text.vocabulary import Vocabulary


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

    Args:
        vocabulary: Of the graph, perhaps with words that are added.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        said, opened = vocabulary.pronunciations, vocabulary.open_word
        self._words, self._spelling = vocabulary.words, vocabulary.open_spelling
        filler, none = np.zeros((2, len(vocabulary.tokens)), np.bool_)
        filler[list(vocabulary.separators)] = True
        spelling = self._spelling
        self._spoken = Spoken(
            *(said.word_splits, said.splits, said.tokens, said.cost, filler),
            *((opened.word, opened.token_cost) if opened else (-1, 0.0)),
            *((spelling.begins, spelling.extends) if spelling else (none, none)),
        )

    def are_spoken(self, said: PathTokens) -> np.ndarray:
        """Implement `Cutter.are_spoken`."""
        return ~self._spoken.filler[said.token]

    def words(
        self, said: PathTokens, cut: Cut = BEGINNING, *, complete: bool = False
    ) -> Words:
        """Implement `Cutter.words`; `complete`: whether the last word must be whole."""
        words, _ = self._cut(said, cut, complete, goes_on=False)
        return words

    def settled_words(self, said: PathTokens, cut: Cut) -> tuple[Words, Cut]:
        """Implement `Cutter.settled_words`.

        A token whose end is not settled must not be among those that are said.
        """
        return self._cut(said, cut, complete=False, goes_on=True)

    def words_of_all(
        self, said: Sequence[PathTokens], complete: Sequence[bool]
    ) -> WordsOfAll:
        """Implement `Cutter.words_of_all`, in a few calls for all paths."""
        joined = join_paths(said)
        paths, *at = joined
        whole = np.array(complete, np.bool_)
        frames = _frames_of_all(self._spoken, paths.token, *paths[1:6], *at, whole)
        words, splits = paths.word.tolist(), joined.word_splits.tolist()
        counted = [Counted(words[a:b]) for a, b in pairwise(splits)]
        return WordsOfAll(Words(self._texts(joined, frames), frames), splits, counted)

    def _cut(
        self, path: PathTokens, cut: Cut, complete: bool, *, goes_on: bool
    ) -> tuple[Words, Cut]:
        """Cut a path; where it goes on, into those words that no further token changes.

        Returns:
            The words with frames, and the cut behind them.
        """
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
        return words, Cut(taken, cut.words + count, cost, lost)

    def _texts(self, joined: JoinedPaths, frames: np.ndarray) -> list[str]:
        """The texts of the words of paths; of open ones by their tokens.

        Args:
            joined: The paths.
            frames: int32 [W, 2], of their first words.
        """
        said, token_splits, word_splits = joined
        word = said.word[: len(frames)]
        texts = list(map(self._words.__getitem__, word.tolist()))
        if self._spelling is None:
            return texts
        for w in np.flatnonzero(word == self._spoken.open_word).tolist():
            i = int(np.searchsorted(word_splits, w, "right")) - 1
            first, end = token_splits[i : i + 2].tolist()
            begin, stop = first + np.searchsorted(said.start[first:end], frames[w])
            texts[w] = self._spelling.text(said.token[begin:stop].tolist())
        return texts


_ALIGNERS: Once[Vocabulary, Aligner] = Once(Aligner)


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

    Returns:
        The spans, how many hold, and cost and `lost` of the cut behind these.
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
                    said = spoken.tokens[spoken.splits[p] : spoken.splits[p + 1]]
                    behind = _says(token, at, said)
                    # The tokens break off within it: no word, unless the path ends so.
                    if behind >= 0 and at + len(said) > num_tokens:
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
def _says(token, at, said):
    """The position behind `said` at `at`, or where tokens break off in it; else -1."""
    end = min(at + len(said), len(token))
    for i in range(at, end):
        if token[i] != said[i - at]:
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
