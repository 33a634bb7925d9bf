"""The end of an utterance: all ways to end, and the way back through the trace."""

from __future__ import annotations

import numpy as np
from numpy import float32, int64

from wfstdec.boost.words import find_bonus
from wfstdec.jit import inlined, jit, kernel
from wfstdec.lm.kernels import final, step
from wfstdec.trie.cpu import records as k
from wfstdec.trie.cpu.begin import extended, phrase_step

_INF = float32(np.inf)


@jit
def ways_to_end(tree, scales, words, phrases, channel):
    """All ways to end, END [N]: whole words and `</s>`; the first least one wins."""
    trie, frontier = tree.space.trie, channel.frontier
    count = 0
    for i in range(channel.counts[k.FRONTIER]):
        node = frontier[i].node
        if tree.space.lexical and node != 0:
            count += 2 * int64(trie.node_pron_splits[node + 1] - trie.node_pron_splits[node])
        else:
            count += 2
    ends = np.zeros(count, k.END)
    _fill_ends(tree.space, scales, words, phrases, channel, ends)
    return ends


@kernel
def _fill_ends(space, scales, words, phrases, channel, ends):
    trie, frontier = space.trie, channel.frontier
    at = 0
    for i in range(channel.counts[k.FRONTIER]):
        entry = frontier[i]
        if not space.lexical or entry.node == 0:
            last = final(space.automaton, space.model, entry.state)
            graph = float32(last - entry.ahead)
            refund = phrases.final_cost[entry.boost]
            extras = float32(0), float32(0), refund
            said = int64(-1), int64(-1)
            at = _end(scales, channel, entry, graph, extras, said, ends, at)
            continue
        first = int64(trie.node_pron_splits[entry.node])
        last = int64(trie.node_pron_splits[entry.node + 1])
        for pron in range(first, last):
            said = pron, int64(trie.pron_word[pron])
            cost, state = step(space.automaton, space.model, entry.state, said[1])
            cost = float32(cost + trie.pron_cost[pron])
            after = final(space.automaton, space.model, state)
            graph = float32(float32(cost + after) - entry.ahead)
            bonus = find_bonus(words.keys, words.bonuses, np.uint32(said[1]))
            insertion = float32(scales.word_insertion - bonus)
            phrase, boost = float32(0), entry.boost
            if phrases.of_words:
                phrase, boost = phrase_step(phrases, boost, said[1])
            refund = phrases.final_cost[boost]
            extras = insertion, phrase, refund
            at = _end(scales, channel, entry, graph, extras, said, ends, at)


@inlined
def _end(scales, channel, entry, graph, extras, said, ends, at):
    """Add the ends of both phases."""
    insertion, phrase, refund = extras
    for on in range(2):
        end = ends[at]
        before = entry.on if on == 1 else entry.over
        cost = float32(before + float32(scales.lm_scale * graph))
        cost = float32(float32(float32(cost + insertion) + phrase) + refund)
        end.cost = cost if before < _INF and graph < _INF else _INF
        end.text = entry.text
        if said[1] >= 0 and scales.by_text:
            end.text = extended(entry.text, said[1])
        end.trace = entry.on_trace if on == 1 else entry.over_trace
        end.end = channel.counts[k.FRAMES] if on == 1 else entry.over_end
        end.said = said[0]
        end.acoustic = entry.on_acoustic if on == 1 else entry.over_acoustic
        at += 1
    return at


@jit
def ways_to_stop(scales, phrases, channel):
    """All entries as they are, nothing paid in advance, END [N]."""
    ends = np.zeros(2 * channel.counts[k.FRONTIER], k.END)
    _fill_stops(scales, phrases, channel, ends)
    return ends


@kernel
def _fill_stops(scales, phrases, channel, ends):
    for i in range(channel.counts[k.FRONTIER]):
        entry = channel.frontier[i]
        refund = phrases.final_cost[entry.boost]
        graph = float32(scales.lm_scale * float32(-entry.ahead))
        for on in range(2):
            end = ends[2 * i + on]
            before = entry.on if on == 1 else entry.over
            cost = float32(float32(before + graph) + refund)
            end.cost = cost if before < _INF else _INF
            end.text = entry.text
            end.trace = entry.on_trace if on == 1 else entry.over_trace
            end.end = channel.counts[k.FRAMES] if on == 1 else entry.over_end
            end.said = -1
            end.acoustic = entry.on_acoustic if on == 1 else entry.over_acoustic


@jit
def walk_back(trace, at, end):
    """The tokens on the way to a node: int32 [N, 4], token, start, end, said before."""
    length, node = 0, at
    while node >= 0:
        length += 1
        node = int64(trace[node].previous)
    read = np.empty((length, 4), np.int32)
    while at >= 0:
        length -= 1
        node = trace[at]
        read[length, 0], read[length, 1] = node.token, node.start
        read[length, 2], read[length, 3] = end, node.said
        end = int64(node.end)
        at = int64(node.previous)
    return read


@jit
def compact(channel):
    """Drop the nodes that no entry can reach, in place; returns how many are left."""
    trace, counts = channel.trace, channel.counts
    new = np.full(counts[k.TRACE], -1, np.int32)
    for i in range(counts[k.FRONTIER]):
        _mark(channel.frontier[i].over_trace, trace, new)
        _mark(channel.frontier[i].on_trace, trace, new)
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
        if entry.over_trace >= 0:
            entry.over_trace = new[entry.over_trace]
        if entry.on_trace >= 0:
            entry.on_trace = new[entry.on_trace]
    counts[k.TRACE] = kept
    return kept


@inlined
def _mark(at, trace, new):
    """Mark a node and all before it."""
    while at >= 0 and new[at] < 0:
        new[at] = 0
        at = trace[at].previous
