"""G, the grammar, from an ARPA model or from a user's grammar.

    g = build_grammar(model, labels)               # words, with back-off arcs

    state       a history: a prefix of some n-gram, the empty one, or `<s>` (the start)
    (h w)       an arc `w` from h to the longest suffix of h w that is a state
    back-off    an arc `#0` from h to the longest proper suffix that is a state
    (h </s>)    a final cost of h

N-grams that are not a prefix of another need no state: the arc that would enter it
leads to a suffix, with the back-offs on the way. Final costs are the least of ending
directly and after back-offs (`arrays.least_final_costs`). A back-off arc may be taken
although an n-gram is listed, so a sentence may cost less than in the model.

    acceptor = read_grammar("commands.fst")        # or AT&T text, or a pynini Fst
    g = build_user_grammar(acceptor, labels)

A grammar with at most one arc per word and one epsilon at each state is used directly,
with epsilons as back-offs. All others are determinized first.
"""

import logging
import math
import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from wfstdec.errors import ArpaError, GrammarError, GraphError
from wfstdec.fst.arrays import Arcs, LabelSpace, arcs_of, fst_of, least_final_costs
from wfstdec.fst.engine import KALDIFST, determinize
from wfstdec.fst.openfst import (
    FstContent,
    Symbols,
    parse_fst,
    read_fst,
    read_words,
)
from wfstdec.fst.operations import trimmed
from wfstdec.graph.arcs import FstArrays
from wfstdec.graph.checks import check_fst
from wfstdec.lm.histories import NO_LABEL, ROOT, Histories, build_histories
from wfstdec.text.arpa import ArpaModel
from wfstdec.text.display import few
from wfstdec.text.files import PathLike, reading
from wfstdec.text.lexicon import word_ids
from wfstdec.text.tokens import EPSILON, EPSILON_WORD

_log = logging.getLogger("wfstdec.build")


def build_grammar(
    model: ArpaModel,
    labels: LabelSpace,
    unk_cost: float | None = None,
    class_cost: float | None = None,
) -> FstArrays:
    """Build G; words that the model lacks cost `unk_cost` at the empty history."""
    # N-grams with a word outside `labels.words` are dropped. Unlisted histories are
    # added, at the cost of their back-off. `class_cost`: nats for the class of OOV
    # words, at the empty history; None for none.
    ids = word_ids(labels.words)
    of_word = np.array([ids.get(w, NO_LABEL) for w in model.words], np.int32)
    histories = build_histories(model, of_word, len(labels.words))
    if below := histories.num_below_backoff():
        # Kaldi's approximation: a back-off is an epsilon arc that any word may follow.
        _log.info(
            "language model: %d of %d n-grams are less probable than their back-off "
            "path; the graph gives them the cost of that path",
            *(below, histories.trie.num_nodes - 1),
        )
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
    # The highest order leads to the longest suffix that is a state, at the cost of
    # backing off to it.
    target, extra = histories.targets(is_state)
    number = np.cumsum(is_state) - 1  # of an n-gram that is a state

    ends = histories.is_end
    final_cost = np.full(int(is_state.sum()), np.inf)
    # `</s>` is a final cost, not an arc.
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
        # After such a word the history is empty: no n-gram contains it.
        unlisted = np.setdiff1d(np.arange(1, len(labels.words)), unigrams)
        parts.append(arcs_of(empty, unlisted, unlisted, empty, unk_cost))
    return fst_of(parts, int(number[histories.is_bos][0]), final_cost)


Words = tuple[str, ...]
_LEAST_STATE_LIMIT = 10_000  # more would take minutes before failing


@dataclass(frozen=True, eq=False)
class WordAcceptor:
    """Acceptor over words."""

    # Input labels of arcs are positions in `words`; 0 is an epsilon or a back-off
    fst: FstArrays
    words: tuple[str, ...]  # Words of its arcs, after `<eps>`
    class_cost: float | None = None  # Nats for OOV words, at the start; None for none


def phrase_grammar(phrases: Collection[Words], has_class: bool = False) -> WordAcceptor:
    """Return an acceptor of any sequence of phrases, equally likely, with OOV words."""
    words = [EPSILON_WORD, *sorted(set(chain.from_iterable(phrases)))]
    ids = {word: i for i, word in enumerate(words)}
    # A trie whose leaves are its root; back-offs leave phrases that are prefixes of
    # others.
    inner = {phrase[:n] for phrase in phrases for n in range(1, len(phrase))}
    state = {prefix: i for i, prefix in enumerate(sorted({(), *inner}))}
    rows = [(state[x[:-1]], ids[x[-1]], state.get(x, 0)) for x in {*inner, *phrases}]
    rows += [(state[x], EPSILON, 0) for x in inner.intersection(phrases)]
    begin, label, end = np.array(sorted(rows)).T
    cost = math.log(len({*phrases}) + has_class + 1)
    arcs = arcs_of(begin, label, label, end, np.where(begin == 0, cost, 0.0))
    fst = fst_of([arcs], 0, [cost, *[np.inf] * len(inner)])
    return WordAcceptor(fst, tuple(words), cost if has_class else None)


