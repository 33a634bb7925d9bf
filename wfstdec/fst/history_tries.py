"""det(L o G) without composition or determinization: a trie for each history of G.

    lg = build_history_tries(marked, labels, g)

G must have at most one arc per word in a state, and its other arcs are back-offs and
the class of OOV words, as those of `build_grammar`. States of the result:

    (begin, h)   where a word may begin with history h: root of the trie of the words
                 listed for h, with the back-off arc of h
    (end, h)     behind a word, where a filler follows: a mandatory separator, which
                 leads to (begin, h), or a silence that may be missing
    node         the pronunciations listed for h that begin with the same tokens
    tail         a node with one word left; it depends on the pronunciations and the
                 next history alone, so that all histories share it

The mass of a node is the sum of exp(-cost) over its pronunciations. An arc costs
-ln(mass of its target / mass of its source): costs are pushed as determinization in the
log semiring does. The arc to a tail carries the word.

Where a separator ends every word, a pronunciation may end at an inner node: the node
has an arc of the separator, and an epsilon arc for the end of the sentence.
"""

import math
from typing import NamedTuple

import numpy as np

from wfstdec.errors import GraphError
from wfstdec.fst.arrays import LabelSpace
from wfstdec.fst.lexicon_fst import MarkedLexicon, pronunciation_labels
from wfstdec.fst.operations import trimmed
from wfstdec.graph.arcs import ARC, FstArrays
from wfstdec.jit import inlined, jit
from wfstdec.jit.arrays import enter, longer, slot_of_pair
from wfstdec.jit.records import record
from wfstdec.text.lexicon import word_ids
from wfstdec.text.tokens import EPSILON, ilabel_of

_STATE = record("i4 first end depth", "f4 final", "i8 arcs", "f8 mass")
"""Entries of a node, how many of their labels lead to it, final cost, first arc, -ln of
the mass."""
_FIRST_SIZE = 1 << 12


class _Prons(NamedTuple):
    """P pronunciations with their symbols, sorted by their labels."""

    label: np.ndarray  # int32, of all of them in a row
    splits: np.ndarray  # int64 [P + 1]
    word: np.ndarray  # int32 [P]
    cost: np.ndarray  # float64 [P]


class _Grammar(NamedTuple):
    """G: arcs of the words below `backoff_word`, back-offs, the class above it."""

    splits: np.ndarray  # int64 [H + 1]
    label: np.ndarray  # int32 [A]
    nextstate: np.ndarray  # int32 [A]
    cost: np.ndarray  # float32 [A]
    final_cost: np.ndarray  # float32 [H]
    end: np.ndarray  # int64 [H], the state behind a word: (end, h) or (begin, h)
    ended: np.ndarray  # int64 [N], the history of each state (end, h)
    backoff_word: int


class _Entries(NamedTuple):
    """Pronunciations of the words listed for each history, in the order of `_Prons`."""

    splits: np.ndarray  # int64 [H + 1]
    pron: np.ndarray  # int32 [E]
    arc: np.ndarray  # int32 [E], of G


class _Between(NamedTuple):
    """Labels and costs between words."""

    filler: int  # ilabel of the separator or the silence, 0 for none
    filler_cost: float
    no_silence_cost: float
    is_separator: bool
    backoff: int  # ilabel of `#0`
    class_token: int


def build_history_tries(
    marked: MarkedLexicon, labels: LabelSpace, g: FstArrays
) -> FstArrays:
    """Make det(L o G), with a few states (end, h) that nothing reaches."""
    # A silence and a pronunciation that begins with it keep an arc each; they need no
    # symbol, since nothing is determinized after this.
    g = trimmed(g)
    if g.num_states == 0:
        raise GraphError("no sentence has a probability, expected some")
    fillers, silent = marked.fillers, marked.fillers.silence is not None
    ended = np.zeros(0, np.int64)
    if fillers.ends_words or silent:
        ended = g.nextstate[g.ilabel != labels.backoff_word].astype(np.int64)
        # With a silence a sentence begins as if a word were before it.
        ended = np.unique(np.append(ended, g.start) if silent else ended)
    end = np.arange(g.num_states)
    end[ended] = g.num_states + np.arange(len(ended))
    grammar = _Grammar(
        *(g.state_arc_splits, g.ilabel, g.nextstate, g.cost, g.final_cost),
        *(end, ended, labels.backoff_word),
    )
    between = _Between(
        filler=ilabel_of(fillers.tokens[0]) if fillers.tokens else EPSILON,
        filler_cost=-math.log(fillers.silence_prob) if silent else 0.0,
        no_silence_cost=-math.log1p(-fillers.silence_prob),
        is_separator=fillers.separator is not None,
        backoff=labels.disambig(0),
        class_token=labels.class_token,
    )
    prons = _sorted(marked, labels)
    states, arcs = _grow(prons, grammar, _listed(prons, grammar), between)
    start = int(end[g.start]) if silent else g.start
    return FstArrays(
        start,
        states["final"][:-1].copy(),
        states["arcs"].copy(),
        ilabel=arcs["ilabel"].astype(np.int32),
        olabel=arcs["olabel"].astype(np.int32),
        nextstate=arcs["nextstate"].astype(np.int32),
        cost=arcs["cost"].copy(),
    )


