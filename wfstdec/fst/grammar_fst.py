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

from dataclasses import replace

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.fst.arrays import arcs_of, fst_of, least_final_costs
from wfstdec.fst.labels import LabelSpace
from wfstdec.graph.arcs import FstArrays
from wfstdec.lm.histories import NO_LABEL, ROOT, Histories, build_histories
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.loading import word_ids
from wfstdec.text.symbols import EPSILON


def build_grammar(
    model: ArpaModel,
    labels: LabelSpace,
    unk_cost: float | None = None,
    class_cost: float | None = None,
) -> FstArrays:
    """Make G; words that the model lacks cost `unk_cost` at the empty history.

    N-grams with a word that is not in `labels.words` are left out, and their number is
    logged. A history that no table lists is added, at the cost of its back-off.

    Args:
        model: The language model.
        labels: The words, and the label of `#0`.
        unk_cost: Nats; None where all words have an n-gram.
        class_cost: Nats for the class of words that the lexicon lacks, at the empty
            history too; None for no such class.

    Raises:
        ArpaError: No `<s>`, no `</s>`, or no sentence can end.
    """
    ids = word_ids(labels.words)
    of_word = np.array([ids.get(w, NO_LABEL) for w in model.words], np.int32)
    histories = build_histories(model, of_word, len(labels.words))
    fst = _assemble(histories, labels, unk_cost, class_cost)
    final_cost = least_final_costs(fst, labels.backoff_word)
    if not np.isfinite(final_cost).any():
        raise ArpaError(
            "</s> has probability 0 everywhere, expected sentences that end"
        )
    return replace(fst, final_cost=final_cost)


def _assemble(
    histories: Histories,
    labels: LabelSpace,
    unk_cost: float | None,
    class_cost: float | None,
) -> FstArrays:
    trie, cost, backoff = histories.trie, histories.cost, histories.backoff
    is_state = histories.prefixes()
    # The highest order goes straight to the longest suffix that is a state, at what
    # backing off to it costs.
    target, extra = histories.targets(is_state)
    number = np.cumsum(is_state) - 1  # of an n-gram that is a state

    ends = histories.is_end
    final_cost = np.full(int(is_state.sum()), np.inf)
    # `</s>` is the cost of ending, and no arc.
    final_cost[number[trie.parent[ends]]] = cost[ends]
    ngram = histories.predicting()
    ngrams = arcs_of(
        state=number[trie.parent[ngram]],
        ilabel=trie.label[ngram],
        olabel=trie.label[ngram],
        nextstate=number[target[ngram]],
        cost=cost[ngram] + extra[ngram],
    )
    history = np.flatnonzero(is_state & (trie.depth > 0))
    suffix = trie.suffix[history]
    backoffs = arcs_of(
        state=number[history],
        ilabel=labels.backoff_word,
        olabel=EPSILON,
        nextstate=number[target[suffix]],
        cost=backoff[history] + extra[suffix],
    )
    parts, empty = [ngrams, backoffs], number[ROOT]
    if class_cost is not None:
        label = labels.class_word
        parts.append(arcs_of(empty, label, label, empty, class_cost))
    if unk_cost is not None:
        unigrams = trie.label[ngram[trie.parent[ngram] == ROOT]]
        # After such a word the history is empty: no n-gram has it.
        unlisted = np.setdiff1d(np.arange(1, len(labels.words)), unigrams)
        parts.append(arcs_of(empty, unlisted, unlisted, empty, unk_cost))
    return fst_of(parts, int(number[histories.is_bos][0]), final_cost)
