"""Noting arcs for a lattice while the kernels search; `lattice_pack.py` has the rule.

    note      before a frame is settled: the candidates that lead to what goes on
    prune     now and then: drops what cannot be part of the lattice
    spread    at the end: the extra cost of all states
    keep      after it: drops what is above the limit
    gather    and after that: what is left, with its costs

The search goes on from one phase of an entry where both may do the same. What it does
not consider from the dearer one is priced here: it costs no less, so that the cheaper
one's candidate is there if it counts.

The extra cost of a state is no less than what it is with every entry of the frontier
at 0. So dropping early drops nothing that counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int64, uint32

from wfstdec.jit import inlined, jit, kernel
from wfstdec.jit.sorting import index_of
from wfstdec.lattice.arrays import REPEATED
from wfstdec.lm.kernels import step
from wfstdec.text.symbols import EPSILON
from wfstdec.trie.cpu import arrays as k
from wfstdec.trie.cpu.merge import slot_of
from wfstdec.trie.cpu.nodes import (
    advance_of,
    credit_token,
    credit_word,
    num_word_ends,
    olabel_of,
    pay_step,
    step_token,
    token_of,
    word_end,
)
from wfstdec.trie.cpu.pruning import loosened, step_cost

_DROPPED = uint32(0xFFFFFFFF)
"""In the place of an ilabel."""
_INF = float32(np.inf)
_REPEATED = uint32(REPEATED)
_NO_COST = float32(0)


class Step(NamedTuple):
    """Costs of a token that begins, beside acoustics.

    Attributes:
        olabel: The word that ends; without a lexicon the token's ilabel.
        graph_cost, insertion, boost_cost: Unscaled; of word and token; what boosts
            make of it.
    """

    olabel: int
    graph_cost: np.float32
    insertion: np.float32
    boost_cost: np.float32


@kernel
def note(search, scratch, utterance, record, made, cutoff):
    """Note what leads to the entries that go on, and these entries; do they fit?

    `made`: how many entries go on, how many tokens begin.
    """
    num_entries, num_candidates = made
    counts, entries = record.counts, scratch.new_entries
    num_sources = utterance.counts[k.FRONTIER]
    most = num_candidates + 2 * num_sources  # a blank, and the last token again
    if counts[k.NUM_ARCS] + 2 * most > len(record.arcs):
        return False
    if counts[k.NUM_PLACES] + num_entries > len(record.places):
        return False
    first = counts[k.NUM_PLACES]
    best = entries[index_of(scratch.keys[0])].cost
    for r in range(num_entries):
        new, place = entries[index_of(scratch.keys[r])], record.places[first + r]
        # The slots of `merge` still say which entry a candidate leads to; `same_place`
        # says which of these go on, and where.
        new.same_place = r  # no texts are kept apart: nothing else stands there
        place.cost = float32(new.cost - best)
        place.lookahead_cost, place.spelling = new.lookahead_cost, new.spelling
        place.state, place.node, place.boost = new.state, new.node, new.boost
        place.frame = utterance.counts[k.FRAMES] + 1
        nonblank = float32(new.nonblank_cost - best)
        place.nonblank_first = nonblank < float32(new.blank_cost - best)
    stamp, noted, q = scratch.counts[k.STAMP], counts[k.NUM_ARCS], int64(0)
    for source in range(num_sources):
        for phase in range(2):
            if _fill_stay(search, scratch, utterance, num_candidates, source, phase):
                c = scratch.candidates[num_candidates]
                if c.cost <= cutoff:
                    noted = _note_into(
                        *(search, scratch, utterance, record, noted),
                        *(num_candidates, int64(source), cutoff),
                    )
        while q < num_candidates and scratch.candidates[q].source == source:
            c = scratch.candidates[q]
            if c.cost <= cutoff:
                _, i = slot_of(scratch, stamp, c)
                noted = _note_into(
                    search, scratch, utterance, record, noted, q, i, cutoff
                )
            q += 1
    counts[k.NUM_ARCS], counts[k.FIRST] = noted, first
    counts[k.NUM_PLACES] = first + num_entries
    return True


@inlined
def _fill_stay(search, scratch, utterance, q, source, phase):
    """Let candidate `q` be a blank (0), or the last token again (1); is there one?"""
    c, entry = scratch.candidates[q], utterance.frontier[source]
    c.source, c.token, c.pron = source, -1, -1
    c.node, c.to_nonblank = entry.node, phase == 1
    c.from_nonblank = phase == 1 or entry.blank_cost > entry.nonblank_cost
    c.cost = scratch.again_costs[source]
    if phase == 0:
        before = min(entry.blank_cost, entry.nonblank_cost)
        c.cost = float32(before + scratch.costs[search.space.blank])
    return c.cost < _INF


@inlined
def _note_into(search, scratch, utterance, record, noted, q, i, cutoff):
    """Note candidate `q`, which leads into entry `i`, if that goes on."""
    c, new = scratch.candidates[q], scratch.new_entries[i]
    if new.same_place < 0:
        return noted
    least = new.nonblank_cost if c.to_nonblank else new.blank_cost
    # Places of this frame come behind those that are there.
    to = 2 * (record.counts[k.NUM_PLACES] + new.same_place) + int64(c.to_nonblank)
    return _note(search, scratch, utterance, record, noted, q, to, least, cutoff)


@inlined
def _note(search, scratch, utterance, record, noted, q, to, least, cutoff):
    """Note candidate `q`, and that of the other phase; how many arcs there are.

    `to`: the state that it leads to, which costs `least`.
    """
    c, frontier = scratch.candidates[q], utterance.frontier
    source, blank = frontier[c.source], int64(search.space.blank)
    token, repeated = int64(c.token), uint32(0)
    if token < 0:
        token = blank
        if c.to_nonblank:
            token, repeated = token_of(search, source.node), _REPEATED
    ilabel = uint32(token + 1) | repeated
    state = 2 * (record.counts[k.FIRST] + c.source) + int64(c.from_nonblank)
    excess = float32(c.cost - least)
    if excess <= record.limit:
        arc = record.arcs[noted]
        arc.state, arc.nextstate, arc.ilabel = state, to, ilabel
        arc.pron, arc.excess, arc.acoustic = c.pron, excess, scratch.unscaled[token]
        noted += 1
    this, other = source.blank_cost, source.nonblank_cost
    if c.from_nonblank:
        this, other = other, this
    # The search went on from the cheaper phase alone. The dearer one leads to the same
    # place by the same token, and is an arc of the lattice too.
    if repeated != uint32(0) or not other < _INF:
        return noted
    if token != blank and token == token_of(search, source.node):
        return noted  # the last token again only follows a blank
    bound = float32(least + record.limit)
    # Both phases pay the same for the step: this is its cost but for rounding. What is
    # far above the limit need not be priced exactly, word by word.
    if float32(c.cost + float32(other - this)) > loosened(bound, other):
        return noted
    cost = float32(other + scratch.costs[blank])
    if token != blank:
        made = step_of(search, source, c, token, c.pron)
        cost = step_cost(search.params, other, made)
        cost = float32(cost + scratch.costs[token])
    excess = float32(cost - least)
    if cost <= cutoff and excess <= record.limit:
        arc = record.arcs[noted]
        arc.state, arc.nextstate, arc.ilabel = state ^ 1, to, ilabel
        arc.pron, arc.excess, arc.acoustic = c.pron, excess, scratch.unscaled[token]
        noted += 1
    return noted


@inlined
def step_of(search, source, to, token, pron):
    """The step in which a token begins, and perhaps a pronunciation ends.

    Args:
        search: `Search`.
        source: Where it begins: a record with state, node, boost, spelling.
        to: Where it leads: one with node.
        token: The token.
        pron: The pronunciation, -1 for none.
    """
    space, params = search.space, search.params
    if not space.has_lexicon:
        graph_cost, _ = step(space.automaton, 0, source.state, token)
        boost_cost, _ = step_token(search, source.boost, token, _NO_COST)
        label, insertion = int64(token + 1), params.token_insertion
        return Step(
            label, float32(graph_cost), insertion, float32(boost_cost + _NO_COST)
        )
    advance = advance_of(search, to.node), advance_of(search, source.node)
    lookahead, before = to.lookahead_cost, source.lookahead_cost
    if pron < 0:
        bonus = float32(advance[0] - advance[1])
        boost_cost, _ = step_token(search, source.boost, token, bonus)
        graph_cost = float32(lookahead - before)
        return Step(
            int64(EPSILON),
            graph_cost,
            params.token_insertion,
            float32(boost_cost + _NO_COST),
        )
    end = _end_of(search, source, pron)
    credit, after = credit_word(search, source.boost, end.word)
    if search.phrases.of_tokens:
        token_credit, state = credit_token(search.phrases, source.boost, token)
        credit, after = float32(credit + token_credit), state
    bonus = float32(float32(end.bonus + advance[0]) - advance[1])
    credit = float32(credit + bonus)
    boost_cost, _ = pay_step(search, source.boost, credit, uint32(after))
    graph_cost = float32(float32(end.cost + lookahead) - before)
    insertion = float32(params.token_insertion + params.word_insertion)
    return Step(olabel_of(end), graph_cost, insertion, float32(boost_cost + _NO_COST))


@inlined
def _end_of(search, source, pron):
    """The word that ends with a pronunciation at the node of an entry."""
    trie, number = search.space.trie, int64(0)
    if pron < len(trie.pron_word):
        number = int64(pron) - int64(trie.node_pron_splits[source.node])
    end = word_end(search, None, source, number)
    while end.pron != pron and number + 1 < num_word_ends(search, source.node):
        number += 1
        end = word_end(search, None, source, number)
    return end


@jit
def spread(record, ends):
    """Find the extra cost of states; arcs above the limit are dropped.

    `ends`: float32 [2 F], what ending in each state of the frontier costs more than the
    best end.
    """
    arcs, extra, limit = record.arcs, record.extra, record.limit
    extra[: 2 * record.counts[k.NUM_PLACES]] = np.inf
    first = 2 * record.counts[k.FIRST]
    for i in range(len(ends)):
        if ends[i] <= limit:
            extra[first + i] = ends[i]
    # Arcs were noted in the order of frames, so that backwards all arcs that leave a
    # state are seen before those that enter it.
    for a in range(record.counts[k.NUM_ARCS] - 1, -1, -1):
        one = arcs[a]
        through = float32(one.excess + extra[one.nextstate])
        if through <= limit and through < np.inf:
            extra[one.state] = min(extra[one.state], through)
        else:
            one.ilabel = _DROPPED


@jit
def prune(record, num_entries):
    """Drop what cannot be part of the lattice; renumbers the rest."""
    # Each entry may yet be on the best path: none of them costs extra.
    spread(record, np.zeros(2 * num_entries, np.float32))
    keep(record)


@jit
def keep(record):
    """Drop arcs that are marked, and places that are not reached.

    `record.number` then has the new numbers of those that are left.
    """
    counts, number, arcs = record.counts, record.number, record.arcs
    kept, first = 0, counts[k.FIRST]
    for n in range(counts[k.NUM_PLACES]):
        if n == first:
            counts[k.FIRST] = kept
        if min(record.extra[2 * n], record.extra[2 * n + 1]) < np.inf:
            number[n] = kept
            record.places[kept] = record.places[n]
            kept += 1
    counts[k.NUM_PLACES] = kept
    kept = 0
    for a in range(counts[k.NUM_ARCS]):
        one = arcs[a]
        if one.ilabel != _DROPPED:
            arcs[kept] = one
            arcs[kept].state = 2 * number[one.state >> 1] + (one.state & 1)
            arcs[kept].nextstate = 2 * number[one.nextstate >> 1] + (one.nextstate & 1)
            kept += 1
    counts[k.NUM_ARCS] = kept


@jit
def gather(search, record, ends):
    """After `keep`, what is left: the columns of `RecordedArcs`, those of ends last.

    `ends`: ENDING [N], with what each costs more than the best for its cost, and the
    place of its entry.
    """
    arcs, places, num_arcs = record.arcs, record.places, record.counts[k.NUM_ARCS]
    count = num_arcs + len(ends)
    state, nextstate = np.empty(count, np.int64), np.empty(count, np.int64)
    ilabel, olabel = np.empty(count, np.uint32), np.empty(count, np.uint32)
    excess, graph_cost = np.empty(count, np.float32), np.empty(count, np.float32)
    acoustic, boost_cost = np.empty(count, np.float32), np.empty(count, np.float32)
    start = places[0].lookahead_cost
    if not start < _INF:
        start = _NO_COST
    for a in range(count):
        if a < num_arcs:
            one = arcs[a]
            state[a], nextstate[a] = one.state, one.nextstate
            ilabel[a], excess[a], acoustic[a] = one.ilabel, one.excess, one.acoustic
            made, token = _nothing(), int64(one.ilabel) - 1
            if not one.ilabel & _REPEATED and token != search.space.blank:
                source, to = places[one.state >> 1], places[one.nextstate >> 1]
                made = step_of(search, source, to, token, one.pron)
        else:
            end = ends[a - num_arcs]
            state[a] = 2 * end.entry + end.phase
            nextstate[a] = -1
            ilabel[a], excess[a], acoustic[a] = uint32(0), end.cost, _NO_COST
            made = Step(int64(end.olabel), end.graph_cost, _NO_COST, end.boost_cost)
        olabel[a], graph_cost[a] = made.olabel, made.graph_cost
        boost_cost[a] = made.boost_cost
        if places[state[a] >> 1].frame == 0:
            graph_cost[a] = float32(graph_cost[a] + start)
    return state, nextstate, ilabel, olabel, excess, graph_cost, acoustic, boost_cost


@inlined
def _nothing():
    """A step in which no token begins."""
    return Step(int64(EPSILON), _NO_COST, _NO_COST, _NO_COST)
