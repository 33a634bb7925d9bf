"""The arrays of an n-gram model: from an ARPA model and the labels of its words.

    labels = labels_by_name(model, words)          # or `labels_by_nemo`
    automaton = build_automaton(model, labels, unk_cost)

The states are those of `ngram.py`. G has no state for an n-gram that begins no other
(its back-off is added to the arc that leads there); here one with a back-off cost is a
state, because `step` adds these costs one by one, as KenLM does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.jit import jit
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.histories import NO_LABEL, ROOT, build_histories
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.symbols import EPSILON, TokenTable

NEMO_OFFSET = 100
"""NeMo writes token t as the character `chr(t + 100)`."""

_log = logging.getLogger("wfstdec.lm")


class ArpaLabels(NamedTuple):
    """Labels of the W words of a file, in a table of L.

    Attributes:
        of_word: int32 [W], the label of each word of the file, `NO_LABEL` where it
            has none. Those of `<s>`, `</s>` and `<unk>` mean nothing.
        impossible: bool [L], labels that nothing predicts: epsilon, blank, marks.
    """

    of_word: np.ndarray
    impossible: np.ndarray

    @property
    def unk(self) -> int:
        """The label of `<unk>`: L, one beyond the table."""
        return len(self.impossible)


def labels_by_name(model: ArpaModel, table: Sequence[str] | TokenTable) -> ArpaLabels:
    """Labels of words that are called as they are in the table.

    Raises:
        ArpaError: None of the tokens of a table is a word of the model.
    """
    is_tokens = isinstance(table, TokenTable)
    names = list(table.names if isinstance(table, TokenTable) else table)
    # As labels they would let a sentence begin or end in its midst.
    impossible = np.isin(names, ["<s>", "</s>"])
    impossible[table.blank if isinstance(table, TokenTable) else EPSILON] = True
    ids = {name: i for i, name in enumerate(names) if not impossible[i]}
    of_word = [ids.get(word, NO_LABEL) for word in model.words]
    if is_tokens:
        _check_tokens(model, ids)
    marks = {model.bos, model.eos, model.unk}
    missing = sum(
        label == NO_LABEL and position not in marks
        for position, label in enumerate(of_word)
    )
    if missing:
        text = "%d words of the model are none of the %d %s"
        _log.info(text, missing, len(ids), "tokens" if is_tokens else "words")
    return ArpaLabels(np.array(of_word, np.int32), impossible)


def _check_tokens(model: ArpaModel, names: Iterable[str]) -> None:
    """Most often it is the wrong file if tokens are not in it."""
    unk = None if model.unk is None else model.words[model.unk]
    wanted = {name for name in names if name != unk}
    lacking = sorted(wanted - set(model.words))
    if lacking and len(lacking) == len(wanted):
        raise ArpaError(
            f"none of the {len(wanted)} tokens, such as {lacking[0]!r}, is a word of "
            "the model, expected some; a model over words needs a lexicon, one of "
            "NeMo's nemo_tokens (wfstdec build-lm --nemo-tokens)"
        )
    if lacking:
        _log.warning(
            "%d of %d tokens are not in the language model, such as %s",
            *(len(lacking), len(wanted), ", ".join(map(repr, lacking[:3]))),
        )


def labels_by_nemo(model: ArpaModel, table: TokenTable) -> ArpaLabels:
    """Labels of words that are the characters of token + 100.

    Raises:
        ArpaError: A word is no such character.
    """
    impossible = np.zeros(len(table), bool)
    impossible[table.blank] = True
    marks = {model.bos, model.eos, model.unk}
    of_word = []
    for position, word in enumerate(model.words):
        token = ord(word) - NEMO_OFFSET if len(word) == 1 else -1
        if position in marks:
            token = NO_LABEL
        elif not 0 <= token < len(table):
            raise ArpaError(
                f"word {word!r}, expected the character of token + {NEMO_OFFSET}, with "
                f"V={len(table)} tokens; leave nemo_tokens out if words are tokens"
            )
        of_word.append(token)
    return ArpaLabels(np.array(of_word, np.int32), impossible)


def build_automaton(
    model: ArpaModel, labels: ArpaLabels, unk_cost: float | None
) -> Automaton:
    """Make the automaton; `unk_cost` takes the place of `<unk>` where it is given."""
    of_word = labels.of_word.copy()
    if model.unk is not None:
        of_word[model.unk] = labels.unk if unk_cost is None else NO_LABEL
    # A history is a state if a longer n-gram begins with it, or if backing off from it
    # costs something; all others are their longest suffix that is a state.
    histories = build_histories(model, of_word, labels.unk + 1)
    trie, cost, backoff = histories.trie, histories.cost, histories.backoff
    ends, by_depth = histories.is_end, trie.by_depth()
    is_state = histories.prefixes() | ((backoff != 0) & ~ends)
    target, _ = histories.targets(is_state)
    states = by_depth[is_state[by_depth]]  # shorter histories first, the root first
    number = np.zeros(trie.num_nodes, np.int32)
    number[states] = np.arange(len(states))

    # NaN where no n-gram says what ending costs: `_backed_off` fills that in.
    final_cost = np.full(len(states), np.nan, np.float32)
    final_cost[number[trie.parent[ends]]] = cost[ends]
    backoff_state = number[target[trie.suffix[states]]]
    backoff_state[0] = -1
    backoff_cost = backoff[states].astype(np.float32)
    # Arcs are n-grams, at the state of their history. The root has an arc for every
    # label, so that backing off always ends; the others have their own, by label.
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
def _backed_off(final_cost, backoff_state, backoff_cost):
    """Costs of ending where NaN stood, added up as `step` does."""
    filled = final_cost.copy()
    for state in range(len(final_cost)):
        total, below = np.float32(0), state
        while np.isnan(final_cost[below]):
            total += backoff_cost[below]
            below = backoff_state[below]
        filled[state] = total + final_cost[below]
    return filled
