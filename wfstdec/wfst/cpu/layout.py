"""A graph and boosts laid out for the CPU kernels."""

from __future__ import annotations

import numpy as np

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.boost.tables import PhraseRows, lay_out
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import jit
from wfstdec.lm.automaton import Unit
from wfstdec.text.symbols import ilabel_of
from wfstdec.wfst.boost_support import steps_on
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu.emitting import MAX_LABELS


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


def with_plain_sets(
    graph: PackedGraph, arrays: k.GraphArrays, unit: Unit
) -> k.GraphArrays:
    """The same with the labels of arcs that neither words nor such phrases step on."""
    if not arrays.by_label:
        return arrays
    rows, labels = arrays.rows.copy(), graph.arcs["ilabel"] & np.uint32(LABEL_MASK)
    steps = steps_on(graph, graph.arcs, unit) | steps_on(graph, graph.arcs, "word")
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
