"""Records of arcs for a lattice during the search; `lattice_pack.py` has the rule.

    record_frame  before a frame is settled: candidates that lead to surviving entries
    prune         regularly, and at the end: drops arcs that no lattice path has
    gather        after the last one: the remaining arcs, with their costs

The search expands one phase of an entry where both may do the same. The candidates of
the phase with higher cost are priced here: they cost no less, so that the expanded
candidate exists if they count.

The extra cost of a state is no less than with every entry of the frontier at 0. So
early dropping keeps every arc of the lattice.
"""

import numpy as np
from numpy import float32, int64, uint32

from wfstdec.jit import inlined, jit, part
from wfstdec.jit.sorting import index_of
from wfstdec.lattice.arrays import REPEATED, pass_back
from wfstdec.lm.kernels import step as lm_step
from wfstdec.text.tokens import EPSILON
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu.merge import slot_of
from wfstdec.trie.cpu.nodes import (
    Step,
    advance_of,
    credit_token,
    credit_word,
    least_cost,
    loosened,
    num_word_ends,
    olabel_of,
    pay_step,
    step_cost,
    step_token,
    token_of,
    word_end,
)

_INF = float32(np.inf)
_REPEATED = uint32(REPEATED)
_NO_COST = float32(0)


@part
def record_frame(search, scratch, utterance, record, sizes, cutoff):
    """Record surviving entries and the arcs to them; False if they do not fit."""
    num_entries, num_candidates = sizes
    counts, entries = record.counts, scratch.new_entries
    num_sources = utterance.counts[arrays.FRONTIER]
    most = num_candidates + 2 * num_sources  # a blank, and the last token again
    if counts[arrays.NUM_ARCS] + 2 * most > len(record.arcs):
        return False
    if counts[arrays.NUM_ENTRIES] + num_entries > len(record.entries):
        return False
    first = counts[arrays.NUM_ENTRIES]
    best = entries[index_of(scratch.keys[0])].cost
    for r in range(num_entries):
        new, target = entries[index_of(scratch.keys[r])], record.entries[first + r]
        # The slots of `merge` map candidates to entries; `previous_same` now has the
        # position of those that survive.
        new.previous_same = r  # unused otherwise: entries have no texts here
        target.cost = float32(new.cost - best)
        target.lookahead_cost, target.spelling = new.lookahead_cost, new.spelling
        target.state, target.node, target.boost = new.state, new.node, new.boost
        target.frame = utterance.counts[arrays.FRAMES] + 1
        nonblank = float32(new.nonblank_cost - best)
        target.nonblank_first = nonblank < float32(new.blank_cost - best)
    stamp, num_arcs, q = scratch.counts[arrays.STAMP], counts[arrays.NUM_ARCS], int64(0)
    for source in range(num_sources):
        entry, c = utterance.frontier[source], scratch.candidates[num_candidates]
        for phase in range(2):  # a blank, or the last token again
            c.source, c.token, c.pron = source, -1, -1
            c.node, c.to_nonblank = entry.node, phase == 1
            c.from_nonblank = phase == 1 or entry.blank_cost > entry.nonblank_cost
            c.cost = scratch.again_costs[source]
            if phase == 0:
                c.cost = float32(least_cost(entry) + scratch.costs[search.space.blank])
            if c.cost <= cutoff:
                num_arcs = _record_arc(
                    *(search, scratch, utterance, record, num_arcs),
                    *(num_candidates, int64(source), cutoff),
                )
        while q < num_candidates and scratch.candidates[q].source == source:
            c = scratch.candidates[q]
            if c.cost <= cutoff:
                _, i = slot_of(scratch, stamp, c, True)
                num_arcs = _record_arc(
                    *(search, scratch, utterance, record, num_arcs, q, i, cutoff)
                )
            q += 1
    counts[arrays.NUM_ARCS], counts[arrays.FIRST] = num_arcs, first
    counts[arrays.NUM_ENTRIES] = first + num_entries
    return True


@inlined
def _record_arc(search, scratch, utterance, record, num_arcs, q, i, cutoff):
    """Record candidate `q` of entry `i` from both phases of its source.

    The search expanded only the lower-cost phase. The other one leads to the same state
    by the same token.
    """
    new, c = scratch.new_entries[i], scratch.candidates[q]
    if new.previous_same < 0:
        return num_arcs
    source, blank = utterance.frontier[c.source], int64(search.space.blank)
    # Entries of this frame follow the existing ones.
    to = 2 * (record.counts[arrays.NUM_ENTRIES] + new.previous_same)
    to += int64(c.to_nonblank)
    least = new.nonblank_cost if c.to_nonblank else new.blank_cost
    token, repeated = int64(c.token), uint32(0)
    if token < 0:
        token = blank
        if c.to_nonblank:
            token, repeated = token_of(search, source.node), _REPEATED
    state = 2 * (record.counts[arrays.FIRST] + c.source) + int64(c.from_nonblank)
    cost = c.cost
    for way in range(2):
        if way == 1:
            this, other = source.blank_cost, source.nonblank_cost
            if c.from_nonblank:
                this, other = other, this
            if repeated != uint32(0) or not other < _INF:
                break
            if token != blank and token == token_of(search, source.node):
                break  # the last token again only follows a blank
            # Both phases pay the same for the step: this is its cost without rounding.
            # Far above the limit it need not be priced exactly, word by word.
            bound = float32(least + record.limit)
            if float32(c.cost + float32(other - this)) > loosened(bound, other):
                break
            cost = float32(other + scratch.costs[blank])
            if token != blank:
                step = step_of(search, source, c, token, c.pron)
                cost = step_cost(search.params, other, step)
                cost = float32(cost + scratch.costs[token])
        excess = float32(cost - least)
        if cost <= cutoff and excess <= record.limit:
            arc = record.arcs[num_arcs]
            arc.state, arc.nextstate = state ^ way, to
            arc.ilabel = uint32(token + 1) | repeated
            arc.pron, arc.excess, arc.acoustic = c.pron, excess, scratch.unscaled[token]
            num_arcs += 1
    return num_arcs


