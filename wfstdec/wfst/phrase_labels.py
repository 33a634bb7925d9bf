"""Which arcs of a graph phrases step on, and by which label.

Phrases of words step on every arc with a word, by its id. Phrases of tokens step on
every emitting arc that begins a token, by the token: not on blanks, and not on arcs
that repeat the frame before.
"""

from __future__ import annotations

import numpy as np

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import BoostError
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.graph.packed import PackedGraph
from wfstdec.lm.automaton import Unit
from wfstdec.text.symbols import EPSILON, ilabel_of, token_of


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
    if phrases.unit == "token" and not graph.tables.marks_repeats:
        raise BoostError(
            "phrases of tokens, but the graph does not say which arcs repeat a token, "
            "expected a graph of `wfstdec build`; or compile the phrases for words",
            utterance,
        )


def begun_tokens(graph: PackedGraph, arcs: np.ndarray) -> np.ndarray:
    """The tokens by which phrases of tokens step along a path.

    Args:
        graph: The graph.
        arcs: int64 [N], arc ids in order.

    Returns:
        int32, at most one for each arc.
    """
    taken = graph.arcs[arcs]
    taken = taken[steps_on(graph, taken, "token")]
    return token_of(taken["ilabel"] & np.uint32(LABEL_MASK)).astype(np.int32)


def steps_on(graph: PackedGraph, arcs: np.ndarray, unit: Unit) -> np.ndarray:
    """Whether phrases of a unit step, for each of some `ARC` [N]; bool [N]."""
    if unit == "word":
        return arcs["olabel"] != EPSILON
    label = arcs["ilabel"] & np.uint32(LABEL_MASK)
    begins = (label != EPSILON) & (arcs["ilabel"] & np.uint32(REPEAT) == 0)
    return begins & (label != ilabel_of(graph.tokens.blank))