def _sorted(marked: MarkedLexicon, labels: LabelSpace) -> _Prons:
    """Sort the pronunciations by their labels."""
    label, splits = pronunciation_labels(marked, labels)
    # Big-endian bytes have the order of the labels, and are faster to compare.
    raw, ends = label.astype(">i4").tobytes(), (4 * splits).tolist()
    texts = [raw[a:b] for a, b in zip(ends, ends[1:], strict=False)]
    order = np.array(sorted(range(len(texts)), key=texts.__getitem__))
    ids, words = word_ids(labels.words), marked.lexicon.words
    return _Prons(
        np.frombuffer(b"".join(texts[i] for i in order), ">i4").astype(np.int32),
        np.append(0, np.cumsum(np.diff(splits)[order])),
        np.array([ids[words[i]] for i in order], np.int32),
        np.asarray(marked.lexicon.costs, np.float64)[order],
    )


@jit
def _listed(prons, grammar):
    """The entries of all histories: a counting sort, as `prons` are in order."""
    num_words, num_histories = grammar.backoff_word, len(grammar.final_cost)
    num_prons = np.zeros(num_words, np.int64)
    for word in prons.word:
        num_prons[word] += 1
    # The arcs of each word, then the entries of each history.
    by_word = np.zeros(num_words + 1, np.int64)
    splits = np.zeros(num_histories + 1, np.int64)
    for h in range(num_histories):
        for a in range(grammar.splits[h], grammar.splits[h + 1]):
            if grammar.label[a] < num_words:
                by_word[grammar.label[a] + 1] += 1
                splits[h + 1] += num_prons[grammar.label[a]]
    by_word, splits = np.cumsum(by_word), np.cumsum(splits)
    at = by_word.copy()
    arc = np.empty(by_word[-1], np.int32)
    history = np.empty(by_word[-1], np.int32)
    for h in range(num_histories):
        for a in range(grammar.splits[h], grammar.splits[h + 1]):
            word = grammar.label[a]
            if word < num_words:
                arc[at[word]], history[at[word]] = a, h
                at[word] += 1
    at = splits.copy()
    entries = np.empty(splits[-1], np.int32), np.empty(splits[-1], np.int32)
    for p in range(len(prons.word)):
        word = prons.word[p]
        for i in range(by_word[word], by_word[word + 1]):
            h = history[i]
            entries[0][at[h]], entries[1][at[h]] = p, arc[i]
            at[h] += 1
    return _Entries(splits, entries[0], entries[1])


@inlined
def _put(arcs, i, ilabel, olabel, nextstate, cost):
    """Write an arc; the number of the next."""
    arcs[i].ilabel, arcs[i].olabel = np.uint32(ilabel), np.uint32(olabel)
    arcs[i].nextstate, arcs[i].cost = np.uint32(nextstate), np.float32(cost)
    return i + 1


@jit
def _log_add(a, b):
    """-ln(exp(-a) + exp(-b))."""
    low, high = min(a, b), max(a, b)
    return low - np.log1p(np.exp(low - high))


