"""From paths to what the user gets: words with times, and costs kept apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.lm import kernels
from wfstdec.search.hypothesis import Hypothesis, Word
from wfstdec.text.lexicon import WORD_START
from wfstdec.trie.lexicon_trie import parents_of
from wfstdec.trie.path import TokenPath
from wfstdec.trie.space import SearchSpace


class Reader:
    """Reads the paths of one decoder.

    Args:
        space: What was searched.
        decoder: For its tokens, words, separator, options and frame shift.
    """

    def __init__(self, space: SearchSpace, decoder: Any) -> None:
        self.space = space
        self._decoder = decoder
        self._length = _lengths_of(space)
        names = decoder.tokens.names
        self._is_piece = any(name.startswith(WORD_START) for name in names)

    def hypothesis(self, path: TokenPath, boosts: CompiledBoosts) -> Hypothesis:
        """The words, times and costs of a path."""
        options = self._decoder.options
        labels, said_cost = path.token, 0.0
        words = np.zeros(0, np.int32)
        if self.space.lexical:
            trie = self.space.trie
            labels = words = trie.said_word[path.said]
            said_cost = float(trie.said_cost[path.said].sum(dtype=np.float64))
        graph_cost = self._lm_cost(labels, path.complete) + said_cost
        insertion_cost = float(options.token_insertion * len(path.token)) + 0.0
        if self.space.lexical:
            insertion_cost += float(options.word_insertion * len(words))
        boost_cost = boosts.cost(words.tolist(), path.token.tolist())
        rest = options.lm_scale * graph_cost + insertion_cost + boost_cost
        acoustic, scale = path.acoustic, options.acoustic_scale
        total = scale * acoustic + rest
        if math.isnan(acoustic):  # of all alignments together
            total = path.search_cost
            acoustic = (total - rest) / scale if scale else 0.0
        return Hypothesis(
            words=self._words(path),
            token_ids=tuple(path.token.tolist()),
            token_frames=(tuple(path.start.tolist()), tuple(path.end.tolist())),
            token_names=self._decoder.tokens.names,
            frame_shift_s=self._decoder.frame_shift_s,
            total_cost=total,
            graph_cost=graph_cost,
            acoustic_cost=acoustic,
            insertion_cost=insertion_cost,
            boost_cost=boost_cost,
            reached_final=path.complete,
            num_frames=path.num_frames,
            died_at_frame=path.died_at_frame if path.died_at_frame >= 0 else None,
        )

    def _lm_cost(self, labels: np.ndarray, complete: bool) -> float:
        """The model's cost of words or tokens, `</s>` where the end was accepted."""
        space = self.space
        if space.model < 0:
            return 0.0
        costs = np.empty(len(labels), np.float32)
        start = space.automaton.model_start[0]
        state = kernels.walk(space.automaton, 0, start, labels, costs)
        final = float(space.automaton.final_cost[state]) if complete else 0.0
        return float(costs.sum(dtype=np.float64)) + final

    def _words(self, path: TokenPath) -> tuple[Word, ...]:
        if not self.space.lexical:
            return self._pieces(path)
        texts = [self._decoder.words[w] for w in self.space.trie.said_word[path.said]]
        spans = [
            (int(end - self._length[said]), int(end))
            for said, end in zip(path.said, path.said_end, strict=True)
        ]
        return self._timed(texts, spans, path)

    def _pieces(self, path: TokenPath) -> tuple[Word, ...]:
        """Words of bare tokens: cut at separators or before a piece with a mark."""
        names, separator = self._decoder.tokens.names, self._decoder.separator
        texts: list[str] = []
        spans: list[tuple[int, int]] = []
        apart = True
        for i, token in enumerate(path.token.tolist()):
            if token == separator:
                apart = True
                continue
            name = names[token]
            by_mark = separator is None and self._is_piece
            if apart or (by_mark and name.startswith(WORD_START)):
                texts.append("")
                spans.append((i, i))
            texts[-1] += name.removeprefix(WORD_START) if by_mark else name
            spans[-1] = (spans[-1][0], i + 1)
            apart = separator is None and not self._is_piece
        said = [i for i, text in enumerate(texts) if text]
        return self._timed([texts[i] for i in said], [spans[i] for i in said], path)

    def _timed(
        self, texts: list[str], spans: list[tuple[int, int]], path: TokenPath
    ) -> tuple[Word, ...]:
        shift = self._decoder.frame_shift_s
        words = []
        for text, (first, behind) in zip(texts, spans, strict=True):
            start, end = int(path.start[first]), int(path.end[behind - 1])
            words.append(Word(text, start * shift, end * shift, start, end))
        return tuple(words)


def _lengths_of(space: SearchSpace) -> np.ndarray:
    """How many tokens each pronunciation has, int32 [P]."""
    trie = space.trie
    depth = np.zeros(trie.num_nodes, np.int32)
    for node, parent in enumerate(parents_of(trie).tolist()):
        depth[node] = depth[parent] + 1 if parent >= 0 else 0
    return np.repeat(depth, np.diff(trie.said_splits))
