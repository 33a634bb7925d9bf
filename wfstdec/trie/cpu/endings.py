"""The end of an utterance: all ways to end, and the way back through the trace.

endings = accepted_endings(search, channel)            # whole words and `</s>`
endings = unfinished_endings(search, channel)          # where none is accepted
tokens = trace_back(channel.trace, at, token_end)      # int32 [N, 4]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int64

from wfstdec.boost.words import find_bonus
from wfstdec.jit import inlined, jit, kernel
from wfstdec.lm.kernels import final, step
from wfstdec.trie.cpu import records as k
from wfstdec.trie.cpu.begin import step_phrases, text_with

_INF = float32(np.inf)
_ZERO = float32(0)


class LastWord(NamedTuple):
    """What the end adds to an entry: a last word or none, `</s>`, a refund.

    Attributes:
        pron, word: The pronunciation that ends and its word, -1 for none.
        graph_cost: Unscaled, without the entry's look-ahead.
        insertion, phrase_cost: Of the word.
        refund: For a phrase that is not complete.
    """

    pron: int
    word: int
    graph_cost: np.float32
    insertion: np.float32
    phrase_cost: np.float32
    refund: np.float32


@jit
def accepted_endings(search, channel):
    """All ways to end with whole words and `</s>`, ENDING [N], in order.

    Of equal ones the first wins.
    """
    space, frontier = search.space, channel.frontier
    splits, count = space.trie.node_pron_splits, 0
    for i in range(channel.counts[k.FRONTIER]):
        node = frontier[i].node
        if space.has_lexicon and node != 0:
            count += 2 * int64(splits[node + 1] - splits[node])
        else:
            count += 2
    endings = np.zeros(count, k.ENDING)
    _fill_accepted(search, channel, endings)
    return endings


@kernel
def _fill_accepted(search, channel, endings):
    space, scales, phrases = search.space, search.scales, search.phrases
    trie, words, frontier = space.trie, search.words, channel.frontier
    at = 0
    for i in range(channel.counts[k.FRONTIER]):
        entry = frontier[i]
        if not space.has_lexicon or entry.node == 0:
            end_cost = final(space.automaton, 0, entry.state)
            last = LastWord(
                pron=int64(-1),
                word=int64(-1),
                graph_cost=float32(end_cost - entry.lookahead_cost),
                insertion=_ZERO,
                phrase_cost=_ZERO,
                refund=phrases.final_cost[entry.boost],
            )
            at = _add_endings(scales, channel, entry, last, endings, at)
            continue
        first = int64(trie.node_pron_splits[entry.node])
        end = int64(trie.node_pron_splits[entry.node + 1])
        for pron in range(first, end):
            word = int64(trie.pron_word[pron])
            cost, state = step(space.automaton, 0, entry.state, word)
            cost = float32(cost + trie.pron_cost[pron])
            end_cost = final(space.automaton, 0, state)
            bonus = find_bonus(words.keys, words.bonuses, np.uint32(word))
            phrase_cost, boost = _ZERO, entry.boost
            if phrases.of_words:
                phrase_cost, boost = step_phrases(phrases, boost, word)
            last = LastWord(
                pron=pron,
                word=word,
                graph_cost=float32(float32(cost + end_cost) - entry.lookahead_cost),
                insertion=float32(scales.word_insertion - bonus),
                phrase_cost=phrase_cost,
                refund=phrases.final_cost[boost],
            )
            at = _add_endings(scales, channel, entry, last, endings, at)


@inlined
def _add_endings(scales, channel, entry, last, endings, at):
    """Add the endings of both phases; where the next one goes."""
    for phase in range(2):
        before = entry.nonblank_cost if phase == 1 else entry.blank_cost
        cost = float32(before + float32(scales.lm_scale * last.graph_cost))
        cost = float32(float32(cost + last.insertion) + last.phrase_cost)
        cost = float32(cost + last.refund)
        ending = endings[at]
        ending.cost = cost if before < _INF and last.graph_cost < _INF else _INF
        _fill_ending(ending, channel, entry, phase == 1)
        if last.word >= 0 and scales.by_text:
            ending.text = text_with(entry.text, last.word)
        ending.pron = last.pron
        at += 1
    return at


@inlined
def _fill_ending(ending, channel, entry, nonblank):
    """What an ending takes over from a phase of its entry."""
    ending.text = entry.text
    ending.trace = entry.nonblank_trace if nonblank else entry.blank_trace
    ending.token_end = channel.counts[k.FRAMES] if nonblank else entry.token_end
    ending.acoustic = entry.nonblank_acoustic if nonblank else entry.blank_acoustic


@jit
def unfinished_endings(search, channel):
    """All entries as they are, without their look-ahead, ENDING [N]."""
    endings = np.zeros(2 * channel.counts[k.FRONTIER], k.ENDING)
    _fill_unfinished(search, channel, endings)
    return endings


@kernel
def _fill_unfinished(search, channel, endings):
    for i in range(channel.counts[k.FRONTIER]):
        entry = channel.frontier[i]
        refund = search.phrases.final_cost[entry.boost]
        graph_cost = float32(search.scales.lm_scale * float32(-entry.lookahead_cost))
        for phase in range(2):
            before = entry.nonblank_cost if phase == 1 else entry.blank_cost
            cost = float32(float32(before + graph_cost) + refund)
            ending = endings[2 * i + phase]
            ending.cost = cost if before < _INF else _INF
            _fill_ending(ending, channel, entry, phase == 1)
            ending.pron = -1


@jit
def trace_back(trace, at, token_end):
    """As `endings.trace_back`, int32 [N, 4], from a position in the trace."""
    length, before = 0, at
    while before >= 0:
        length += 1
        before = int64(trace[before].previous)
    tokens = np.empty((length, 4), np.int32)
    while at >= 0:
        length -= 1
        node = trace[at]
        tokens[length, 0], tokens[length, 1] = node.token, node.start
        tokens[length, 2], tokens[length, 3] = token_end, node.pron
        token_end = int64(node.previous_end)
        at = int64(node.previous)
    return tokens


@jit
def compact(channel):
    """Drop the trace nodes that no entry can reach, in place; how many are left."""
    trace, counts = channel.trace, channel.counts
    new = np.full(counts[k.TRACE], -1, np.int32)
    for i in range(counts[k.FRONTIER]):
        _mark(channel.frontier[i].blank_trace, trace, new)
        _mark(channel.frontier[i].nonblank_trace, trace, new)
    kept = 0
    for i in range(counts[k.TRACE]):
        if new[i] >= 0:
            new[i] = kept
            node = trace[i]
            if node.previous >= 0:
                node.previous = new[node.previous]
            trace[kept] = node
            kept += 1
    for i in range(counts[k.FRONTIER]):
        entry = channel.frontier[i]
        if entry.blank_trace >= 0:
            entry.blank_trace = new[entry.blank_trace]
        if entry.nonblank_trace >= 0:
            entry.nonblank_trace = new[entry.nonblank_trace]
    counts[k.TRACE] = kept
    return kept


@inlined
def _mark(at, trace, new):
    """Mark a trace node and all before it."""
    while at >= 0 and new[at] < 0:
        new[at] = 0
        at = trace[at].previous