@inlined
def step_of(search, source, to, token, pron):
    """Return the step in which a token begins, and perhaps a pronunciation ends."""
    space, params = search.space, search.params
    if not space.has_lexicon:
        graph_cost, _ = lm_step(space.automaton, 0, source.state, token)
        boost_cost, _ = step_token(search, source.boost, token, _NO_COST)
        label, insertion = int64(token + 1), params.token_insertion
        boost_cost = float32(boost_cost + _NO_COST)
        return Step(label, float32(graph_cost), insertion, boost_cost)
    advance = advance_of(search, to.node), advance_of(search, source.node)
    lookahead, before = to.lookahead_cost, source.lookahead_cost
    if pron < 0:
        bonus = float32(advance[0] - advance[1])
        boost_cost, _ = step_token(search, source.boost, token, bonus)
        graph_cost = float32(lookahead - before)
        boost_cost = float32(boost_cost + _NO_COST)
        return Step(int64(EPSILON), graph_cost, params.token_insertion, boost_cost)
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
    trie, number = search.space.trie, int64(0)
    if pron < len(trie.pron_word):
        number = int64(pron) - int64(trie.node_pron_splits[source.node])
    end = word_end(search, None, source, number)
    while end.pron != pron and number + 1 < num_word_ends(search, source.node):
        number += 1
        end = word_end(search, None, source, number)
    return end


@jit
def prune(record, ends):
    """Drop arcs that cannot be part of the lattice; renumber the rest."""
    # `ends`: the extra cost of each state of the frontier, float32 [2 F]; 0 before the
    # end of the utterance, when each may be on the best path. `record.number` then has
    # the new numbers of entries.
    counts, arcs, limit = record.counts, record.arcs, record.limit
    number, extra = record.number, record.extra
    num_entries, first = counts[arrays.NUM_ENTRIES], counts[arrays.FIRST]
    extra[: 2 * num_entries] = np.inf
    for i in range(len(ends)):
        if ends[i] <= limit:
            extra[2 * first + i] = ends[i]
    pass_back(arcs[: counts[arrays.NUM_ARCS]], extra, limit)
    kept = 0
    for n in range(num_entries):
        if n == first:
            counts[arrays.FIRST] = kept
        if min(extra[2 * n], extra[2 * n + 1]) < np.inf:
            number[n] = kept
            record.entries[kept] = record.entries[n]
            kept += 1
    counts[arrays.NUM_ENTRIES] = kept
    kept = 0
    for a in range(counts[arrays.NUM_ARCS]):
        one = arcs[a]
        if one.excess < np.inf:
            arcs[kept] = one
            arcs[kept].state = 2 * number[one.state >> 1] + (one.state & 1)
            arcs[kept].nextstate = 2 * number[one.nextstate >> 1] + (one.nextstate & 1)
            kept += 1
    counts[arrays.NUM_ARCS] = kept


@jit
def gather(search, record, ends):
    """Return the remaining columns of `RecordedArcs`, those of ends last."""
    arcs, entries = record.arcs, record.entries
    num_arcs = record.counts[arrays.NUM_ARCS]
    count = num_arcs + len(ends)
    state, nextstate = np.empty(count, np.int64), np.empty(count, np.int64)
    ilabel, olabel = np.empty(count, np.uint32), np.empty(count, np.uint32)
    excess, graph_cost = np.empty(count, np.float32), np.empty(count, np.float32)
    acoustic, boost_cost = np.empty(count, np.float32), np.empty(count, np.float32)
    start = entries[0].lookahead_cost
    if not start < _INF:
        start = _NO_COST
    for a in range(count):
        if a < num_arcs:
            one = arcs[a]
            state[a], nextstate[a] = one.state, one.nextstate
            ilabel[a], excess[a], acoustic[a] = one.ilabel, one.excess, one.acoustic
            token = int64(one.ilabel) - 1
            made = Step(int64(EPSILON), _NO_COST, _NO_COST, _NO_COST)
            if not one.ilabel & _REPEATED and token != search.space.blank:
                source, to = entries[one.state >> 1], entries[one.nextstate >> 1]
                made = step_of(search, source, to, token, one.pron)
        else:
            end = ends[a - num_arcs]
            state[a] = 2 * end.entry + end.phase
            nextstate[a] = -1
            ilabel[a], excess[a], acoustic[a] = uint32(0), end.cost, _NO_COST
            made = Step(int64(end.olabel), end.graph_cost, _NO_COST, end.boost_cost)
        olabel[a], graph_cost[a] = made.olabel, made.graph_cost
        boost_cost[a] = made.boost_cost
        if entries[state[a] >> 1].frame == 0:
            graph_cost[a] = float32(graph_cost[a] + start)
    return state, nextstate, ilabel, olabel, excess, graph_cost, acoustic, boost_cost
