"""From paths to what the user gets: words with times, and costs kept apart.

builder = HypothesisBuilder(space, decoder)
hypothesis = builder.build(path, boosts)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.lm import kernels
from wfstdec.lm.null import NULL_AUTOMATON
from wfstdec.search.costs import CostAccount, insertion_cost
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.text.lexicon import WORD_START
from wfstdec.trie.lexicon_trie import parents_of
from wfstdec.trie.path import TokenPath
from wfstdec.trie.space import SearchSpace


class HypothesisBuilder:
    """Makes hypotheses of the paths of one decoder.

    Args:
        space: What was searched.
        decoder: For its tokens, words, separator, options and frame shift.
    """

    def __init__(self, space: SearchSpace, decoder: Any) -> None:
        self.space = space
        self._decoder = decoder
        self._pron_length = _pron_lengths(space)
        names = decoder.tokens.names
        self._is_piece = any(name.startswith(WORD_START) for name in names)

    def build(self, path: TokenPath, boosts: CompiledBoosts) -> Hypothesis:
        """The words, times and costs of a path."""
        return Hypothesis(
            words=self._words(path),
            token_ids=tuple(path.token.tolist()),
            token_frames=(tuple(path.start.tolist()), tuple(path.end.tolist())),
            token_names=self._decoder.tokens.names,
            frame_shift_s=self._decoder.frame_shift_s,
            **self._costs(path, boosts)._asdict(),
            reached_final=path.complete,
            num_frames=path.num_frames,
            died_at_frame=path.died_at_frame if path.died_at_frame >= 0 else None,
        )

    def _costs(self, path: TokenPath, boosts: CompiledBoosts) -> CostAccount:
        """The account of a path.

        Where alignments were summed, what is left of the total is acoustic.
        """
        options, labels = self._decoder.options, path.token
        insertion = insertion_cost(options.token_insertion, len(path.token))
        words: list[int] = []
        pron_cost = 0.0
        if self.space.has_lexicon:
            trie = self.space.trie
            labels = trie.pron_word[path.pron]
            words = labels.tolist()
            pron_cost = float(trie.pron_cost[path.pron].sum(dtype=np.float64))
            insertion += insertion_cost(options.word_insertion, len(words))
        costs = {
            "graph": self._lm_cost(labels, path.complete) + pron_cost,
            "insertion": insertion,
            "boost": boosts.cost(words, path.token),
        }
        if math.isnan(path.acoustic):
            return CostAccount.of_total(options, total=path.search_cost, **costs)
        return CostAccount.of_path(options, acoustic=path.acoustic, **costs)

    def _lm_cost(self, labels: np.ndarray, complete: bool) -> float:
        """The model's cost of words or tokens, `</s>` where the end was accepted."""
        automaton = self.space.automaton
        if automaton is NULL_AUTOMATON:
            return 0.0
        costs = np.empty(len(labels), np.float32)
        state = kernels.walk(automaton, 0, automaton.model_start[0], labels, costs)
        final = float(automaton.final_cost[state]) if complete else 0.0
        return float(costs.sum(dtype=np.float64)) + final

    def _words(self, path: TokenPath) -> tuple[Word, ...]:
        if not self.space.has_lexicon:
            return self._pieces(path)
        texts = [self._decoder.words[w] for w in self.space.trie.pron_word[path.pron]]
        spans = [
            (int(end - self._pron_length[pron]), int(end))
            for pron, end in zip(path.pron, path.pron_end, strict=True)
        ]
        return self._timed(texts, spans, path)

    def _pieces(self, path: TokenPath) -> tuple[Word, ...]:
        """Words of bare tokens: cut at separators or before a piece with a mark."""
        names, separator = self._decoder.tokens.names, self._decoder.separator
        texts: list[str] = []
        spans: list[tuple[int, int]] = []
        new_word = True
        for i, token in enumerate(path.token.tolist()):
            if token == separator:
                new_word = True
                continue
            name = names[token]
            by_mark = separator is None and self._is_piece
            if new_word or (by_mark and name.startswith(WORD_START)):
                texts.append("")
                spans.append((i, i))
            texts[-1] += name.removeprefix(WORD_START) if by_mark else name
            spans[-1] = (spans[-1][0], i + 1)
            new_word = separator is None and not self._is_piece
        kept = [i for i, text in enumerate(texts) if text]  # a mark alone is no word
        return self._timed([texts[i] for i in kept], [spans[i] for i in kept], path)

    def _timed(
        self, texts: list[str], spans: list[tuple[int, int]], path: TokenPath
    ) -> tuple[Word, ...]:
        shift = self._decoder.frame_shift_s
        words = []
        for text, (first, stop) in zip(texts, spans, strict=True):
            start, end = int(path.start[first]), int(path.end[stop - 1])
            words.append(Word(text, start * shift, end * shift, start, end))
        return tuple(words)


def _pron_lengths(space: SearchSpace) -> np.ndarray:
    """How many tokens each pronunciation has, int32 [P]."""
    trie = space.trie
    depth = np.zeros(trie.num_nodes, np.int32)
    for node, parent in enumerate(parents_of(trie).tolist()):
        depth[node] = depth[parent] + 1 if parent >= 0 else 0
    return np.repeat(depth, np.diff(trie.node_pron_splits))
