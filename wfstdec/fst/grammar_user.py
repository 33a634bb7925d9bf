"""G from a user's grammar: any acceptor over words, from a file or pynini.

    acceptor = read_grammar("commands.fst")        # or AT&T text, or a pynini Fst
    acceptor.vocabulary                            # the words on its arcs
    g = build_user_grammar(acceptor, labels, get_engine("kaldifst"))

A grammar with at most one arc per word and one epsilon at each state is taken as it
is, its epsilons as back-offs: an n-gram model in OpenFst form is one. All others are
determinized first, which removes their epsilons, so that LG can be determinized too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wfstdec.errors import GrammarError, GraphError
from wfstdec.fst.arrays import least_final_costs
from wfstdec.fst.engine import Engine
from wfstdec.fst.labels import LabelSpace
from wfstdec.fst.openfst_binary import FstContent, Symbols, parse_fst
from wfstdec.fst.openfst_io import read_fst
from wfstdec.graph.arcs import FstArrays
from wfstdec.text.symbols import EPSILON, EPSILON_WORD

_LEAST_STATE_LIMIT = 10_000  # more would take minutes before they fail
_BACKOFF = "#0"


@dataclass(frozen=True, eq=False)
class WordAcceptor:
    """An acceptor over words.

    Attributes:
        fst: Arcs whose input labels are positions in `words`; 0 is an epsilon or
            a back-off.
        words: The words on its arcs, behind `<eps>`.
    """

    fst: FstArrays
    words: tuple[str, ...]

    @property
    def vocabulary(self) -> frozenset[str]:
        """The words, without `<eps>`."""
        return frozenset(self.words[1:])


def read_grammar(source: Any) -> WordAcceptor:
    """Read a grammar; its symbol table names the words.

    Args:
        source: A path (OpenFst binary or AT&T text), or a pynini `Fst`.

    Raises:
        FormatError: The file cannot be read, or is damaged.
        GrammarError: It has no symbols, or is no acceptor.
    """
    if isinstance(source, (str, os.PathLike)):
        content, place = read_fst(source), os.fspath(source)
    elif hasattr(source, "write_to_string"):
        content, place = parse_fst(source.write_to_string(), "grammar"), "grammar"
    else:
        raise GrammarError(
            f"grammar is a {type(source).__name__}, expected a path or a pynini Fst"
        )
    if content.isymbols is None:
        raise GrammarError(
            f"{place}: no symbol table, expected one that names the words: compile it "
            "from words (in pynini: token_type=symbols, set_input_symbols(symbols))"
        )
    return _acceptor(content, content.isymbols, place)


def build_user_grammar(
    acceptor: WordAcceptor, labels: LabelSpace, engine: Engine
) -> FstArrays:
    """Make G from a grammar, all of whose words are in `labels.words`.

    Args:
        acceptor: The grammar.
        labels: The words, and the label of `#0`.
        engine: Determinizes the grammar if it needs to be.

    Raises:
        GrammarError: No sentence, words that are not in the lexicon, a cycle of
            epsilons whose cost is negative, or costs that cannot be determinized.
    """
    ids = {word: i for i, word in enumerate(labels.words)}
    missing = sorted(acceptor.vocabulary - ids.keys())
    if missing:
        raise GrammarError(
            f"{len(missing)} of {len(acceptor.vocabulary)} words of the grammar are "
            f"not in the lexicon: {', '.join(map(repr, missing[:5]))}; add "
            "pronunciations for them"
        )
    word_ids = np.array([ids[word] for word in acceptor.words], np.int32)
    fst = acceptor.fst
    fst = replace(fst, ilabel=word_ids[fst.ilabel], olabel=np.zeros_like(fst.ilabel))
    # With every state final, no negative cycle is left out for leading nowhere.
    anywhere = replace(fst, final_cost=np.zeros_like(fst.final_cost))
    least_final_costs(anywhere, EPSILON)  # raises for a negative cycle
    # Epsilons of a back-off model become `#0`: determinizing would remove them, and
    # each history grow by the arcs of its suffixes.
    if not _is_backoff_model(fst):
        fst = _determinized(fst, engine)
    backoff = fst.ilabel == EPSILON
    fst = replace(
        fst,
        ilabel=np.where(backoff, labels.backoff_word, fst.ilabel).astype(np.int32),
        olabel=fst.ilabel,
        # A state ends at the least cost to which its epsilons lead: no sentence needs a
        # `#0` before its end then.
        final_cost=least_final_costs(fst, EPSILON),
    )
    if not np.isfinite(fst.final_cost).any():
        raise GrammarError("the grammar accepts no sentence, expected at least one")
    return fst


def _acceptor(content: FstContent, isymbols: Symbols, place: str) -> WordAcceptor:
    """Number the words of an FST by their names, sorted, whatever its tables say."""
    fst = content.fst
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
    fst = replace(fst, ilabel=labels[inverse] if len(labels) else fst.ilabel)
    return WordAcceptor(fst, tuple(words))


def _name(label: int, symbols: Symbols, place: str) -> str:
    """A label's word; Kaldi writes back-offs as `#0` on the input side."""
    if label != EPSILON and label not in symbols:
        raise GrammarError(
            f"{place}: label {label} is on an arc and not in the symbol table, "
            "expected a word for each label"
        )
    name = EPSILON_WORD if label == EPSILON else symbols[label]
    return EPSILON_WORD if name == _BACKOFF else name


def _is_backoff_model(fst: FstArrays) -> bool:
    """Tell whether no state has two arcs of one label, and no cycle is all epsilons."""
    key = fst.arc_state() * (int(fst.ilabel.max(initial=0)) + 1) + fst.ilabel
    if len(np.unique(key)) < len(key):
        return False
    behind = np.full(fst.num_states, -1)
    epsilon = fst.ilabel == EPSILON
    behind[fst.arc_state()[epsilon]] = fst.nextstate[epsilon]
    state = np.arange(fst.num_states)
    for _ in range(fst.num_states.bit_length()):  # pointer doubling: 2**n steps
        behind = np.where(behind >= 0, behind[behind], -1)
    return bool((behind[state] < 0).all())


def _determinized(fst: FstArrays, engine: Engine) -> FstArrays:
    limit = max(_LEAST_STATE_LIMIT, 2 * fst.num_states)
    try:
        return engine.determinize(fst, limit, log=False)
    except GraphError:
        raise GrammarError(
            f"determinizing the grammar needs more than {limit} states, expected "
            "fewer: it accepts sentences in several ways whose costs drift apart "
            "without end; let each sentence have one way, or remove costs on loops"
        ) from None
