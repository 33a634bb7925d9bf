"""The end of an utterance: all ways to end, and the way back through the trace.

status = end(search, scratch, utterance, outcome, paths, rows, at)    # in kernels

endings = accepted_endings(search, utterance)            # whole words and `</s>`
endings = unfinished_endings(search, utterance)          # where none is accepted
rows, before = trace_back(trace, at, token_end)
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int64, uint64

from wfstdec.jit import inlined, jit, kernel, part
from wfstdec.jit.arrays import first_equal
from wfstdec.jit.sorting import index_of, key_of, sort_keys
from wfstdec.lm.kernels import final, unanswered
from wfstdec.search.log_add import log_add
from wfstdec.trie.cpu import arrays
from wfstdec.trie.cpu.expand import text_with
from wfstdec.trie.cpu.merge import is_before, new_table
from wfstdec.trie.cpu.nodes import (
    Step,
    advance_of,
    boosts_at_end,
    credit_word,
    num_word_ends,
    olabel_of,
    pay_step,
    step_cost,
    word_end,
)
from wfstdec.trie.search_space import WordEnd

_INF = float32(np.inf)
_NO_COST = float32(0)
_HIGH_BITS = uint64(32)


@inlined
def end(search, scratch, utterance, outcome, paths, rows, at):
    """Write the paths of an utterance that is over, best first."""
    # Nothing of the utterance changes: the caller makes room, or asks the language
    # model, and this is done again.
    counts, count, complete = utterance.counts, int64(0), False
    endings = scratch.endings
    if counts[arrays.DIED] < 0:
        count = _num_accepted(search, utterance)
        if count > len(endings):
            return arrays.GROW_CANDIDATES
        _fill_accepted(search, utterance, endings)
        if unanswered(search.space.automaton):
            return arrays.ASK_MODEL
        for i in range(count):
            complete |= endings[i].cost < _INF
    if not complete:
        count = 2 * counts[arrays.FRONTIER]
        if count > len(endings):
            return arrays.GROW_CANDIDATES
        _fill_unfinished(search, utterance, endings)
    if search.params.by_text:
        num_paths = _best_texts(search.params, scratch, count)
    else:
        num_paths = int64(1)
        best = _best_ending(search, scratch, utterance, count)
        endings[0].best_of_text = best
        endings[0].cost_of_text = endings[best].cost
        scratch.keys[0] = uint64(0)
    outcome.first, outcome.count = at[arrays.NUM_PATHS], num_paths
    outcome.base, outcome.frames = utterance.base[0], counts[arrays.FRAMES]
    outcome.died, outcome.complete = counts[arrays.DIED], int64(complete)
    if at[arrays.NUM_PATHS] + num_paths > len(paths):
        return arrays.GROW_PATHS
    first = at[arrays.NUM_ROWS]
    for n in range(num_paths):
        text = index_of(scratch.keys[n])
        ending, path = endings[endings[text].best_of_text], paths[outcome.first + n]
        length = _length(utterance.trace, int64(ending.trace))
        if first + length > len(rows):
            return arrays.GROW_ROWS
        path.cost, path.pron = endings[text].cost_of_text, ending.pron
        path.acoustic, path.first, path.count = ending.acoustic, first, length
        path.before = _fill_rows(
            utterance.trace,
            int64(ending.trace),
            int64(ending.token_end),
            rows,
            first + length,
        )
        first += length
    at[arrays.NUM_PATHS] += num_paths
    at[arrays.NUM_ROWS] = first
    return arrays.OK


@inlined
def _best_ending(search, scratch, utterance, count):
    """Find the ending of least cost; of equal ones that of the earlier entry."""
    # Where nothing is summed entries have no order of their own.
    endings, frontier, best = scratch.endings, utterance.frontier, int64(0)
    for i in range(1, count):
        one, least = endings[i], endings[best]
        if one.cost > least.cost:
            continue
        if one.cost == least.cost:
            here, there = frontier[one.entry], frontier[least.entry]
            if here.cost > there.cost or one.entry == least.entry:
                continue
            if here.cost == there.cost:
                if not is_before(search.space.automaton, here, there):
                    continue
        best = i
    return best


@inlined
def _best_texts(params, scratch, count):
    """Merge the endings of each text, as `_best_endings` of the reference; how many."""
    # The texts' numbers are then in `scratch.keys`, the least cost first: of equal ones
    # that which came up first.
    endings, slots, keys = scratch.endings, scratch.slots, scratch.keys
    stamp, num_texts = new_table(scratch, count), int64(0)
    mask = uint64(scratch.counts[arrays.SLOT_MASK])
    for i in range(count):
        one = endings[i]
        if not one.cost < _INF:
            continue
        # Texts are hashes: their bits are as good as another hash of them.
        slot, text = (one.text >> _HIGH_BITS) & mask, int64(-1)
        while slots[slot] >> 32 == stamp:
            other = slots[slot] & int64(0xFFFFFFFF)
            if endings[endings[other].best_of_text].text == one.text:
                text = other
                break
            slot = (slot + uint64(1)) & mask
        if text < 0:
            slots[slot] = (stamp << 32) | num_texts
            endings[num_texts].best_of_text = i
            endings[num_texts].cost_of_text = one.cost
            num_texts += 1
            continue
        known = endings[text]
        if one.cost < endings[known.best_of_text].cost:
            known.best_of_text = i
        if params.sums:
            known.cost_of_text = log_add(known.cost_of_text, one.cost)
        else:
            known.cost_of_text = min(known.cost_of_text, one.cost)
    for text in range(num_texts):
        keys[text] = key_of(endings[text].cost_of_text, text)
    sort_keys(keys, num_texts, scratch.stack)
    return min(num_texts, int64(params.most_paths))


@kernel
def end_alone(search, scratch, utterance, outcomes, paths, rows, at):
    """Write the paths of an utterance that is over; see `end`."""
    return end(search, scratch, utterance, outcomes[0], paths, rows, at)


@jit
def accepted_endings(search, utterance):
    """All ways to end with whole words and `</s>`, ENDING [N], in order."""
    # Of equal ones the first wins.
    endings = np.zeros(_num_accepted(search, utterance), arrays.ENDING)
    _fill_accepted(search, utterance, endings)
    return endings


@inlined
def _num_accepted(search, utterance):
    """Count the ways to end with whole words."""
    count = int64(0)
    for i in range(utterance.counts[arrays.FRONTIER]):
        count += 2 * _num_ends(search, utterance.frontier[i])
    return count


@inlined
def _num_ends(search, entry):
    """Number of words that may end with the utterance, or none in one way."""
    # Between words, or where tokens are what counts: `</s>` may follow at once.
    if not search.space.has_lexicon or entry.node == 0:
        return int64(1)
    return num_word_ends(search, entry.node)


@part
def _fill_accepted(search, utterance, endings):
    space, params, frontier = search.space, search.params, utterance.frontier
    at = 0
    for i in range(utterance.counts[arrays.FRONTIER]):
        entry, none = frontier[i], int64(-1)
        for number in range(_num_ends(search, entry)):
            end = WordEnd(none, none, _NO_COST, entry.state, none, _NO_COST)
            boost_cost, boost, insertion = _NO_COST, entry.boost, _NO_COST
            if space.has_lexicon and entry.node != 0:
                end = word_end(search, None, entry, number)
                credit, after = credit_word(search, entry.boost, end.word)
                bonus = float32(end.bonus - advance_of(search, entry.node))
                credit = float32(credit + bonus)
                boost_cost, boost = pay_step(search, entry.boost, credit, after)
                insertion = params.word_insertion
            graph_cost = float32(end.cost + final(space.automaton, 0, end.state))
            graph_cost = float32(graph_cost - entry.lookahead_cost)
            last = Step(olabel_of(end), graph_cost, insertion, boost_cost)
            rest = boosts_at_end(search, boost)
            for phase in range(2):
                before = entry.nonblank_cost if phase == 1 else entry.blank_cost
                cost, ending = step_cost(params, before, last), endings[at]
                ending.cost = _INF
                if before < _INF and graph_cost < _INF:
                    ending.cost = float32(cost + rest)
                _fill_ending(ending, utterance, i, phase)
                ending.graph_cost, ending.olabel = graph_cost, last.olabel
                # Adding 0 makes 0.0 of -0.0, as on other arcs of a lattice.
                ending.boost_cost = float32(float32(boost_cost + _NO_COST) + rest)
                if end.label >= 0 and params.by_text:
                    ending.text = text_with(entry.text, end.label)
                ending.pron = end.pron
                at += 1


@inlined
def _fill_ending(ending, utterance, i, phase):
    """Fill in what an ending takes over from a phase of entry `i`."""
    entry, nonblank = utterance.frontier[i], phase == 1
    ending.entry, ending.phase = i, phase
    ending.text = entry.text
    ending.trace = entry.nonblank_trace if nonblank else entry.blank_trace
    ending.token_end = utterance.counts[arrays.FRAMES] if nonblank else entry.token_end
    ending.acoustic = entry.nonblank_acoustic if nonblank else entry.blank_acoustic


@jit
def unfinished_endings(search, utterance):
    """All entries as they are, without their look-ahead, ENDING [N]."""
    endings = np.zeros(2 * utterance.counts[arrays.FRONTIER], arrays.ENDING)
    _fill_unfinished(search, utterance, endings)
    return endings


@part
def _fill_unfinished(search, utterance, endings):
    for i in range(utterance.counts[arrays.FRONTIER]):
        entry = utterance.frontier[i]
        rest = boosts_at_end(search, entry.boost)
        if search.space.has_lexicon:
            rest = float32(rest + advance_of(search, entry.node))
        # Nothing more is said: what was charged for the rest of a word is given back.
        lookahead = entry.lookahead_cost if entry.lookahead_cost < _INF else _NO_COST
        graph_cost = float32(search.params.lm_scale * float32(-lookahead))
        for phase in range(2):
            before = entry.nonblank_cost if phase == 1 else entry.blank_cost
            cost = float32(float32(before + graph_cost) + rest)
            ending = endings[2 * i + phase]
            ending.cost = cost if before < _INF else _INF
            _fill_ending(ending, utterance, i, phase)
            ending.graph_cost, ending.boost_cost = float32(-lookahead), rest
            ending.olabel, ending.pron = 0, -1


@jit
def trace_back(trace, at, token_end):
    """The tokens up to a position in the trace, first to last."""
    # Returns (int32 [N, 4], where the token before them ends: `token_end` if there are
    # none).
    length = _length(trace, at)
    rows = np.empty((length, 4), np.int32)
    return rows, _fill_rows(trace, at, token_end, rows, length)


@inlined
def _length(trace, at):
    """Count the tokens up to a position in the trace."""
    length = int64(0)
    while at >= 0:
        length += 1
        at = int64(trace[at].previous)
    return length


@inlined
def _fill_rows(trace, at, token_end, rows, end):
    """Fill in the tokens up to a position in the trace, the last one at `end - 1`."""
    while at >= 0:
        end -= 1
        node = trace[at]
        rows[end, 0], rows[end, 1] = node.token, node.start
        rows[end, 2], rows[end, 3] = token_end, node.pron
        token_end = int64(node.previous_end)
        at = int64(node.previous)
    return token_end


@jit
def settle_trace(utterance):
    """Take out of the trace what all entries have in common, and what none has."""
    # Equal tokens after the same node become one node. Nodes come after the ones that
    # they follow.
    # Returns (TRACE_NODE [N], what is settled, in order; where its last token ends, -1
    # where that is in question).
    trace, counts, frontier = utterance.trace, utterance.counts, utterance.frontier
    num_nodes = counts[arrays.TRACE]
    nodes = trace[:num_nodes]
    first = first_equal(
        nodes["previous"],
        nodes["token"],
        nodes["pron"],
        nodes["start"],
        nodes["previous_end"],
    )
    through = np.zeros(num_nodes, np.int64)
    num_paths = 0
    for i in range(counts[arrays.FRONTIER]):
        entry = frontier[i]
        entry.blank_trace = _canonical(entry.blank_cost, entry.blank_trace, first)
        at = _canonical(entry.nonblank_cost, entry.nonblank_trace, first)
        entry.nonblank_trace = at
        num_paths += _count(entry.blank_cost, entry.blank_trace, through)
        num_paths += _count(entry.nonblank_cost, at, through)
    for i in range(num_nodes - 1, -1, -1):
        if trace[i].previous >= 0:
            through[trace[i].previous] += through[i]
    number, kept, num_settled = np.full(num_nodes + 1, -1, np.int32), 0, 0
    for i in range(num_nodes):
        num_settled += int64(through[i] == num_paths)
    settled = np.empty(num_settled, arrays.TRACE_NODE)
    num_settled = 0
    for i in range(num_nodes):
        if through[i] == num_paths:
            settled[num_settled] = trace[i]
            num_settled += 1
        elif through[i] > 0:
            number[i] = kept
            trace[kept] = trace[i]
            trace[kept].previous = number[trace[kept].previous]
            kept += 1
    counts[arrays.TRACE] = kept
    end, any_end = int64(-1), False
    for i in range(counts[arrays.FRONTIER]):
        entry = frontier[i]
        entry.blank_trace = number[entry.blank_trace]
        entry.nonblank_trace = number[entry.nonblank_trace]
        if entry.blank_cost < np.inf and not any_end:
            end, any_end = int64(entry.token_end), True
    for i in range(counts[arrays.FRONTIER]):
        entry = frontier[i]
        if entry.nonblank_cost < np.inf or entry.blank_trace >= 0:
            end = int64(-1)
        elif entry.token_end != end:
            end = int64(-1)
    return settled, end


@inlined
def _canonical(cost, at, first):
    """The node of a phase, -1 where it has none, or nothing leads there."""
    return first[at] if cost < np.inf and at >= 0 else np.int32(-1)


@inlined
def _count(cost, at, through):
    """Count the path of a phase, if something leads there."""
    if cost < np.inf:
        if at >= 0:
            through[at] += 1
        return 1
    return 0
