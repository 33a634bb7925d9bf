"""Check and lay out boost lists for searches of a graph: phrases, OOV words.

    check_phrases(graph, boosts.phrases)
    check_added(graph)
    overlay_of(graph, added)            # what the search says the words on

Phrases of words step on every arc with a word, by its id. Phrases of tokens step on
every emitting arc that begins a token, by the token: not on blanks, and not on arcs
that repeat the frame before.

An OOV word costs what the language model asks for `<unk>`, which is what the graph's
calls cost; a further pronunciation of a word that the graph has costs what this one
does whatever was said before, since that is all that is known behind a call.
"""

from __future__ import annotations

import numpy as np

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import BoostError, GraphError
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.graph.overlay import Overlay, SaidWords, exits_of, make_overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.lm.automaton import Unit
from wfstdec.text.symbols import EPSILON, ilabel_of
from wfstdec.text.vocabulary import OovWords


def check_phrases(
    graph: PackedGraph, phrases: PhraseBoosts, utterance: int | None = None
) -> None:
    """See that a search of this graph can follow these phrases.

    Args:
        graph: The graph.
        phrases: The phrases.
        utterance: Whose they are, for the error.

    Raises:
        BoostError: They are of tokens, and the graph's arcs do not say which of them
            repeat a token.
    """
    if phrases.unit == "token" and not graph.info.marks_repeats:
        raise BoostError(
            "phrases of tokens, but the graph does not say which arcs repeat a token, "
            "expected a graph of `wfstdec build`; or compile the phrases for words",
            utterance,
        )


def steps_on(graph: PackedGraph, arcs: np.ndarray, unit: Unit) -> np.ndarray:
    """Tell whether phrases of a unit step, for each of some `ARC` [N]; bool [N]."""
    if unit == "word":
        return arcs["olabel"] != EPSILON
    label = arcs["ilabel"] & np.uint32(LABEL_MASK)
    begins = (label != EPSILON) & (arcs["ilabel"] & np.uint32(REPEAT) == 0)
    return begins & (label != ilabel_of(graph.tokens.blank))


def overlay_of(graph: PackedGraph, added: OovWords) -> Overlay:
    """The overlay that says some words in searches of a graph."""
    return make_overlay(graph, _said(graph, added))


def check_added(graph: PackedGraph, utterance: int | None = None) -> None:
    """See that words may be added to searches of a graph.

    Args:
        graph: The graph.
        utterance: Whose words they are, for the error.

    Raises:
        BoostError: It has no calls.
    """
    try:
        exits_of(graph)
    except GraphError as error:
        raise BoostError(str(error), utterance) from None


def _said(graph: PackedGraph, added: OovWords) -> SaidWords:
    costs, exits = graph.info.word_cost, exits_of(graph)
    known = added.word < added.num_known
    cost = np.zeros(len(added.word), np.float32)
    if len(costs):
        of_word = costs[added.word[known]] - np.float32(exits.word_cost)
        cost[known] = np.where(np.isfinite(of_word), of_word, np.float32(0))
    return SaidWords(added.word, added.splits, added.tokens, cost, added.bonus)
