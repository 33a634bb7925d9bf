"""Words added for an utterance, in a search of a graph: an overlay, texts, times.

    overlay_of(graph, added)            # what the search says the words on
    tables_with(graph.tables, added)    # words and pronunciations of both

An added word costs what the language model asks for `<unk>`, which is what the graph's
calls cost; a further pronunciation of a word that the graph has costs what this one
does whatever was said before, since that is all that is known behind a call.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

import numpy as np

from wfstdec.boost.oov import OovWords
from wfstdec.errors import BoostError, GraphError
from wfstdec.graph.overlay import Overlay, SaidWords, exits_of, make_overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.search.paths.word_cut import Aligner
from wfstdec.text.pronunciations import Pronunciations
from wfstdec.text.vocabulary import Vocabulary, with_words


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


class Readings:
    """What reads the paths of one graph.

    Args:
        tables: Of the graph.
    """

    def __init__(self, tables: Vocabulary) -> None:
        self._own, self._lock = (tables, Aligner(tables)), threading.Lock()
        self._made: WeakKeyDictionary[OovWords, tuple[Vocabulary, Aligner]]
        self._made = WeakKeyDictionary()

    def of(self, added: OovWords | None) -> tuple[Vocabulary, Aligner]:
        """The tables with the words that are added, and an aligner; made once."""
        if added is None:
            return self._own
        with self._lock:
            if added not in self._made:
                tables = tables_with(self._own[0], added)
                self._made[added] = tables, Aligner(tables)
            return self._made[added]


def tables_with(tables: Vocabulary, added: OovWords) -> Vocabulary:
    """The tables of a graph with the words that are added."""
    said = Pronunciations(
        added.word, added.splits, added.tokens, np.zeros(len(added.word), np.float32)
    )
    return with_words(tables, added.words, said)


def _said(graph: PackedGraph, added: OovWords) -> SaidWords:
    costs, exits = graph.tables.word_cost, exits_of(graph)
    known = added.word < added.num_known
    cost = np.zeros(len(added.word), np.float32)
    if len(costs):
        of_word = costs[added.word[known]] - np.float32(exits.word_cost)
        cost[known] = np.where(np.isfinite(of_word), of_word, np.float32(0))
    return SaidWords(added.word, added.splits, added.tokens, cost, added.bonus)
