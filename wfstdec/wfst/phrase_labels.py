"""Which arcs of a graph phrases step on, and by which label.

Phrases of words step on every arc with a word, by its id. Phrases of tokens step on
every emitting arc that starts a token, by the token: not on blanks, and not on arcs
that repeat the frame before.
"""

from __future__ import annotations

import numpy as np
from numpy import uint32

from wfstdec.boost.phrase_rows import NO_LABEL, PhraseRows, lay_out
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import BoostError
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit import inlined
from wfstdec.lm.automaton import Unit
from wfstdec.text.symbols import EPSILON, ilabel_of, token_of


def check_phrases(graph: PackedGraph, phrases: PhraseBoosts) -> None:
    """See that a search of this graph can follow these phrases.

    Raises:
        BoostError: They are of tokens, and the graph's arcs do not say which of them
            repeat a token.
    """
    if phrases.unit == "token" and not graph.tables.marks_repeats:
        raise BoostError(
            "phrases of tokens, but the graph does not say which arcs repeat a token, "
            "expected a graph of `wfstdec build`; or compile the phrases for words"
        )


def said_labels(graph: PackedGraph, arcs: np.ndarray, unit: Unit) -> np.ndarray:
    """What phrases step by along a path.

    Args:
        graph: The graph.
        arcs: int64 [N], arc ids in order.
        unit: That of the phrases.

    Returns:
        int32, word ids or tokens.
    """
    taken = graph.arcs[arcs]
    taken = taken[steps_on(graph, taken, unit)]
    if unit == "word":
        return taken["olabel"].astype(np.int32)
    return token_of(taken["ilabel"] & np.uint32(LABEL_MASK)).astype(np.int32)


def steps_on(graph: PackedGraph, arcs: np.ndarray, unit: Unit) -> np.ndarray:
    """Whether phrases of a unit step, for each of some `ARC` [N]; bool [N]."""
    if unit == "word":
        return arcs["olabel"] != EPSILON
    label = arcs["ilabel"] & np.uint32(LABEL_MASK)
    starts = (label != EPSILON) & (arcs["ilabel"] & np.uint32(REPEAT) == 0)
    return starts & (label != ilabel_of(graph.tokens.blank))


def rows_of(blank: int, phrases: PhraseBoosts) -> PhraseRows:
    """The rows of phrases by which `label_of` steps; the labels are ilabels or words.

    Args:
        blank: The token that phrases of tokens do not step on.
        phrases: The phrases.
    """
    if phrases.unit == "word":
        return lay_out(phrases, 0, NO_LABEL)
    return lay_out(phrases, ilabel_of(0), ilabel_of(blank))


@inlined
def label_of(phrases, arc):
    """What phrases step by on an arc of the graph; 0 where they do not."""
    if phrases.of_words:
        return arc.olabel
    if arc.ilabel & uint32(REPEAT):
        return uint32(0)
    label = arc.ilabel & uint32(LABEL_MASK)
    return uint32(0) if label == phrases.silent else label
