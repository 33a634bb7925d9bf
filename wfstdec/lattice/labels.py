"""Read labels of lattices of searches that have no graph.

In these a word stands where it ends: on the arc of the token behind it, or on the arc
to the end. Its tokens are those since the word before, separators apart: nothing has
to be matched with pronunciations. Repeats of a token are marked.
"""

from __future__ import annotations

import numpy as np

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, REPEAT
from wfstdec.graph.info import GraphInfo
from wfstdec.lattice.arrays import Lattice
from wfstdec.text.symbols import EPSILON, TokenTable, ilabel_of, token_of

REPEATED, WORD = REPEAT, CARRIES_WORD
"""Flags of ilabels: the token goes on; `olabel` is a word."""
OPEN = 0xFFFFFFFF
"""Stands for the label of open words where that is not known yet."""
NO_GRAPH = GraphInfo(marks_repeats=True)
"""Facts of all these searches."""


def begins_token(lattice: Lattice) -> np.ndarray:
    """Find the arcs on which a token begins that is no blank, bool [A]."""
    return starts_token(lattice.arcs["ilabel"], lattice.tokens)


def starts_token(ilabel: np.ndarray, tokens: TokenTable) -> np.ndarray:
    """Find the ilabels with which a token begins that is no blank, bool [A]."""
    label, repeats = ilabel & LABEL_MASK, ilabel & REPEATED != 0
    return (label != EPSILON) & (label != ilabel_of(tokens.blank)) & ~repeats


def tokens_of(ilabel: np.ndarray) -> np.ndarray:
    """Take the tokens out of ilabels that have one, without flags, int32."""
    return token_of((ilabel & LABEL_MASK).astype(np.int32))
