"""Word confidences, and the words of least expected error, from a lattice.

    found = word_confidences(lattice)              # of the best path's words
    found = minimum_bayes_risk(lattice)            # words that may differ from them

After Xu, Povey, Mangu and Zhu, "Minimum Bayes Risk decoding and system combination
based on a recursion for edit distance", Computer Speech and Language 25 (2011): every
path of the lattice is aligned with a text by edit distance, weighted by the path's
probability (an upper bound: of paths that meet in a state, one alignment goes on). What
stands at the place of a word, in how much of the probability, is its confidence.

Between words, before and after them, are places where the text has nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.posteriors import posteriors

_DEARER = 1e-5
"""An inserted word costs so much more than another error: so that ties are decided."""
_MAX_ROUNDS = 100


class Confidences(NamedTuple):
    """Words and how sure they are.

    Attributes:
        words: Word ids.
        confidences: Of each, 0 to 1.
        expected_errors: Word errors that are to be expected in all, at most.
    """

    words: tuple[int, ...]
    confidences: tuple[float, ...]
    expected_errors: float


def word_confidences(lattice: Lattice, scale: float = 1.0) -> Confidences:
    """How sure each word of the best path is.

    Args:
        lattice: Any.
        scale: As of `posteriors`.
    """
    return _Risk(lattice, scale).of(lattice.word_ids(lattice.best_arcs()))


def minimum_bayes_risk(lattice: Lattice, scale: float = 1.0) -> Confidences:
    """The words of least expected error, from the best path's on.

    Each place takes what is most probable there, until no fewer errors are expected.

    Args:
        lattice: Any.
        scale: As of `posteriors`.
    """
    risk = _Risk(lattice, scale)
    best = risk.of(lattice.word_ids(lattice.best_arcs()))
    for _ in range(_MAX_ROUNDS):
        better = risk.of(best.words, improve=True)
        if not better.expected_errors < best.expected_errors - 1e-9:
            break
        best = better
    return best


class _Risk:
    """Alignments with the paths of one lattice."""

    def __init__(self, lattice: Lattice, scale: float) -> None:
        found = posteriors(lattice, scale)
        self._words, label = np.unique(
            np.append(lattice.arcs["olabel"], 0), return_inverse=True
        )
        splits, into = lattice.arcs_into
        self._arrays = (
            lattice.order,
            splits,
            into,
            lattice.arcs["state"].astype(np.int64),
            label[:-1].astype(np.int64),
            found.into,
            found.end,
        )

    def of(self, words: tuple[int, ...], *, improve: bool = False) -> Confidences:
        """The confidences of a text, or of what is most probable in its places."""
        text = np.zeros(2 * len(words) + 1, np.int64)
        text[1::2] = np.searchsorted(self._words, words)
        if improve:
            _, share = _align(self._arrays, text, len(self._words))
            text = np.argmax(share, axis=1)
            said = text[text != 0]
            text = np.zeros(2 * len(said) + 1, np.int64)
            text[1::2] = said
        errors, share = _align(self._arrays, text, len(self._words))
        at = np.arange(1, len(text), 2)
        sure = np.minimum(share[at, text[at]], 1.0)
        ids = tuple(self._words[text[at]].tolist())
        return Confidences(ids, tuple(sure.tolist()), float(errors))


@jit
def _align(lattice, text, num_labels):
    """Align all paths with a text, whose label 0 is nothing.

    Returns:
        (expected errors, the share of each label in each place, float64 [Q, L]).
    """
    order, splits, into, source, label, chance, end = lattice
    size = len(text)
    errors = np.zeros((len(order), size + 1))
    ways = np.zeros((len(chance), size + 1), np.int8)
    for q in range(size):
        errors[0, q + 1] = errors[0, q] + np.float64(text[q] != 0)
    for state in order:
        for p in range(splits[state], splits[state + 1]):
            a = into[p]
            before, one = source[a], 0.0
            for q in range(size + 1):
                skip = errors[before, q]
                if label[a] == 0:
                    best, way = skip, 2
                else:
                    best, way = skip + 1.0 + _DEARER, 2
                    if q > 0:
                        match = errors[before, q - 1] + np.float64(
                            label[a] != text[q - 1]
                        )
                        if match <= best:
                            best, way = match, 1
                        leave = one + np.float64(text[q - 1] != 0)
                        if leave < best:
                            best, way = leave, 3
                ways[a, q], one = way, best
                errors[state, q] += chance[a] * one
    share, mass = np.zeros((size, num_labels)), np.zeros((len(order), size + 1))
    total = 0.0
    for state in range(len(order)):
        mass[state, size] = end[state]
        total += end[state] * errors[state, size]
    one = np.zeros(size + 1)
    for state in order[::-1]:
        for p in range(splits[state], splits[state + 1]):
            a = into[p]
            before = source[a]
            one[:] = 0.0
            for q in range(size, -1, -1):
                one[q] += chance[a] * mass[state, q]
                if ways[a, q] == 1:
                    mass[before, q - 1] += one[q]
                    share[q - 1, label[a]] += one[q]
                elif ways[a, q] == 2:
                    mass[before, q] += one[q]
                else:
                    one[q - 1] += one[q]
                    share[q - 1, 0] += one[q]
    for q in range(size, 0, -1):
        share[q - 1, 0] += mass[0, q]
        mass[0, q - 1] += mass[0, q]
    return total, share
