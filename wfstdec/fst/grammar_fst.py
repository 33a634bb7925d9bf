"""G from an ARPA model: an acceptor of sentences over words, with back-off arcs.

    state       a history: a prefix of some n-gram, the empty one, or `<s>` (the start)
    (h w)       an arc `w` from h to the longest suffix of h w that is a state
    back-off    an arc `#0` from h to the longest proper suffix that is a state
    (h </s>)    a final cost of h

N-grams that are no prefix of another need no state: the arc that would enter it goes
on to a suffix and pays the back-offs of those it passes. Final costs are the least of
ending directly and ending after back-offs (`arrays.least_final_costs`), so nobody has
to back off at the end of a sentence.

A back-off arc may be taken though an n-gram is listed, so a sentence may cost less
here than the model says, never more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.fst.arrays import arcs_of, fst_of, least_final_costs
from wfstdec.fst.labels import LabelSpace
from wfstdec.graph.arcs import FstArrays
from wfstdec.jit import jit
from wfstdec.lm.histories import ROOT, NgramTrie, build_trie, fill_unlisted
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.symbols import EPSILON

_log = logging.getLogger("wfstdec.build")


class _Ngrams(NamedTuple):
    """Usable n-grams over word ids, with `<s>` and `</s>` above all of them.

    Attributes:
        words: int32 [N, n] for each order n.
        cost: float32, all orders in a row.
        backoff: float32, all orders in a row.
        bos: The id of `<s>`.
        eos: The id of `</s>`.
    """

    words: list[np.ndarray]
    cost: np.ndarray
    backoff: np.ndarray
    bos: int
    eos: int


class _Histories(NamedTuple):
    """The nodes of a trie of n-grams with their costs.

    Attributes:
        trie: The n-grams.
        cost: float64 [M].
        backoff: float64 [M].
        bos: The id of `<s>`.
        eos: The id of `</s>`.
    """

    trie: NgramTrie
    cost: np.ndarray
    backoff: np.ndarray
    bos: int
    eos: int


def build_grammar(
    model: ArpaModel, labels: LabelSpace, unk_cost: float | None = None
) -> FstArrays:
    """Make G; words that the model lacks cost `unk_cost` at the empty history.

    N-grams with a word that is not in `labels.words` are left out, and their number is
    logged. A history that no table lists is added, at the cost of its back-off.

    Args:
        model: The language model.
        labels: The words, and the label of `#0`.
        unk_cost: Nats; None where all words have an n-gram.

    Raises:
        ArpaError: No `<s>`, no `</s>`, or no sentence can end.
    """
    if model.bos is None or model.eos is None:
        missing = "<s>" if model.bos is None else "</s>"
        raise ArpaError(
            f"the model has no {missing}, expected <s> and </s> among its unigrams"
        )
    ngrams = _usable_ngrams(model, {w: i for i, w in enumerate(labels.words) if i})
    fst = _assemble(_histories(ngrams), labels, unk_cost)
    final_cost = least_final_costs(fst, labels.backoff_word)
    if not np.isfinite(final_cost).any():
        raise ArpaError(
            "</s> has probability 0 everywhere, expected sentences that end"
        )
    return replace(fst, final_cost=final_cost)


def _usable_ngrams(model: ArpaModel, word_ids: Mapping[str, int]) -> _Ngrams:
    bos, eos = len(word_ids) + 1, len(word_ids) + 2
    ids = np.array([word_ids.get(word, EPSILON) for word in model.words], np.int32)
    ids[model.bos], ids[model.eos] = bos, eos
    words, rows = [], []
    unknown = misplaced = 0
    for table in model.ngrams:
        ngram = ids[table.words]
        is_unknown = (ngram == EPSILON).any(axis=1)
        is_misplaced = (ngram[:, 1:] == bos).any(axis=1)
        is_misplaced |= (ngram[:, :-1] == eos).any(axis=1)
        unknown += int(is_unknown.sum())
        misplaced += int((is_misplaced & ~is_unknown).sum())
        rows.append(np.flatnonzero(~is_unknown & ~is_misplaced))
        words.append(ngram[rows[-1]])
    if unknown:
        _log.info("G: %d n-grams have words outside the lexicon: left out", unknown)
    if misplaced:
        _log.warning(
            "G: %d n-grams have <s> or </s> in their middle: left out", misplaced
        )
    tables = list(zip(model.ngrams, rows, strict=True))
    cost = np.concatenate([table.cost[kept] for table, kept in tables])
    backoff = np.concatenate([table.backoff[kept] for table, kept in tables])
    return _Ngrams(words, cost, backoff, bos, eos)


def _histories(ngrams: _Ngrams) -> _Histories:
    """All n-grams as a trie; unlisted ones cost what backing off costs."""
    trie = build_trie(ngrams.words)
    cost = np.zeros(trie.num_nodes, np.float64)
    backoff = np.zeros(trie.num_nodes, np.float64)
    cost[1 : trie.num_listed] = ngrams.cost
    backoff[1 : trie.num_listed] = ngrams.backoff
    unlisted = np.arange(trie.num_listed, trie.num_nodes)
    if len(unlisted):
        _log.info(
            "G: %d histories are not listed themselves: added, at the cost of backing "
            "off",
            len(unlisted),
        )
        order = np.argsort(trie.depth[unlisted], kind="stable")
        fill_unlisted(trie, unlisted[order], cost, backoff)
    return _Histories(trie, cost, backoff, ngrams.bos, ngrams.eos)


@jit
def _destinations(
    trie: NgramTrie, by_depth: np.ndarray, is_state: np.ndarray, backoff: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The longest suffix, or itself, that is a state; the back-offs on the way."""
    target = np.zeros(len(by_depth), np.int32)
    extra = np.zeros(len(by_depth), np.float64)
    for node in by_depth:
        if is_state[node]:
            target[node] = node
        else:
            suffix = trie.suffix[node]
            target[node] = target[suffix]
            extra[node] = backoff[node] + extra[suffix]
    return target, extra


