"""The arrays of a language model, from an ARPA model and the labels of its words.

The states are those of `ngram.py`. G has no state for an n-gram that begins no other
(its back-off is added to the arc that leads there); here one with a back-off cost is a
state, because `step` adds these costs one by one, as KenLM does.
"""

from __future__ import annotations

import numpy as np

from wfstdec.jit import jit
from wfstdec.lm.arpa_labels import ArpaLabels
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.histories import NO_LABEL, Histories, build_histories
from wfstdec.lm.ngram_trie import ROOT
from wfstdec.text.arpa import ArpaModel


def build_automaton(
    model: ArpaModel, labels: ArpaLabels, unk_cost: float | None
) -> Automaton:
    """Make the automaton; `unk_cost` takes the place of `<unk>` where it is given."""
    of_word = labels.of_word.copy()
    if model.unk is not None:
        of_word[model.unk] = labels.unk if unk_cost is None else NO_LABEL
    histories = build_histories(model, of_word, labels.unk + 1)
    return _assemble(histories, labels, unk_cost)


def _assemble(
    histories: Histories, labels: ArpaLabels, unk_cost: float | None
) -> Automaton:
    trie, cost, backoff = histories.trie, histories.cost, histories.backoff
    ends, by_depth = histories.is_end, trie.by_depth()
    is_state = histories.prefixes() | ((backoff != 0) & ~ends)
    target, _ = histories.targets(is_state)  # those that are no states back off at 0
    states = by_depth[is_state[by_depth]]  # shorter histories first, the root first
    number = np.zeros(trie.num_nodes, np.int32)
    number[states] = np.arange(len(states))

    final_cost = np.full(len(states), np.nan, np.float32)
    final_cost[number[trie.parent[ends]]] = cost[ends]
    backoff_state = number[target[trie.suffix[states]]]
    backoff_state[0] = -1
    backoff_cost = backoff[states].astype(np.float32)
    ngrams = histories.predicting()
    is_unigram = trie.parent[ngrams] == ROOT
    unigrams, arcs = ngrams[is_unigram], ngrams[~is_unigram]
    source = number[trie.parent[arcs]]
    order = np.lexsort((trie.label[arcs], source))
    arcs, source = arcs[order], source[order]
    row_sizes = np.bincount(source, minlength=len(states))
    row_sizes[0] = labels.unk + 1
    alias, root_next, root_cost = _root(
        labels, trie.label[unigrams], number[target[unigrams]], cost[unigrams], unk_cost
    )
    return Automaton(
        state_arc_splits=np.concatenate([[0], np.cumsum(row_sizes)]),
        arc_label=np.concatenate([np.arange(labels.unk + 1), trie.label[arcs]]),
        arc_next=np.concatenate([root_next, number[target[arcs]]]),
        arc_cost=np.concatenate([root_cost, cost[arcs]]),
        backoff_state=backoff_state,
        backoff_cost=backoff_cost,
        final_cost=_backed_off(final_cost, backoff_state, backoff_cost),
        model_start=number[histories.is_bos],
        model_label_splits=np.array([0, labels.unk]),
        model_default_cost=np.array([np.inf]),
        label_alias=alias,
    )


def _root(
    labels: ArpaLabels,
    label: np.ndarray,
    nextstate: np.ndarray,
    cost: np.ndarray,
    unk_cost: float | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Aliases [L], and next states and costs [L + 1] of the root's row."""
    nextstates = np.zeros(labels.unk + 1, np.int32)
    costs = np.full(labels.unk + 1, np.inf)
    costs[labels.unk] = np.inf if unk_cost is None else unk_cost
    nextstates[label], costs[label] = nextstate, cost
    known = labels.impossible.copy()
    known[label[label < labels.unk]] = True
    alias = np.where(known, np.arange(labels.unk), labels.unk)
    return alias, nextstates, costs


@jit
def _backed_off(
    final_cost: np.ndarray, backoff_state: np.ndarray, backoff_cost: np.ndarray
) -> np.ndarray:
    """Costs of ending where NaN stood, added up as `step` does."""
    filled = final_cost.copy()
    for state in range(len(final_cost)):
        total, below = np.float32(0), state
        while np.isnan(final_cost[below]):
            total += backoff_cost[below]
            below = backoff_state[below]
        filled[state] = total + final_cost[below]
    return filled
