"""The fewest word errors that any path of a lattice, or text of a list, makes.

errors = lattice_errors(lattice, ["hello", "world"])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wfstdec.errors import LatticeError
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice


def lattice_errors(lattice: Lattice, reference: Sequence[str]) -> int:
    """The least edit distance between a reference and a path, exactly.

    Args:
        lattice: Any.
        reference: Words; those that the graph lacks are errors.

    Raises:
        LatticeError: The lattice is one of bare tokens.
    """
    if lattice.words_are_tokens:
        raise LatticeError(
            "is one of bare tokens, whose words are not known, expected a lattice of a "
            "search with a lexicon or a graph"
        )
    ids = {word: i for i, word in enumerate(lattice.words)}
    text = np.array([ids.get(word, -1) for word in reference], np.int64)
    splits, into = lattice.arcs_into
    arcs, may_end = lattice.arcs, lattice.states["final_excess"] < np.inf
    state, olabel = arcs["state"].astype(np.int64), arcs["olabel"].astype(np.int64)
    return int(_errors(lattice.order, splits, into, state, olabel, may_end, text))


@jit
def _errors(order, splits, into, source, olabel, may_end, text):
    """See `lattice_errors`: of the best way to each state and place of the text."""
    size = len(text)
    none = 1 << 30
    errors = np.full((len(order), size + 1), none, np.int64)
    for q in range(size + 1):
        errors[0, q] = q
    best = none
    for state in order:
        row = errors[state]
        for p in range(splits[state], splits[state + 1]):
            before, word = errors[source[into[p]]], olabel[into[p]]
            for q in range(size + 1):
                if word == 0:
                    row[q] = min(row[q], before[q])
                    continue
                row[q] = min(row[q], before[q] + 1)
                if q > 0:
                    row[q] = min(row[q], before[q - 1] + int(word != text[q - 1]))
        for q in range(size):
            row[q + 1] = min(row[q + 1], row[q] + 1)
        if may_end[state]:
            best = min(best, row[size])
    return best
