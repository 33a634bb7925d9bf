"""Phrases laid out for arcs of a graph, and the label by which they step on one."""

from __future__ import annotations

from numpy import uint32

from wfstdec.boost.phrase_rows import NO_LABEL, PhraseRows, lay_out
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.jit import inlined
from wfstdec.text.symbols import ilabel_of


def phrase_rows_of(phrases: PhraseBoosts, blank: int) -> PhraseRows:
    """The rows of phrases, by the labels of `phrase_label`: ilabels or word ids.

    Args:
        phrases: The phrases.
        blank: The token that phrases of tokens do not step on.
    """
    if phrases.unit == "word":
        return lay_out(phrases, 0, NO_LABEL)
    return lay_out(phrases, ilabel_of(0), ilabel_of(blank))


@inlined
def phrase_label(phrases, arc):
    """What phrases step by on an arc of the graph; 0 where they do not."""
    if phrases.of_words:
        return arc.olabel
    if arc.ilabel & uint32(REPEAT):
        return uint32(0)
    label = arc.ilabel & uint32(LABEL_MASK)
    return uint32(0) if label == phrases.silent else label
