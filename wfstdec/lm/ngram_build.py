"""The arrays of a language model, from an ARPA model and the labels of its words."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.jit import jit
from wfstdec.lm.automaton import Automaton
from wfstdec.lm.histories import ROOT, NgramTrie, build_trie, fill_unlisted
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.symbols import EPSILON, TokenTable

NEMO_OFFSET = 100
"""NeMo writes token t as the character `chr(t + 100)`."""

_NO_LABEL = -1
_log = logging.getLogger("wfstdec.lm")


class Labels(NamedTuple):
    """How the words of a file and the L labels of a table go together.

    `<unk>` is label L, `<s>` is L + 1 and `</s>` is L + 2.

    Attributes:
        of_word: int32, the label of each word of the file, -1 where it has none.
        impossible: bool [L], labels that nothing predicts: epsilon, blank, marks.
    """

    of_word: np.ndarray
    impossible: np.ndarray

    @property
    def unk(self) -> int:
        """The label of `<unk>`, L."""
        return len(self.impossible)

    @property
    def bos(self) -> int:
        """The label of `<s>`."""
        return self.unk + 1

    @property
    def eos(self) -> int:
        """The label of `</s>`."""
        return self.unk + 2


def labels_by_name(model: ArpaModel, table: Sequence[str] | TokenTable) -> Labels:
    """Labels of words that are called as they are in the table.

    Raises:
        ArpaError: None of the tokens of a table is a word of the model.
    """
    is_tokens = isinstance(table, TokenTable)
    names = list(table.names if isinstance(table, TokenTable) else table)
    impossible = np.isin(names, ["<s>", "</s>"])
    impossible[table.blank if isinstance(table, TokenTable) else EPSILON] = True
    ids = {name: i for i, name in enumerate(names) if not impossible[i]}
    of_word = [ids.get(word, _NO_LABEL) for word in model.words]
    if is_tokens:
        _check_tokens(model, ids)
    marks = {model.bos, model.eos, model.unk}
    missing = sum(
        label == _NO_LABEL and position not in marks
        for position, label in enumerate(of_word)
    )
    if missing:
        what = "tokens" if is_tokens else "words"
        _log.info(
            "%d words of the model are none of the %d %s", missing, len(ids), what
        )
    return _with_marks(model, of_word, impossible)


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


def labels_by_nemo(model: ArpaModel, table: TokenTable) -> Labels:
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
            token = _NO_LABEL
        elif not 0 <= token < len(table):
            raise ArpaError(
                f"word {word!r}, expected the character of token + {NEMO_OFFSET}, with "
                f"V={len(table)} tokens; leave nemo_tokens out if words are tokens"
            )
        of_word.append(token)
    return _with_marks(model, of_word, impossible)


def _with_marks(model: ArpaModel, of_word: list[int], impossible: np.ndarray) -> Labels:
    if model.bos is None or model.eos is None:
        missing = "<s>" if model.bos is None else "</s>"
        raise ArpaError(
            f"the model has no {missing}, expected <s> and </s> among its unigrams"
        )
    labels = Labels(np.array(of_word, np.int32), impossible)
    labels.of_word[[model.bos, model.eos]] = labels.bos, labels.eos
    if model.unk is not None:
        labels.of_word[model.unk] = labels.unk
    return labels


def build_automaton(
    model: ArpaModel, labels: Labels, unk_cost: float | None
) -> Automaton:
    """Make the automaton; `unk_cost` takes the place of `<unk>` where it is given."""
    if unk_cost is not None and model.unk is not None:
        labels.of_word[model.unk] = _NO_LABEL
    tables, cost, backoff = _usable(model, labels)
    trie = build_trie(tables)
    costs = _filled(trie, cost)
    backoffs = _filled(trie, backoff)
    unlisted = np.arange(trie.num_listed, trie.num_nodes)
    order = np.argsort(trie.depth[unlisted], kind="stable")
    fill_unlisted(trie, unlisted[order], costs, backoffs)
    return _assemble(trie, costs, backoffs, labels, unk_cost)


def _usable(
    model: ArpaModel, labels: Labels
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The n-grams over labels, with marks where they belong; costs in a row."""
    tables, costs, backoffs, dropped = [], [], [], 0
    for table in model.ngrams:
        ngram = labels.of_word[table.words]
        kept = (ngram != _NO_LABEL).all(axis=1)
        kept &= (ngram[:, 1:] != labels.bos).all(axis=1)
        kept &= (ngram[:, :-1] != labels.eos).all(axis=1)
        tables.append(ngram[kept])
        costs.append(table.cost[kept])
        backoffs.append(table.backoff[kept])
        dropped += int((~kept).sum())
    if dropped:
        _log.info("%d n-grams are over other words or out of place: left out", dropped)
    return tables, np.concatenate(costs), np.concatenate(backoffs)


