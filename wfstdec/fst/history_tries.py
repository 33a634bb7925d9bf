"""det(L o G) built directly: a trie for each history of G.

    lg = build_history_tries(marked, labels, g)

G must have at most one arc per word in a state; its other arcs are back-offs and the
class of OOV words, as in `fst/grammar.py`. States of the result:

    (begin, h)   where a word may begin with history h: root of the trie of the words
                 listed for h, with the back-off arc of h
    (end, h)     after a word, where a filler follows: a mandatory separator, which
                 leads to (begin, h), or a silence that may be missing
    node         the pronunciations listed for h that begin with the same tokens
    tail         a node with one word left; it depends on the pronunciations and the
                 next history alone, so that all histories share it

The mass of a node is the sum of exp(-cost) over its pronunciations. An arc costs
-ln(mass of its target / mass of its source): costs are pushed as determinization in the
log semiring does. The arc to a tail carries the word.
"""

import math
from typing import NamedTuple

import numpy as np

from wfstdec.fst.arrays import Arcs, LabelSpace, arcs_of, fst_of
from wfstdec.fst.lexicon_fst import MarkedLexicon, pronunciation_labels
from wfstdec.graph.arcs import ARC, FstArrays
from wfstdec.jit import inlined, jit
from wfstdec.jit.arrays import enter, longer, slot_of_pair
from wfstdec.jit.records import record
from wfstdec.text.lexicon import word_ids
from wfstdec.text.tokens import EPSILON, ilabel_of

_STATE = record("i4 first end depth", "f4 final", "i8 arcs", "f8 mass")
"""A node: its entries, depth, final cost, first arc, and -ln of the mass."""
_FIRST_SIZE = 1 << 12


class _Entries(NamedTuple):
    """Pronunciations of the words listed for each history, sorted by their labels."""

    splits: np.ndarray  # int64 [H + 1], the entries of each history
    begin: np.ndarray  # int32 [E], start of their labels in `label`
    end: np.ndarray  # int32 [E]
    word: np.ndarray  # int32 [E]
    history: np.ndarray  # int32 [E], after the word
    cost: np.ndarray  # float64 [E], of the word and its pronunciation
    label: np.ndarray  # int32, of all pronunciations
    state: np.ndarray  # int64 [H], state after a word: (end, h) or (begin, h)
    final_cost: np.ndarray  # float32 [H]
    num_ends: int  # the number of states (end, h)
    separator: int  # ilabel of the token that ends words


def build_history_tries(
    marked: MarkedLexicon, labels: LabelSpace, g: FstArrays
) -> FstArrays:
    """Build det(L o G), including a few unreachable states (end, h)."""
    # A silence and a pronunciation that begins with it have separate arcs without a
    # symbol, since nothing is determinized afterwards.
    fillers, silence = marked.fillers, marked.fillers.silence
    begin, ended = np.arange(g.num_states), np.zeros(0, np.int64)
    if fillers.ends_words or silence is not None:
        ended = g.nextstate[g.ilabel != labels.backoff_word]
        # With a silence a sentence begins as if after a word.
        ended = np.unique(ended if silence is None else np.append(ended, g.start))
    end, start = begin.copy(), g.start
    end[ended] = g.num_states + np.arange(len(ended))
    tries, final_cost = _tries(marked, labels, g, end, len(ended))
    final_cost[begin] = g.final_cost
    final_cost[end] = g.final_cost
    other = np.flatnonzero(g.ilabel >= labels.backoff_word)
    state, to = g.arc_state()[other], g.nextstate[other]
    is_class = g.ilabel[other] == labels.class_word
    ilabel = np.where(is_class, labels.class_token, labels.disambig(0))
    olabel = np.where(is_class, labels.class_word, EPSILON)
    to = np.where(is_class, end[to], to)
    parts = [tries, arcs_of(state, ilabel, olabel, to, g.cost[other])]
    if fillers.separator is not None:
        separator = ilabel_of(fillers.separator)
        parts.append(arcs_of(begin, separator, EPSILON, begin))
        parts.append(arcs_of(end[ended], separator, EPSILON, ended))
    if silence is not None:
        with_silence = -math.log(fillers.silence_prob)
        without = np.float32(-math.log1p(-fillers.silence_prob))
        final_cost[end[ended]] += without
        # Without a silence, a copy of (begin, h): no epsilon arc is needed.
        start, copied = int(end[g.start]), end != begin
        for part in parts[:2]:
            some = part.state < g.num_states
            some[some] = copied[part.state[some]]
            part = Arcs(*(column[some] for column in part))
            changed = {"state": end[part.state], "cost": part.cost + without}
            parts.append(part._replace(**changed))
        ends = end[ended]
        parts.append(arcs_of(ends, ilabel_of(silence), EPSILON, ended, with_silence))
    return fst_of(parts, start, final_cost)


