"""Confidences of the words of paths through lattices, of whichever search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.mbr import word_confidences
from wfstdec.search.paths.lattice import tokens_on, word_ends


def confidences_of(
    lattice: Lattice, arcs: np.ndarray | None = None, scale: float = 1.0
) -> Sequence[float]:
    """How sure each word of a path is; of bare tokens its least sure token.

    Args:
        lattice: Any.
        arcs: The path, positions in `Lattice.arcs`; None is the best one.
        scale: As of `posteriors`.
    """
    arcs = lattice.best_arcs() if arcs is None else arcs
    sure = word_confidences(lattice, scale, arcs).confidences
    if not lattice.words_are_tokens:
        return sure
    texts, spans, *_ = word_ends(lattice).spans(tokens_on(lattice, arcs))
    words = zip(texts, spans, strict=True)
    return [min(sure[a:b]) for text, (a, b) in words if text]
