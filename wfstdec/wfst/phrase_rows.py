"""Phrases as the CPU kernels follow them: a row for each boost state, one step.

    phrases = lay_out(compiled, blank)
    cost, boost = step(phrases, boost, label_of(phrases, arc))

Most labels lead from where the search is back to the root. So a row says at once which
labels are found before the root, modulo 64, and what it costs to back off to the
root, where a table has all labels. Costs have the bits of `wfstdec.lm.kernels.step`.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.arcs import LABEL_MASK, REPEAT
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.jit import inlined, jit, kernel
from wfstdec.symbols import ilabel_of
from wfstdec.wfst import kernel_types as k

_LABEL = uint32(LABEL_MASK)
_ONE = uint64(1)
_ROOT = uint32(0)
_SET = uint64(63)
"""Labels are taken modulo 64 in a row's set."""
_ROUNDING = 2.0**-22
"""More than a sum of two float32 loses, relative to the larger one."""


def lay_out(phrases: PhraseBoosts, blank: int) -> k.Phrases:
    """The rows of compiled phrases.

    Args:
        phrases: The phrases.
        blank: The blank token, which phrases of tokens do not step on.
    """
    automaton, of_words = phrases.automaton, phrases.unit == "word"
    label = automaton.arc_label if of_words else ilabel_of(automaton.arc_label)
    arcs = np.empty(len(label), k.PHRASE_ARC)
    arcs["label"], arcs["next"] = label, automaton.arc_next
    arcs["cost"] = automaton.arc_cost
    of_root = arcs[: automaton.state_arc_splits[1]]
    root = np.zeros(phrases.num_labels + 1, k.PHRASE_ROOT)
    root["cost"] = automaton.model_default_cost[0]
    root["next"][of_root["label"]] = of_root["next"]
    root["cost"][of_root["label"]] = of_root["cost"]
    rows = np.zeros(phrases.num_states + 1, k.PHRASE_ROW)
    rows["begin"] = automaton.state_arc_splits
    inner = rows[:-1]
    inner["backoff"] = np.maximum(automaton.backoff_state, 0)
    inner["backoff_cost"] = automaton.backoff_cost
    inner["final_cost"] = automaton.final_cost
    _fill_rows(inner, rows["begin"], arcs, root)
    return k.Phrases(
        rows=rows,
        arcs=arcs,
        root=root,
        of_words=of_words,
        silent=uint32(k.NONE if of_words else ilabel_of(blank)),
        start=uint32(phrases.start),
        top_credit=inner["credit"].max(),
    )


@jit
def _fill_rows(rows, begin, arcs, root):
    """Fill in what a state has from those that it backs off to.

    A credit is a bound: it counts arcs that a longer state hides, and more than float32
    sums along a chain can lose.
    """
    num_states = len(rows)
    credit, largest = np.zeros(num_states), np.zeros(num_states)
    length = np.zeros(num_states)
    for label in range(len(root)):
        cost = np.float64(root[label].cost)
        credit[0] = max(credit[0], -cost)
        largest[0] = max(largest[0], abs(cost))
    for s in range(num_states):
        below = np.int64(rows[s].backoff)
        if s > 0:
            cost = np.float64(rows[s].backoff_cost)
            credit[s], length[s] = credit[below] - cost, length[below] + 1
            largest[s] = largest[below] + abs(cost)
            rows[s].labels = rows[below].labels
            for a in range(begin[s], begin[s + 1]):
                cost = np.float64(arcs[a].cost)
                credit[s] = max(credit[s], -cost)
                largest[s] = max(largest[s], abs(cost))
                rows[s].labels |= _ONE << (uint64(arcs[a].label) & _SET)
        total, at = float32(0), s
        while at > 0:
            total = float32(total + rows[at].backoff_cost)
            at = np.int64(rows[at].backoff)
        rows[s].root_cost = total
        slack = _ROUNDING * (length[s] + 2) * largest[s]
        rows[s].credit = float32(max(0.0, credit[s] + slack))


@inlined
def label_of(phrases, arc):
    """What phrases step by on an arc of the graph; 0 where they do not."""
    if phrases.of_words:
        return arc.olabel
    if arc.ilabel & uint32(REPEAT):
        return uint32(0)
    label = arc.ilabel & _LABEL
    return uint32(0) if label == phrases.silent else label


@inlined
def step(phrases, boost, label):
    """The cost of a label in a boost state, float32, and the next state."""
    row = phrases.rows[uint64(boost)]
    if row.labels >> (uint64(label) & _SET) & _ONE:
        return _step_down(phrases, boost, label)
    there = phrases.root[uint64(label)]
    return float32(row.root_cost + there.cost), there.next


@kernel
def _step_down(phrases, boost, label):
    """`step` by all states on the way to the root."""
    rows, arcs = phrases.rows, phrases.arcs
    total = float32(0)
    while boost != _ROOT:
        begin = uint64(rows[uint64(boost)].begin)
        last = uint64(rows[uint64(boost) + _ONE].begin)
        end = last
        while begin < end:
            middle = (begin + end) >> _ONE
            if arcs[middle].label < label:
                begin = middle + _ONE
            else:
                end = middle
        if begin < last and arcs[begin].label == label:
            return float32(total + arcs[begin].cost), arcs[begin].next
        total = float32(total + rows[uint64(boost)].backoff_cost)
        boost = rows[uint64(boost)].backoff
    there = phrases.root[uint64(label)]
    return float32(total + there.cost), there.next
