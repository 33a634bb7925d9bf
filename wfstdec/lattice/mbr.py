"""Word confidences, and the text of least expected error, from a lattice.

    found = word_confidences(lattice)              # of the best path's words
    found = minimum_bayes_risk(lattice)            # a path whose words may differ

Confidences are after Xu, Povey, Mangu and Zhu, "Minimum Bayes Risk decoding and system
combination based on a recursion for edit distance", Computer Speech and Language 25
(2011): every path of the lattice is aligned with a text by edit distance, weighted by
its probability (an upper bound: of paths that meet in a state, one alignment goes on).
What stands at the place of a word, in how much of the probability, is its confidence.
Between words, before and after them, are places where the text has nothing.

The text of least expected error is found among the n best (Stolcke, Konig, Weintraub,
"Explicit word error minimization in N-best list rescoring", 1997). Changing a text
place by place by that recursion was tried: its bound is too loose in lattices that
are not determinized, and there were more errors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.nbest import nbest_paths
from wfstdec.lattice.posteriors import posteriors

CANDIDATES = 100
"""So many texts are candidates, and make up all that is probable."""
_DEARER = 1e-5
"""An inserted word costs so much more than another error: so that ties are decided."""


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


class LeastRisk(NamedTuple):
    """The text of least expected error.

    Attributes:
        arcs: Its best path, positions in `Lattice.arcs`, int64.
        excess: What this path costs more than the best, nats.
        expected_errors: Word errors to be expected, by the candidates.
    """

    arcs: np.ndarray
    excess: float
    expected_errors: float


def word_confidences(
    lattice: Lattice, scale: float = 1.0, arcs: np.ndarray | None = None
) -> Confidences:
    """How sure each word of a path is.

    Args:
        lattice: Any.
        scale: As of `posteriors`.
        arcs: The path, by positions in `Lattice.arcs`; None is the best one.
    """
    arcs = lattice.best_arcs() if arcs is None else arcs
    return _Risk(lattice, scale).of(lattice.word_ids(arcs))


def minimum_bayes_risk(
    lattice: Lattice, scale: float = 1.0, n: int = CANDIDATES
) -> LeastRisk:
    """The text of least expected error among the best; of equals the better one.

    Args:
        lattice: Any.
        scale: Times all costs, where they become probabilities.
        n: How many texts are looked at.
    """
    found = nbest_paths(lattice, n)
    texts = [lattice.word_ids(arcs) for arcs in found.arcs]
    splits = np.cumsum([0, *map(len, texts)])
    words = np.array([word for text in texts for word in text], np.int64)
    chance = np.exp(-scale * np.array(found.excess))
    risk = _risks(words, splits, chance / chance.sum())
    at = int(np.argmin(risk))
    return LeastRisk(found.arcs[at], found.excess[at], float(risk[at]))


@jit
def _risks(words, splits, chance):
    """The expected edit distance of each text to all, float64 [N]."""
    num = len(chance)
    risk = np.zeros(num)
    row = np.empty(len(words) + 1, np.int64)
    for i in range(num):
        one = words[splits[i] : splits[i + 1]]
        for j in range(i):
            other = words[splits[j] : splits[j + 1]]
            for q in range(len(other) + 1):
                row[q] = q
            for p in range(len(one)):
                before, row[0] = row[0], p + 1
                for q in range(len(other)):
                    exchanged = before + int(one[p] != other[q])
                    before = row[q + 1]
                    row[q + 1] = min(exchanged, before + 1, row[q] + 1)
            risk[i] += chance[j] * row[len(other)]
            risk[j] += chance[i] * row[len(other)]
    return risk


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

    def of(self, words: tuple[int, ...]) -> Confidences:
        """The confidences of a text."""
        text = np.zeros(2 * len(words) + 1, np.int64)
        text[1::2] = np.searchsorted(self._words, words)
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
