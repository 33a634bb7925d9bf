"""Checks of boost lists against a graph, and the overlay of OOV words.

    check_phrases(graph, boosts.phrases)
    check_oov(graph)
    overlay_of(graph, words)            # pronunciations as arcs beside the graph

Phrases of words advance on every arc with a word. Phrases of tokens advance on every
emitting arc that begins a token: not on blanks, and not on repeats.

An OOV word costs what the language model charges for `<unk>`, as the graph's OOV exits
do; a further pronunciation of a word of the graph costs what the word does without
context, since the exits have none.
"""

from __future__ import annotations

import numpy as np

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import BoostError, GraphError
from wfstdec.graph.overlay import Overlay, exits_of, make_overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.vocabulary import OovWords


def check_phrases(
    graph: PackedGraph, phrases: PhraseBoosts, utterance: int | None = None
) -> None:
    """Raise if searches of this graph cannot follow these phrases."""
    if phrases.unit == "token" and not graph.info.marks_repeats:
        raise BoostError(
            "phrases of tokens, but the graph does not say which arcs repeat a token, "
            "expected a graph of `wfstdec build`; or compile the phrases for words",
            utterance,
        )


def overlay_of(graph: PackedGraph, oov: OovWords) -> Overlay:
    """The overlay of some words for searches of a graph."""
    return make_overlay(graph, oov, _pron_costs(graph, oov))


def check_oov(graph: PackedGraph, utterance: int | None = None) -> None:
    """Raise if searches of this graph cannot add words."""
    try:
        exits_of(graph)
    except GraphError as error:
        raise BoostError(str(error), utterance) from None


def _pron_costs(graph: PackedGraph, oov: OovWords) -> np.ndarray:
    costs, exits = graph.info.word_cost, exits_of(graph)
    known = oov.word < oov.num_known
    cost = np.zeros(len(oov.word), np.float32)
    if len(costs):
        of_word = costs[oov.word[known]] - np.float32(exits.word_cost)
        cost[known] = np.where(np.isfinite(of_word), of_word, np.float32(0))
    return cost