@jit
def _grow(prons, grammar, entries, between):
    """All states in turn, each with its arcs: `_STATE` [S + 1], `ARC` [A]."""
    num_histories = len(grammar.final_cost)
    sink = num_histories + len(grammar.ended)  # ends a sentence at an inner node
    num_states, size = sink + 1, _FIRST_SIZE
    while size < 2 * num_states:
        size *= 2
    # A node is known by its first entry and its depth, a tail by its first label and
    # its next history: pairs whose numbers in a hash table are those of states.
    pairs, slots = np.full((size, 2), -1, np.int32), np.full(4 * size, -1, np.int32)
    states, arcs = np.empty(size, _STATE), np.empty(2 * size, ARC)
    num_labels, m, state = len(prons.label), 0, 0
    while state < num_states:
        first, end, depth, mass = 0, 0, 0, 0.0
        num_more, h, is_tail = 2, state, False
        if state < num_histories:
            first, end = entries.splits[state], entries.splits[state + 1]
            num_more += grammar.splits[state + 1] - grammar.splits[state]
        elif state < sink:
            h = grammar.ended[state - num_histories]
            states[state].arcs = m  # may be where the arcs of h end
            num_more += states[h + 1].arcs - states[h].arcs
        elif state > sink:
            node = states[state]
            first, end, depth, mass = node.first, node.end, node.depth, node.mass
            is_tail = pairs[state, 0] < num_labels
        # Room for all that the state may need, so that no step below checks it.
        if m + end - first + num_more > len(arcs):
            arcs = longer(arcs, m + end - first + num_more)
        if num_states + end - first + 1 > len(states):
            states = longer(states, num_states + end - first + 1)
        states[state].arcs, states[state].final = m, np.float32(np.inf)
        if state < num_histories:
            states[state].final = grammar.final_cost[state]
            for a in range(grammar.splits[state], grammar.splits[state + 1]):
                label, to = grammar.label[a], grammar.nextstate[a]
                if label == grammar.backoff_word:
                    m = _put(arcs, m, between.backoff, 0, to, grammar.cost[a])
                elif label > grammar.backoff_word:
                    to = grammar.end[to]
                    m = _put(arcs, m, between.class_token, label, to, grammar.cost[a])
            if between.is_separator:
                m = _put(arcs, m, between.filler, 0, state, 0.0)
        elif state < sink:
            states[state].final = grammar.final_cost[h]
            if not between.is_separator:
                # Without a silence, all that (begin, h) has: no epsilon arc is needed.
                states[state].final += np.float32(between.no_silence_cost)
                for a in range(states[h].arcs, states[h + 1].arcs):
                    arcs[m] = arcs[a]
                    arcs[m].cost += np.float32(between.no_silence_cost)
                    m += 1
            m = _put(arcs, m, between.filler, 0, h, between.filler_cost)
        elif state == sink:
            states[state].final = np.float32(0)
        i = first
        if depth > 0 and i < end:
            p, a = entries.pron[i], entries.arc[i]
            if prons.splits[p] + depth == prons.splits[p + 1]:
                # A word ends here, and others go on: a separator follows, or the end.
                word = 0 if is_tail else prons.word[p]
                to, rest = grammar.nextstate[a], grammar.cost[a] + prons.cost[p] - mass
                m = _put(arcs, m, between.filler, word, to, rest)
                last = np.float32(rest + grammar.final_cost[to])
                if is_tail:
                    states[state].final = last
                elif last < np.inf:
                    m = _put(arcs, m, 0, word, sink, last)
                i += 1
        while i < end:
            # The entries i to j have the next label in common.
            p, arc, alone, j = entries.pron[i], entries.arc[i], True, i + 1
            at = prons.splits[p] + depth
            label, total = prons.label[at], grammar.cost[arc] + prons.cost[p]
            while j < end:
                q, a = entries.pron[j], entries.arc[j]
                if prons.label[prons.splits[q] + depth] != label:
                    break
                total = _log_add(total, grammar.cost[a] + prons.cost[q])
                alone = alone and a == arc
                j += 1
            follows = grammar.nextstate[arc]
            word = prons.word[p] if alone and not is_tail else 0
            if j == i + 1 and at + 1 == prons.splits[p + 1]:
                to = np.int64(grammar.end[follows])
            else:
                one, two = (at, follows) if alone else (num_labels + i, depth + 1)
                to = np.int64(slots[slot_of_pair(slots, pairs, one, two)])
                if to < 0:  # called for new pairs alone: tuples of arrays cost time
                    table = pairs, slots
                    table, num_states, to = enter(table, num_states, one, two)
                    pairs, slots = table
                    states[to].first, states[to].end, states[to].depth = i, j, depth + 1
                    states[to].mass = total
            m = _put(arcs, m, label, word, to, total - mass)
            i = j
        state += 1
    states[num_states].arcs = m
    return states[: num_states + 1], arcs[:m]