def _tries(
    marked: MarkedLexicon,
    labels: LabelSpace,
    g: FstArrays,
    end: np.ndarray,
    num_ends: int,
) -> tuple[Arcs, np.ndarray]:
    label, splits = pronunciation_labels(marked, labels)
    # Big-endian bytes sort as the labels, and are faster to compare.
    raw, ends = label.astype(">i4").tobytes(), (4 * splits).tolist()
    texts = [raw[i:j] for i, j in zip(ends, ends[1:], strict=False)]
    rank = np.empty(len(texts), np.int64)
    rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    ids = word_ids(labels.words)
    word = np.array([ids[w] for w in marked.lexicon.words])
    # Entries: one for each arc of a word and each of its pronunciations.
    of_word, counts = np.argsort(word, kind="stable"), np.bincount(word)
    arc = np.flatnonzero(g.ilabel < labels.backoff_word)
    first, count = (np.cumsum(counts) - counts)[g.ilabel[arc]], counts[g.ilabel[arc]]
    arc = np.repeat(arc, count)
    entry = np.arange(len(arc)) - np.repeat(np.cumsum(count) - count - first, count)
    pron, state = of_word[entry], g.arc_state()[arc]
    order = np.argsort(state * len(texts) + rank[pron])
    arc, pron = arc[order], pron[order]
    costs, separator = np.asarray(marked.lexicon.costs, float), marked.fillers.separator
    entries = _Entries(
        splits=np.append(0, np.cumsum(np.bincount(state, minlength=g.num_states))),
        begin=splits[pron].astype(np.int32),
        end=splits[pron + 1].astype(np.int32),
        word=g.ilabel[arc],
        history=g.nextstate[arc],
        cost=g.cost[arc] + costs[pron],
        label=label,
        state=end,
        final_cost=g.final_cost,
        num_ends=num_ends,
        separator=EPSILON if separator is None else ilabel_of(separator),
    )
    states, grown = _grow(entries)
    state = np.repeat(np.arange(len(states) - 1), np.diff(states["arcs"]))
    labels_of = grown["ilabel"], grown["olabel"]
    arcs = Arcs(state, *labels_of, grown["nextstate"], grown["cost"])
    return arcs, states["final"][:-1].copy()


@inlined
def _put(arcs, i, ilabel, olabel, nextstate, cost):
    arcs[i].ilabel, arcs[i].olabel = np.uint32(ilabel), np.uint32(olabel)
    arcs[i].nextstate, arcs[i].cost = np.uint32(nextstate), np.float32(cost)
    return i + 1


@jit
def _grow(entries):
    """Return states in order of discovery, `_STATE` [S + 1], and `ARC` [A]."""
    num_histories = len(entries.final_cost)
    sink = num_histories + entries.num_ends  # final, after a word at an inner node
    num_states, size = sink + 1, _FIRST_SIZE
    while size < 2 * num_states:
        size *= 2
    # A node is identified by first entry and depth, a tail by first label and next
    # history: pairs whose numbers in a hash table are the states.
    pairs, slots = np.full((size, 2), -1, np.int32), np.full(4 * size, -1, np.int32)
    states, arcs = np.empty(size, _STATE), np.empty(2 * size, ARC)
    num_labels, m, state = len(entries.label), 0, 0
    while state < num_states:
        i, end, depth, mass, is_tail = 0, 0, 0, 0.0, False
        if state < num_histories:
            i, end = entries.splits[state], entries.splits[state + 1]
        elif state > sink:
            node = states[state]
            i, end, depth, mass = node.first, node.end, node.depth, node.mass
            is_tail = pairs[state, 0] < num_labels
        # Reserve room for all arcs of the state, so that no step below checks it.
        if m + end - i + 2 > len(arcs):
            arcs = longer(arcs, m + end - i + 2)
        if num_states + end - i + 1 > len(states):
            states = longer(states, num_states + end - i + 1)
        states[state].arcs, states[state].final = m, np.float32(np.inf)
        if state == sink:
            states[state].final = np.float32(0)
        if i < end and entries.begin[i] + depth == entries.end[i]:
            # A word ends here, and others continue: a separator follows, or the end.
            word = 0 if is_tail else entries.word[i]
            history, rest = entries.history[i], entries.cost[i] - mass
            m = _put(arcs, m, entries.separator, word, history, rest)
            last = np.float32(rest + entries.final_cost[history])
            if is_tail:
                states[state].final = last
            elif last < np.inf:
                m = _put(arcs, m, EPSILON, word, sink, last)
            i += 1
        while i < end:
            # The entries i to j have the next label in common.
            at, word, history = (
                entries.begin[i] + depth,
                entries.word[i],
                entries.history[i],
            )
            label, total, alone, j = entries.label[at], entries.cost[i], True, i + 1
            while j < end and entries.label[entries.begin[j] + depth] == label:
                total = -np.logaddexp(-total, -entries.cost[j])
                alone = alone and entries.word[j] == word
                j += 1
            if j == i + 1 and at + 1 == entries.end[i]:
                to = entries.state[history]
            else:
                one, two = (at, history) if alone else (num_labels + i, depth + 1)
                to = np.int64(slots[slot_of_pair(slots, pairs, one, two)])
                if to < 0:  # called only for new pairs: tuples of arrays are slow
                    table = pairs, slots
                    table, num_states, to = enter(table, num_states, one, two)
                    pairs, slots = table
                    states[to].first, states[to].end, states[to].depth = i, j, depth + 1
                    states[to].mass = total
            olabel = word if alone and not is_tail else 0
            m = _put(arcs, m, label, olabel, to, total - mass)
            i = j
        state += 1
    states[num_states].arcs = m
    return states[: num_states + 1], arcs[:m]
