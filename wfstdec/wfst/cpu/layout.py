"""A graph and boosts laid out for the CPU kernels."""

from __future__ import annotations

import functools

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.boost.phrase_rows import PhraseRows, lay_out
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit, read_only
from wfstdec.text.symbols import EPSILON, ilabel_of
from wfstdec.wfst.cpu import records as k
from wfstdec.wfst.cpu.hot_states import WordStates
from wfstdec.wfst.cpu.live_labels import MAX_LABELS
from wfstdec.wfst.phrase_labels import steps_on


def graph_arrays(graph: PackedGraph) -> k.GraphArrays:
    """Rows of 32 bytes, with label sets where they fit."""
    num_states, splits = graph.num_states, graph.state_arc_splits
    rows = np.zeros(num_states + 1, k.ROW)
    rows["begin"] = splits
    rows["emit"] = splits
    rows["emit"][:num_states] += graph.state_num_epsilons
    labels = graph.arcs["ilabel"] & np.uint32(LABEL_MASK)
    by_label = len(graph.tokens) <= MAX_LABELS and _fill_label_sets(rows, labels)
    rows["rank"][:num_states] = graph.epsilon_rank
    _fill_least_epsilons(rows, graph.arcs["cost"])
    return k.GraphArrays(
        arcs=graph.arcs,
        rows=rows,
        final_cost=graph.final_cost,
        by_label=by_label,
        num_ranks=np.uint64(graph.epsilon_rank.max() + 1),
        blank=np.uint64(graph.tokens.blank),
        blank_label=np.uint32(ilabel_of(graph.tokens.blank)),
        least_cost=np.float32(min(0.0, graph.arcs["cost"].min(initial=0.0))),
    )


def with_plain_sets(graph: PackedGraph, arrays: k.GraphArrays) -> k.GraphArrays:
    """The same with the labels of arcs on which boosts never step."""
    if not arrays.by_label:
        return arrays
    rows, labels = arrays.rows.copy(), graph.arcs["ilabel"] & np.uint32(LABEL_MASK)
    steps = steps_on(graph, graph.arcs, "word") | steps_on(graph, graph.arcs, "token")
    _fill_plain_sets(rows, labels, ~steps)
    return arrays._replace(rows=rows)


def phrase_rows_of(phrases: PhraseBoosts) -> PhraseRows:
    """The rows of phrases, by ilabels or word ids.

    Args:
        phrases: The phrases.

    Raises:
        BoostError: They have too many states.
    """
    return lay_out(phrases, 0 if phrases.unit == "word" else ilabel_of(0))


def listed_words(boosts: CompiledBoosts, states: WordStates) -> k.ListedWords:
    """Boosted words as the kernels take them.

    Args:
        boosts: The boosts; phrases of words count by the words that begin them.
        states: Where the words may be said.
    """
    keys = boosts.words.keys
    begin = keys[keys != EPSILON]
    phrases = boosts.phrases
    if phrases is not None and phrases.unit == "word":
        automaton = phrases.automaton
        first = automaton.arc_label[: automaton.state_arc_splits[1]]
        begin = np.union1d(begin, first)
    return k.ListedWords(*boosts.words, *states.bits(begin.astype(np.int64)))


@functools.cache
def no_words() -> k.ListedWords:
    """No boosted words, and no hot states."""
    nothing, _ = compile_word_boosts(None, {})
    return k.ListedWords(*nothing, read_only(np.zeros(1, np.uint64)), np.uint64(63))


@jit
def _fill_label_sets(rows, labels):
    """Fill `rows["labels"]`; False where a label stands twice in a row."""
    for s in range(len(rows) - 1):
        for a in range(rows[s].emit, rows[s + 1].begin):
            bit = np.uint64(1) << np.uint64(labels[a])
            if rows[s].labels & bit:
                return False
            rows[s].labels |= bit
    return True


@jit
def _fill_plain_sets(rows, labels, plain):
    """Fill `rows["plain"]`: the labels of arcs that are plain, bool [A]."""
    for s in range(len(rows) - 1):
        for a in range(rows[s].emit, rows[s + 1].begin):
            if plain[a]:
                rows[s].plain |= np.uint64(1) << np.uint64(labels[a])


@jit
def _fill_least_epsilons(rows, cost):
    """Fill `rows["least_epsilon"]`, `inf` where there are no epsilon arcs."""
    for s in range(len(rows) - 1):
        rows[s].least_epsilon = np.inf
        for a in range(rows[s].begin, rows[s].emit):
            rows[s].least_epsilon = min(rows[s].least_epsilon, cost[a])
