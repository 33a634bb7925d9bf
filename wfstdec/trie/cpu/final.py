"""End of an utterance: all ways to end, and traceback.

status = end(search, scratch, utterance, outcome, paths, rows, at)    # in kernels

endings = endings_of(search, utterance, True)       # whole words and `</s>`
endings = endings_of(search, utterance, False)      # if none is accepted
rows, before = trace_back(trace, at, token_end)
nodes, token_end = settle_trace(utterance)
"""

import numpy as np
from numpy import float32, int64, uint64

from wfstdec.jit import inlined, jit, part
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
    """Write the paths of an ended utterance, best first."""
    # The utterance is unchanged, so that the call can be repeated after arrays have
    # grown or the language model has answered.
    counts, count, complete = utterance.counts, int64(0), False
    endings = scratch.endings
    if counts[arrays.DIED] < 0:
        count = fill_endings(search, utterance, endings, True)
        if count < 0:
            return arrays.GROW_CANDIDATES
        if unanswered(search.space.automaton):
            return arrays.ASK_MODEL
        for i in range(count):
            complete |= endings[i].cost < _INF
    if not complete:
        count = fill_endings(search, utterance, endings, False)
        if count < 0:
            return arrays.GROW_CANDIDATES
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
    # Without sums, entries are unordered.
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
    """Merge the endings of each text, as the reference does; return how many."""
    # The texts' numbers are then in `scratch.keys`, sorted by cost; ties go to the text
    # that came first.
    endings, slots, keys = scratch.endings, scratch.slots, scratch.keys
    stamp, num_texts = new_table(scratch, count), int64(0)
    mask = uint64(scratch.counts[arrays.SLOT_MASK])
    for i in range(count):
        one = endings[i]
        if not one.cost < _INF:
            continue
        # Texts are hashes: their bits are as good as another hash.
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


@jit
def endings_of(search, utterance, accepted):
    """Return all ways to end, as `fill_endings`: ENDING [N], in order."""
    size = 2 * utterance.counts[arrays.FRONTIER]
    while True:
        endings = np.zeros(size, arrays.ENDING)
        count = fill_endings(search, utterance, endings, accepted)
        if count >= 0:
            return endings[:count]
        size *= 2


@part
def fill_endings(search, utterance, endings, accepted):
    """Write ends with whole words and `</s>`, or else all entries; return how many.

    Of equal ones the first wins. Returns -1 if they do not fit.
    """
    space, params, frames = search.space, search.params, utterance.counts[arrays.FRAMES]
    count, none = int64(0), int64(-1)
    for i in range(utterance.counts[arrays.FRONTIER]):
        entry = utterance.frontier[i]
        in_word = space.has_lexicon and entry.node != 0
        num_ends = int64(1)  # between words, and for tokens: `</s>` may follow at once
        if accepted and in_word:
            num_ends = num_word_ends(search, entry.node)
        if count + 2 * num_ends > len(endings):
            return none
        for number in range(num_ends):
            end = WordEnd(none, none, _NO_COST, entry.state, none, _NO_COST)
            boost_cost, boost, insertion = _NO_COST, entry.boost, _NO_COST
            if accepted:
                if in_word:
                    end = word_end(search, None, entry, number)
                    credit, after = credit_word(search, entry.boost, end.word)
                    bonus = float32(end.bonus - advance_of(search, entry.node))
                    credit = float32(credit + bonus)
                    boost_cost, boost = pay_step(search, entry.boost, credit, after)
                    insertion = params.word_insertion
                graph_cost = float32(end.cost + final(space.automaton, end.state))
                graph_cost = float32(graph_cost - entry.lookahead_cost)
                rest = boosts_at_end(search, boost)
                # Adding 0 makes 0.0 of -0.0, as on other arcs of a lattice.
                boosts = float32(float32(boost_cost + _NO_COST) + rest)
            else:
                # Nothing follows: the charge for the rest of a word is refunded.
                charged = entry.lookahead_cost
                graph_cost = float32(-(charged if charged < _INF else _NO_COST))
                rest = boosts_at_end(search, boost)
                if space.has_lexicon:
                    rest = float32(rest + advance_of(search, entry.node))
                boosts = rest
            last = Step(olabel_of(end), graph_cost, insertion, boost_cost)
            for phase in range(2):
                nonblank, ending = phase == 1, endings[count]
                before = entry.nonblank_cost if nonblank else entry.blank_cost
                ending.cost = _INF
                if before < _INF and graph_cost < _INF:
                    ending.cost = float32(step_cost(params, before, last) + rest)
                ending.entry, ending.phase, ending.text = i, phase, entry.text
                if end.label >= 0 and params.by_text:
                    ending.text = text_with(entry.text, end.label)
                ending.trace, ending.token_end = entry.blank_trace, entry.token_end
                ending.acoustic = entry.blank_acoustic
                if nonblank:
                    ending.trace, ending.token_end = entry.nonblank_trace, frames
                    ending.acoustic = entry.nonblank_acoustic
                ending.graph_cost, ending.boost_cost = graph_cost, boosts
                ending.olabel, ending.pron = last.olabel, end.pron
                count += 1
    return count


@jit
def trace_back(trace, at, token_end):
    """Return the tokens up to a position in the trace, first to last."""
    # Returns (int32 [N, 4], end of the token before them: `token_end` without tokens).
    length = _length(trace, at)
    rows = np.empty((length, 4), np.int32)
    return rows, _fill_rows(trace, at, token_end, rows, length)


@inlined
def _length(trace, at):
    length = int64(0)
    while at >= 0:
        length += 1
        at = int64(trace[at].previous)
    return length


@inlined
def _fill_rows(trace, at, token_end, rows, end):
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
    """Remove trace nodes that all entries share, and those that none has.

    Returns (TRACE_NODE [N], the settled ones in order; the end of its last token, -1 if
    it can still change).
    """
    # Equal tokens after the same node become one node. Nodes come after their
    # predecessors.
    trace, counts, frontier = utterance.trace, utterance.counts, utterance.frontier
    num_nodes, num_entries = counts[arrays.TRACE], counts[arrays.FRONTIER]
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
    for i in range(num_entries):
        entry = frontier[i]
        entry.blank_trace = _count(entry.blank_cost, entry.blank_trace, first, through)
        entry.nonblank_trace = _count(
            entry.nonblank_cost, entry.nonblank_trace, first, through
        )
        num_paths += int64(entry.blank_cost < np.inf)
        num_paths += int64(entry.nonblank_cost < np.inf)
    for i in range(num_nodes - 1, -1, -1):
        if trace[i].previous >= 0:
            through[trace[i].previous] += through[i]
    number, kept = np.full(num_nodes + 1, -1, np.int32), 0
    settled, num_settled = np.empty(num_nodes, arrays.TRACE_NODE), 0
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
    end = int64(frontier[0].token_end)
    for i in range(num_entries):
        entry = frontier[i]
        entry.blank_trace = number[entry.blank_trace]
        entry.nonblank_trace = number[entry.nonblank_trace]
        is_settled = entry.nonblank_cost == np.inf and entry.blank_trace < 0
        if not is_settled or entry.token_end != frontier[0].token_end:
            end = int64(-1)
    return settled[:num_settled], end


@inlined
def _count(cost, at, first, through):
    """Count the path of a phase; return its first equal node, -1 without one."""
    if cost < np.inf and at >= 0:
        through[first[at]] += 1
        return first[at]
    return np.int32(-1)