def read_grammar(source: Any, words: PathLike | None = None) -> WordAcceptor:
    """Read a grammar, with words by its symbol table, or a table of `word id`."""
    if isinstance(source, WordAcceptor):
        return source
    table = None if words is None else dict(enumerate(read_words(words)))
    if isinstance(source, (str, os.PathLike)):
        content, place = read_fst(source, table, table), os.fspath(source)
    elif hasattr(source, "write_to_string"):
        content, place = parse_fst(source.write_to_string(), "grammar"), "grammar"
    else:
        raise GrammarError(
            f"grammar is a {type(source).__name__}, expected a path or a pynini Fst"
        )
    isymbols = table or content.isymbols
    if isymbols is None:
        raise GrammarError(
            f"{place}: no symbol table, expected one that names the words: --words, or "
            "compile it from words (in pynini: token_type=symbols, "
            "set_input_symbols(symbols))"
        )
    return _acceptor(
        replace(content, osymbols=None) if words else content, isymbols, place
    )


def build_user_grammar(
    acceptor: WordAcceptor, labels: LabelSpace, engine: str = KALDIFST
) -> FstArrays:
    """Build G from a grammar, all of whose words are in `labels.words`."""
    ids = {word: i for i, word in enumerate(labels.words)}
    if missing := [word for word in acceptor.words if word not in ids]:
        raise GrammarError(
            f"{len(missing)} of {len(acceptor.words) - 1} words of the grammar are "
            f"not in the lexicon: {few(missing, 5)}; add pronunciations for them"
        )
    new = np.array([ids[word] for word in acceptor.words], np.int32)
    fst = acceptor.fst
    fst = replace(fst, ilabel=new[fst.ilabel], olabel=np.zeros_like(fst.ilabel))
    # All states are final, so every negative cycle counts.
    anywhere = replace(fst, final_cost=np.zeros_like(fst.final_cost))
    least_final_costs(anywhere, EPSILON)  # raises for a negative cycle
    # Epsilons of a back-off model become `#0`: determinizing would expand them.
    if not _is_backoff_model(fst):
        fst = _determinized(fst, engine)
    backoff = fst.ilabel == EPSILON
    fst = replace(
        fst,
        ilabel=np.where(backoff, labels.backoff_word, fst.ilabel).astype(np.int32),
        olabel=fst.ilabel,
        final_cost=least_final_costs(fst, EPSILON),
    )
    fst = trimmed(fst)
    if not fst.num_states:
        raise GrammarError("the grammar accepts no sentence, expected at least one")
    if (cost := acceptor.class_cost) is None:
        return fst
    label, begin = labels.class_word, fst.start
    parts = [Arcs(fst.arc_state(), fst.ilabel, fst.olabel, fst.nextstate, fst.cost)]
    parts.append(arcs_of(begin, label, label, begin, cost))
    return fst_of(parts, begin, fst.final_cost)


def _acceptor(content: FstContent, isymbols: Symbols, place: str) -> WordAcceptor:
    fst = content.fst
    with reading(place, "grammar"):
        check_fst(fst)
    osymbols = isymbols if content.osymbols is None else content.osymbols
    used, inverse = np.unique(fst.ilabel, return_inverse=True)
    names = [_name(label, isymbols, place) for label in used.tolist()]
    pairs = np.unique(np.stack([fst.ilabel, fst.olabel], axis=1), axis=0)
    for ilabel, olabel in pairs.tolist():
        word, other = _name(ilabel, isymbols, place), _name(olabel, osymbols, place)
        # By name, as two tables may number words differently.
        if word != other and word != EPSILON_WORD:
            raise GrammarError(
                f"{place}: an arc turns {word!r} into {other!r}, expected an acceptor: "
                "project it to its input or output side"
            )
    words = [EPSILON_WORD, *sorted(set(names) - {EPSILON_WORD})]
    position = {word: i for i, word in enumerate(words)}
    labels = np.array([position[name] for name in names], np.int32)
    return WordAcceptor(replace(fst, ilabel=labels[inverse]), tuple(words))


def _name(label: int, symbols: Symbols, place: str) -> str:
    """Return a label's word; Kaldi writes back-offs as `#0` on the input side."""
    name = EPSILON_WORD if label == EPSILON else symbols.get(label)
    if name is None:
        raise GrammarError(
            f"{place}: label {label} is on an arc and not in the symbol table, "
            "expected a word for each label"
        )
    return EPSILON_WORD if name == "#0" else name


def _is_backoff_model(fst: FstArrays) -> bool:
    """Return whether states have distinct labels, and no cycle has only epsilons."""
    key = fst.arc_state() * (int(fst.ilabel.max(initial=0)) + 1) + fst.ilabel
    if len(np.unique(key)) < len(key):
        return False
    behind = np.full(fst.num_states, -1)
    epsilon = fst.ilabel == EPSILON
    behind[fst.arc_state()[epsilon]] = fst.nextstate[epsilon]
    for _ in range(fst.num_states.bit_length()):  # pointer doubling: 2**n steps
        behind = np.where(behind >= 0, behind[behind], -1)
    return bool((behind < 0).all())


def _determinized(fst: FstArrays, engine: str) -> FstArrays:
    limit = max(_LEAST_STATE_LIMIT, 2 * fst.num_states)
    try:
        return determinize(fst, limit, engine)
    except GraphError:
        raise GrammarError(
            f"determinizing the grammar needs more than {limit} states, expected "
            "fewer: it accepts sentences in several ways whose costs drift apart "
            "without end; let each sentence have one way, or remove costs on loops"
        ) from None
