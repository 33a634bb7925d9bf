"""The end of an utterance: all ways to end, and the way back through the trace.

endings = accepted_endings(search, channel)            # whole words and `</s>`
endings = unfinished_endings(search, channel)          # where none is accepted
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int64

from wfstdec.jit import inlined, jit, part
from wfstdec.lm.kernels import final
from wfstdec.trie.cpu import records as k
from wfstdec.trie.cpu.begin import text_with
from wfstdec.trie.cpu.boost_steps import boosts_at_end, credit_word, pay_step
from wfstdec.trie.cpu.places import advance_of, num_word_ends, olabel_of, word_end

_INF = float32(np.inf)
_ZERO = float32(0)


class LastWord(NamedTuple):
    """What the end adds to an entry: a last word or none, `</s>`, what boosts owe.

    Attributes:
        pron, label: The pronunciation that ends, and what the text grows by; -1 for
            none.
        olabel: The word that ends, as lattices have it.
        graph_cost: Unscaled, without the entry's look-ahead.
        insertion, boost_cost: Of the word.
        rest: What boosts cost at the end.
    """

    pron: int
    label: int
    olabel: int
    graph_cost: np.float32
    insertion: np.float32
    boost_cost: np.float32
    rest: np.float32


@jit
def accepted_endings(search, channel):
    """All ways to end with whole words and `</s>`, ENDING [N], in order.

    Of equal ones the first wins.
    """
    frontier, count = channel.frontier, 0
    for i in range(channel.counts[k.FRONTIER]):
        node = int64(frontier[i].node)
        if search.space.has_lexicon and node != 0:
            count += 2 * num_word_ends(search, node)
        else:
            count += 2
    endings = np.zeros(count, k.ENDING)
    _fill_accepted(search, channel, endings)
    return endings


@part
def _fill_accepted(search, channel, endings):
    space, scales, frontier = search.space, search.scales, channel.frontier
    at = 0
    for i in range(channel.counts[k.FRONTIER]):
        entry = frontier[i]
        if not space.has_lexicon or entry.node == 0:
            end_cost = final(space.automaton, 0, entry.state)
            last = LastWord(
                pron=int64(-1),
                label=int64(-1),
                olabel=int64(0),
                graph_cost=float32(end_cost - entry.lookahead_cost),
                insertion=_ZERO,
                boost_cost=_ZERO,
                rest=boosts_at_end(search, entry.boost),
            )
            at = _add_endings(scales, channel, i, last, endings, at)
            continue
        for number in range(num_word_ends(search, entry.node)):
            end = word_end(search, entry, number)
            end_cost = final(space.automaton, 0, end.state)
            credit, after = credit_word(search, entry.boost, end.word)
            bonus = float32(end.bonus - advance_of(search, entry.node))
            credit = float32(credit + bonus)
            boost_cost, boost = pay_step(search, entry.boost, credit, after)
            last = LastWord(
                pron=int64(end.pron),
                label=int64(end.label),
                olabel=olabel_of(end),
                graph_cost=float32(float32(end.cost + end_cost) - entry.lookahead_cost),
                insertion=scales.word_insertion,
                boost_cost=boost_cost,
                rest=boosts_at_end(search, boost),
            )
            at = _add_endings(scales, channel, i, last, endings, at)


@inlined
def _add_endings(scales, channel, i, last, endings, at):
    """Add the endings of both phases of entry `i`; where the next one goes."""
    entry = channel.frontier[i]
    for phase in range(2):
        before = entry.nonblank_cost if phase == 1 else entry.blank_cost
        cost = float32(before + float32(scales.lm_scale * last.graph_cost))
        cost = float32(float32(cost + last.insertion) + last.boost_cost)
        cost = float32(cost + last.rest)
        ending = endings[at]
        ending.cost = cost if before < _INF and last.graph_cost < _INF else _INF
        _fill_ending(ending, channel, i, phase)
        ending.graph_cost, ending.olabel = last.graph_cost, last.olabel
        ending.boost_cost = float32(float32(last.boost_cost + _ZERO) + last.rest)
        if last.label >= 0 and scales.by_text:
            ending.text = text_with(entry.text, last.label)
        ending.pron = last.pron
        at += 1
    return at


@inlined
def _fill_ending(ending, channel, i, phase):
    """What an ending takes over from a phase of entry `i`."""
    entry, nonblank = channel.frontier[i], phase == 1
    ending.entry, ending.phase = i, phase
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


@part
def _fill_unfinished(search, channel, endings):
    for i in range(channel.counts[k.FRONTIER]):
        entry = channel.frontier[i]
        rest = boosts_at_end(search, entry.boost)
        if search.space.has_lexicon:
            rest = float32(rest + advance_of(search, entry.node))
        lookahead = entry.lookahead_cost if entry.lookahead_cost < _INF else _ZERO
        graph_cost = float32(search.scales.lm_scale * float32(-lookahead))
        for phase in range(2):
            before = entry.nonblank_cost if phase == 1 else entry.blank_cost
            cost = float32(float32(before + graph_cost) + rest)
            ending = endings[2 * i + phase]
            ending.cost = cost if before < _INF else _INF
            _fill_ending(ending, channel, i, phase)
            ending.graph_cost, ending.boost_cost = float32(-lookahead), rest
            ending.olabel, ending.pron = 0, -1
