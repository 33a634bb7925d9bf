"""From paths to what the user gets: words with times, and costs kept apart.

builder = HypothesisBuilder(space, decoder)
hypothesis = builder.build(path, boosts)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from wfstdec.boost.compile import CompiledBoosts
from wfstdec.boost.oov import OovWords
from wfstdec.lm.null import NULL_AUTOMATON
from wfstdec.lm.on_demand import LmArrays, LmQueries
from wfstdec.lm.on_demand_table import UNKNOWN
from wfstdec.search.costs import CostAccount, insertion_cost
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.search.paths.token_path import TokenPath
from wfstdec.text.loading import word_ids
from wfstdec.text.open_spelling import OpenSpelling
from wfstdec.text.symbols import EPSILON
from wfstdec.trie.lexicon_trie import parents_of
from wfstdec.trie.open_words import OPEN_PRON
from wfstdec.trie.readings import pieces, timed
from wfstdec.trie.search_space import NONE, SearchSpace


class Spoken(NamedTuple):
    """The words of some tokens.

    Attributes:
        texts: What they are called.
        words: Their ids; 0 of open words that have none.
        spans: The positions of their tokens, first and one behind the last.
        pron_cost: What their pronunciations cost, unscaled.
    """

    texts: list[str]
    words: list[int]
    spans: list[tuple[int, int]]
    pron_cost: float


NOTHING_SPOKEN = Spoken([], [], [], 0.0)


class HypothesisBuilder:
    """Makes hypotheses of the paths of one decoder.

    Args:
        space: What was searched.
        decoder: For its tokens, words, separator, options and frame shift.
        spelling: What open words are called; None where there are none.
    """

    def __init__(
        self, space: SearchSpace, decoder: Any, spelling: OpenSpelling | None = None
    ) -> None:
        self.space = space
        self.spelling = spelling
        self._decoder, self._words = decoder, getattr(decoder, "words", ())
        self._word_ids: dict[str, int] = {}
        if spelling is not None and spelling.is_spelled:
            self._word_ids = word_ids(decoder.words)
        self._pron_length = _pron_lengths(space)

    def build(self, path: TokenPath, boosts: CompiledBoosts) -> Hypothesis:
        """The words, times and costs of a path."""
        spoken = NOTHING_SPOKEN
        if self.space.has_lexicon:
            spoken = self._spoken(path.rows, path.last_pron, boosts.added)
            words = self._timed(spoken.texts, spoken.spans, path.rows)
        else:
            words = self.words_of(path.rows)
        return Hypothesis(
            words=tuple(words),
            token_ids=tuple(path.token.tolist()),
            token_frames=(
                tuple(path.rows[:, 1].tolist()),
                tuple(path.rows[:, 2].tolist()),
            ),
            token_names=self._decoder.tokens.names,
            frame_shift_s=self._decoder.frame_shift_s,
            **self._costs(path, boosts, spoken)._asdict(),
            reached_final=path.complete,
            num_frames=path.num_frames,
            died_at_frame=path.died_at_frame if path.died_at_frame >= 0 else None,
        )

    def _costs(
        self, path: TokenPath, boosts: CompiledBoosts, spoken: Spoken
    ) -> CostAccount:
        """The account of a path, and of the words that it says.

        Where alignments were summed, what is left of the total is acoustic.
        """
        options, labels = self._decoder.options, path.token
        insertion = insertion_cost(options.token_insertion, len(path.token))
        if self.space.has_lexicon:
            labels = np.array([word or UNKNOWN for word in spoken.words], np.int32)
            insertion += insertion_cost(options.word_insertion, len(labels))
        costs = {
            "graph": self._lm_cost(labels, path.complete, boosts) + spoken.pron_cost,
            "insertion": insertion,
            "boost": boosts.cost(spoken.words, path.token),
        }
        if math.isnan(path.acoustic):
            return CostAccount.of_total(options, total=path.search_cost, **costs)
        return CostAccount.of_path(options, acoustic=path.acoustic, **costs)

    def _lm_cost(
        self, labels: np.ndarray, complete: bool, boosts: CompiledBoosts
    ) -> float:
        """The model's cost of words or tokens, `</s>` where the end was accepted."""
        if self.space.automaton is NULL_AUTOMATON:
            return 0.0
        added = boosts.added.words if boosts.added is not None else ()
        with LmArrays(self.space.automaton, added) as lm:
            return LmQueries(lm).total(labels, complete=complete)

    def words_of(
        self,
        rows: np.ndarray,
        last_pron: int = NONE,
        added: OovWords | None = None,
    ) -> list[Word]:
        """The words of some tokens.

        Args:
            rows: int32 [N, 4], token, first frame, one behind the last, pronunciation
                that ended before it or -1.
            last_pron: The pronunciation that ends with them, -1 for none.
            added: The added words of the utterance.
        """
        texts, spans, _ = self._spans(rows, last_pron, added)
        return self._timed(texts, spans, rows)

    def settled_words(
        self, rows: np.ndarray, added: OovWords | None = None
    ) -> tuple[list[Word], int]:
        """The words that stand whatever tokens follow, and how many tokens they take.

        Arguments as of `words_of`; tokens between words are taken with the word before.
        """
        texts, spans, whole = self._spans(rows, NONE, added)
        if not whole:  # the last word may go on
            texts, spans = texts[:-1], spans[:-1]
        taken = len(rows) if whole and not self.space.has_lexicon else 0
        if spans and not taken:
            taken = spans[-1][1]
        return self._timed(texts, spans, rows), taken

    def are_spoken(self, rows: np.ndarray) -> np.ndarray:
        """Which tokens are no separators, bool [N]."""
        separator = self._decoder.separator
        return rows[:, 0] != (NONE if separator is None else separator)

    def _spans(
        self, rows: np.ndarray, last_pron: int, added: OovWords | None
    ) -> tuple[list[str], list[tuple[int, int]], bool]:
        """Texts, positions in `rows`, and whether the last word is over."""
        if not self.space.has_lexicon:
            names, separator = self._decoder.tokens.names, self._decoder.separator
            return pieces(rows[:, 0].tolist(), names, separator)
        spoken = self._spoken(rows, last_pron, added)
        return spoken.texts, spoken.spans, True

    def _spoken(
        self, rows: np.ndarray, last_pron: int, added: OovWords | None
    ) -> Spoken:
        """The words of some tokens, with a lexicon."""
        ends = 1 + np.flatnonzero(rows[1:, 3] >= 0)  # at 0 the word is before them
        prons = rows[ends, 3]
        if last_pron >= 0:
            prons, ends = np.append(prons, last_pron), np.append(ends, len(rows))
        trie = self.space.trie
        if (prons >= len(trie.pron_word)).any():
            return self._spoken_beside(rows[:, 0].tolist(), prons, ends, added)
        words = trie.pron_word[prons].tolist()
        begins = (ends - self._pron_length[prons]).tolist()
        return Spoken(
            texts=[self._words[word] for word in words],
            words=words,
            spans=list(zip(begins, ends.tolist(), strict=True)),
            pron_cost=float(trie.pron_cost[prons].sum(dtype=np.float64)),
        )

    def _spoken_beside(
        self,
        tokens: list[int],
        prons: np.ndarray,
        ends: np.ndarray,
        added: OovWords | None,
    ) -> Spoken:
        """The same where some of the words are added or open ones."""
        trie, opened = self.space.trie, self.space.open
        spoken, end, total = Spoken([], [], [], 0.0), 0, 0.0
        for pron, stop in zip(prons.tolist(), ends.tolist(), strict=True):
            if pron < len(trie.pron_word):
                word = int(trie.pron_word[pron])
                begin, text = stop - int(self._pron_length[pron]), self._words[word]
                total += float(trie.pron_cost[pron])
            elif pron != OPEN_PRON:
                assert added is not None
                number = pron - len(trie.pron_word)
                word = int(added.word[number])
                begin = stop - int(added.splits[number + 1] - added.splits[number])
                new = word - added.num_known
                text = added.words[new] if new >= 0 else self._words[word]
            else:
                assert self.spelling is not None
                begin = end
                while tokens[begin] == self._decoder.separator:
                    begin += 1
                text = self.spelling.text(tokens[begin:stop])
                word = self._word_ids.get(text, EPSILON)
                if word == EPSILON:
                    length = stop - begin
                    total += opened.word_cost + length * float(opened.token_cost)
            end = stop
            spoken.texts.append(text)
            spoken.words.append(word)
            spoken.spans.append((begin, stop))
        return spoken._replace(pron_cost=float(total))

    def _timed(
        self, texts: list[str], spans: list[tuple[int, int]], rows: np.ndarray
    ) -> list[Word]:
        return timed(texts, spans, rows, self._decoder.frame_shift_s)


def _pron_lengths(space: SearchSpace) -> np.ndarray:
    """How many tokens each pronunciation has, int32 [P]."""
    trie = space.trie
    depth = np.zeros(trie.num_nodes, np.int32)
    for node, parent in enumerate(parents_of(trie).tolist()):
        depth[node] = depth[parent] + 1 if parent >= 0 else 0
    return np.repeat(depth, np.diff(trie.node_pron_splits))