def _assemble(
    histories: _Histories, labels: LabelSpace, unk_cost: float | None
) -> FstArrays:
    trie, cost, backoff = histories.trie, histories.cost, histories.backoff
    nodes = np.arange(trie.num_nodes)
    is_bos = (trie.word == histories.bos) & (trie.depth == 1)
    is_state = is_bos | (nodes == ROOT)
    is_state[trie.parent] = True
    target, extra = _destinations(trie, trie.by_depth(), is_state, backoff)
    number = np.cumsum(is_state) - 1  # of a node that is a state

    ends = trie.word == histories.eos
    final_cost = np.full(int(is_state.sum()), np.inf)
    final_cost[number[trie.parent[ends]]] = cost[ends]
    word = np.flatnonzero(~ends & ~is_bos & (nodes != ROOT))
    ngrams = arcs_of(
        state=number[trie.parent[word]],
        ilabel=trie.word[word],
        olabel=trie.word[word],
        nextstate=number[target[word]],
        cost=cost[word] + extra[word],
    )
    state = np.flatnonzero(is_state & (nodes != ROOT))
    suffix = trie.suffix[state]
    backoffs = arcs_of(
        state=number[state],
        ilabel=labels.backoff_word,
        olabel=EPSILON,
        nextstate=number[target[suffix]],
        cost=backoff[state] + extra[suffix],
    )
    parts = [ngrams, backoffs]
    if unk_cost is not None:
        listed = trie.word[(trie.parent == ROOT) & (nodes != ROOT)]
        added = np.setdiff1d(np.arange(1, len(labels.words)), listed)
        parts.append(arcs_of(0, added, added, 0, unk_cost))
    return fst_of(parts, int(number[is_bos][0]), final_cost)