def _filled(trie: NgramTrie, listed: np.ndarray) -> np.ndarray:
    values = np.zeros(trie.num_nodes, np.float64)
    values[1 : trie.num_listed] = listed
    return values


@jit
def _targets(trie: NgramTrie, by_depth: np.ndarray, is_state: np.ndarray) -> np.ndarray:
    """Each node's longest suffix, or itself, that is a state."""
    target = np.zeros(len(by_depth), np.int32)
    for node in by_depth:
        target[node] = node if is_state[node] else target[trie.suffix[node]]
    return target


@jit
def _back_off_finals(
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


def _assemble(
    trie: NgramTrie,
    cost: np.ndarray,
    backoff: np.ndarray,
    labels: Labels,
    unk_cost: float | None,
) -> Automaton:
    nodes = np.arange(trie.num_nodes)
    ends = trie.word == labels.eos
    is_bos = (trie.word == labels.bos) & (trie.depth == 1)
    is_state = is_bos | (nodes == ROOT) | ((backoff != 0) & ~ends)
    is_state[trie.parent] = True
    by_depth = trie.by_depth()
    target = _targets(trie, by_depth, is_state)
    states = by_depth[is_state[by_depth]]  # shorter histories first, the root first
    number = np.zeros(trie.num_nodes, np.int32)
    number[states] = np.arange(len(states))

    final_cost = np.full(len(states), np.nan, np.float32)
    final_cost[number[trie.parent[ends]]] = cost[ends]
    backoff_state = number[target[trie.suffix[states]]]
    backoff_state[0] = -1
    backoff_cost = backoff[states].astype(np.float32)
    arcs = np.flatnonzero(~ends & ~is_bos & (trie.parent != ROOT))
    source = number[trie.parent[arcs]]
    order = np.lexsort((trie.word[arcs], source))
    arcs, source = arcs[order], source[order]
    row_sizes = np.bincount(source, minlength=len(states))
    row_sizes[0] = labels.unk + 1
    unigrams = np.flatnonzero(~ends & ~is_bos & (trie.parent == ROOT) & (nodes != ROOT))
    alias, root_next, root_cost = _root(
        labels, trie.word[unigrams], number[target[unigrams]], cost[unigrams], unk_cost
    )
    return Automaton(
        state_arc_splits=np.concatenate([[0], np.cumsum(row_sizes)]),
        arc_label=np.concatenate([np.arange(labels.unk + 1), trie.word[arcs]]),
        arc_next=np.concatenate([root_next, number[target[arcs]]]),
        arc_cost=np.concatenate([root_cost, cost[arcs]]),
        backoff_state=backoff_state,
        backoff_cost=backoff_cost,
        final_cost=_back_off_finals(final_cost, backoff_state, backoff_cost),
        model_start=number[is_bos],
        model_label_splits=np.array([0, labels.unk]),
        model_default_cost=np.array([np.inf]),
        label_alias=alias,
    )


def _root(
    labels: Labels,
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
