"""Word confidences, and the text of least expected error, from a lattice.

    found = word_confidences(lattice)              # of the best path's words
    found = minimum_bayes_risk(lattice)            # a path whose words may differ

Confidences follow Xu, Povey, Mangu and Zhu, "Minimum Bayes Risk decoding and system
combination based on a recursion for edit distance", Computer Speech and Language 25
(2011): every path of the lattice is aligned with a text by edit distance, weighted by
its probability (an upper bound: paths that meet in a state share one alignment). The
confidence of a word is the probability of paths with this word at its place. Between
words, before and after them, are places where the text has nothing.

The text of least expected error is selected from the n best (Stolcke, Konig, Weintraub,
"Explicit word error minimization in N-best list rescoring", 1997). The recursion gave
more errors, since its bound is loose in lattices that are not determinized.

Probabilities are computed forward and backward in float64, by excess, which differs
from totals by the same number on every path:

    p(path) = exp(-scale * total(path)) / the same of all paths
"""

from typing import NamedTuple

import numpy as np

from wfstdec.errors import OptionError
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice
from wfstdec.lattice.nbest import nbest_paths

CANDIDATES = 100
"""Number of candidate texts, treated as all probable ones."""
BAND = 32
"""Largest distance, in places of the text (words and the gaps between them), of an
alignment from the path's own place in the same frame."""
_INSERTION = 1e-5
"""Extra cost of an inserted word over another error, which decides ties."""
_FAR = 1e9
"""Errors outside the band."""
_MATCH, _SKIP, _LEAVE = 1, 2, 3
"""An arc's word is at the last place, at none, or further places follow it."""


class Confidences(NamedTuple):
    """Words and their confidences."""

    words: tuple[int, ...]  # word ids
    confidences: tuple[float, ...]  # of each, 0 to 1
    expected_errors: float  # upper bound of the expected number of word errors


class MbrText(NamedTuple):
    """The text of least expected error."""

    arcs: np.ndarray  # its best path, positions in `Lattice.arcs`, int64
    excess: float  # extra cost of this path over the best, nats
    expected_errors: float  # expected number of word errors, by the candidates


def minimum_bayes_risk(
    lattice: Lattice, scale: float = 1.0, n: int = CANDIDATES
) -> MbrText:
    """Return the text of least expected error among the best; ties to the better.

    Args:
        lattice: Any lattice.
        scale: Multiplies all costs before they become probabilities.
        n: Number of candidate texts.
    """
    found = nbest_paths(lattice, n)
    texts = [lattice.word_ids(arcs) for arcs in found.arcs]
    splits = np.cumsum([0, *map(len, texts)])
    words = np.array([word for text in texts for word in text], np.int64)
    chance = np.exp(-scale * np.array(found.excess))
    risk = _risks(words, splits, chance / chance.sum())
    at = int(np.argmin(risk))
    return MbrText(found.arcs[at], found.excess[at], float(risk[at]))


@jit
def _risks(words, splits, chance):
    num = len(chance)
    risk = np.zeros(num)
    row = np.empty(len(words) + 1, np.int64)
    for i in range(num):
        one = words[splits[i] : splits[i + 1]]
        for j in range(i):
            distance = _distance(one, words[splits[j] : splits[j + 1]], row)
            risk[i] += chance[j] * distance
            risk[j] += chance[i] * distance
    return risk


@jit
def _distance(one, other, row):
    """Return the edit distance of two texts, in a band that grows as needed.

    After E. Ukkonen, "Algorithms for approximate string matching", Information and
    Control 64 (1985).
    """
    size = len(other)
    band = max(4, abs(len(one) - size))
    while True:
        far = 2 * band + 1
        for q in range(size + 1):
            row[q] = q if q <= band else far
        for p in range(1, len(one) + 1):
            low, high = max(p - band, 0), min(p + band, size)
            before = row[low - 1] if low > 0 else far
            left = far
            for q in range(low, high + 1):
                best = min(row[q], left) + 1
                if q > 0:
                    best = min(best, before + int(one[p - 1] != other[q - 1]))
                before, row[q] = row[q], best
                left = best
        # An alignment of at most `band` edits stays in the band, so it is the best one.
        if row[size] <= band:
            return row[size]
        band *= 2


def word_confidences(
    lattice: Lattice, scale: float = 1.0, arcs: np.ndarray | None = None
) -> Confidences:
    """Return the confidence of each word of a path.

    Args:
        lattice: Any lattice; time and memory are linear in its length.
        scale: As in `posteriors`.
        arcs: The path, by positions in `Lattice.arcs`; None is the best one.
    """
    arcs = lattice.best_arcs() if arcs is None else arcs
    found = posteriors(lattice, scale)
    words = np.array(lattice.word_ids(arcs), np.int64)
    text = np.zeros(2 * len(words) + 1, np.int64)
    # Between words are places for nothing, where other paths may have words.
    text[1::2] = words
    splits, into = lattice.arcs_into
    columns = (lattice.arcs[name].astype(np.int64) for name in ("state", "olabel"))
    arrays = (lattice.order, splits, into, *columns, found.into, found.end)
    low, width = _band(lattice, arcs, len(text) + 1)
    errors, share = _align(arrays, text, low, width)
    sure = np.minimum(share[1::2], 1.0)
    return Confidences(tuple(words.tolist()), tuple(sure.tolist()), float(errors))


def _band(lattice: Lattice, arcs: np.ndarray, whole: int) -> tuple[np.ndarray, int]:
    """Return the first place for a state's alignment, int64 [S], and the band's width.

    The width covers the whole text if bands would not overlap.
    """
    taken, frame = lattice.arcs[arcs], lattice.states["frame"]
    frames = frame[taken["nextstate"][taken["olabel"] > 0]]
    centre = 2 * np.searchsorted(frames, frame, "right").astype(np.int64)
    centre[frame == frame[0]] = 0
    width = min(whole, 2 * BAND + 1)
    low = np.clip(centre - BAND, 0, whole - width)
    if np.diff(np.unique(low)).max(initial=0) >= width:
        return np.zeros_like(low), whole
    return low, width


@jit
def _align(lattice, text, low, width):
    """Align all paths with a text, whose label 0 is nothing, within a band."""
    # `text`: int64 [Q]. `low`: int64 [S], start of a state's band, not before that of
    # an earlier state. Returns (expected errors, the share of the text's word in each
    # place, float64 [Q]).
    order, splits, into, source, label, chance, end = lattice
    errors = np.zeros((len(order), width))
    ways = np.zeros((len(chance), width), np.int8)
    # Before any arc: all words of the text so far are deleted.
    for k in range(1, width):
        errors[0, k] = errors[0, k - 1] + np.float64(text[k - 1] != 0)
    for state in order:
        for p in range(splits[state], splits[state + 1]):
            a = into[p]
            _follow(errors, ways, a, label[a], chance[a], source[a], state, text, low)
    total = 0.0
    for state in range(len(order)):
        total += end[state] * errors[state, width - 1] if end[state] > 0 else 0.0
    share, mass = np.zeros(len(text)), errors
    # Memory is reused: errors are not needed any more.
    mass[:] = 0.0
    mass[:, width - 1] = end
    one = np.zeros(width)
    # Back along the recorded choices, with the share of all paths.
    for state in order[::-1]:
        for p in range(splits[state], splits[state + 1]):
            a = into[p]
            one[:] = chance[a] * mass[state]
            _spread(mass, one, ways[a], label[a], source[a], state, text, low, share)
    return total, share


@jit
def _follow(errors, ways, a, label, chance, before, state, text, low):
    """Add the errors of the paths whose last arc is `a`; record their choices."""
    width, one = errors.shape[1], _FAR
    shift = low[state] - low[before]
    for k in range(width):
        q, b = low[state] + k, k + shift  # the place, and its index at the source
        best, way = errors[before, b] if b < width else _FAR, _SKIP
        if label > 0:
            best += 1.0 + _INSERTION
            # Places before the band are too distant for a match.
            if 0 < b <= width:
                match = errors[before, b - 1] + np.float64(label != text[q - 1])
                if match <= best:
                    best, way = match, _MATCH
        if k > 0 and (label > 0 or b >= width):
            leave = one + np.float64(text[q - 1] != 0)
            if leave < best:
                best, way = leave, _LEAVE
        ways[a, k], one = way, best
        errors[state, k] += chance * one


@jit
def _spread(mass, one, ways, label, before, state, text, low, share):
    """Distribute the mass of an arc to the places its paths come from."""
    width = len(one)
    shift = low[state] - low[before]
    for k in range(width - 1, -1, -1):
        q, b = low[state] + k, k + shift
        if ways[k] == _MATCH:
            mass[before, b - 1] += one[k]
            share[q - 1] += one[k] if label == text[q - 1] else 0.0
        elif ways[k] == _LEAVE:
            one[k - 1] += one[k]
        elif b < width:
            mass[before, b] += one[k]


class Posteriors(NamedTuple):
    """Posteriors of states and arcs in a lattice."""

    arc: np.ndarray  # float64 [A], the probability that the path takes an arc
    into: np.ndarray  # float64 [A], the same, given the state that the arc leads to
    end: np.ndarray  # float64 [S], the probability that the path ends in a state


def posteriors(lattice: Lattice, scale: float = 1.0) -> Posteriors:
    """Return the posterior probabilities of a lattice's arcs.

    Args:
        lattice: Any lattice.
        scale: Multiplies all costs, 0 or more; below 1 flattens posteriors.

    Raises:
        OptionError: The scale is below 0 or infinite.
    """
    if not 0 <= scale < np.inf:
        raise OptionError(f"scale={scale!r}, expected a finite number, 0 or more")
    splits, into = lattice.arcs_into
    arcs, final = lattice.arcs, lattice.states["final_excess"].astype(np.float64)
    # Excess instead of costs: log-sums of large costs would lose precision.
    source, to = (arcs[name].astype(np.int64) for name in ("state", "nextstate"))
    excess = scale * arcs["excess"].astype(np.float64)
    ends = final.copy()
    # 0 times infinity would be NaN.
    ends[final < np.inf] *= scale
    way = lattice.order, splits, into, source, excess
    forward, backward = _forward(*way), _backward(*way, ends)
    logs = forward - ends
    whole = float(logs.max() + np.log(np.exp(logs - logs.max()).sum()))
    through = forward[source] - excess
    return Posteriors(
        arc=np.exp(through + backward[to] - whole),
        into=np.exp(through - forward[to]),
        end=np.exp(forward - ends - whole),
    )


@jit
def _forward(order, splits, into, source, excess):
    logs = np.full(len(order), -np.inf)
    logs[0] = 0.0
    for state in order:
        first, last = splits[state], splits[state + 1]
        if first == last:
            continue
        top = -np.inf
        for q in range(first, last):
            # The largest is factored out, so that `exp` neither overflows nor
            # underflows.
            top = max(top, logs[source[into[q]]] - excess[into[q]])
        total = 0.0
        for q in range(first, last):
            total += np.exp(logs[source[into[q]]] - excess[into[q]] - top)
        logs[state] = top + np.log(total)
    return logs


@jit
def _backward(order, splits, into, source, excess, ends):
    logs = -ends
    for state in order[::-1]:
        for q in range(splits[state], splits[state + 1]):
            at, more = source[into[q]], logs[state] - excess[into[q]]
            top = max(logs[at], more)
            if top > -np.inf:
                logs[at] = top + np.log(np.exp(logs[at] - top) + np.exp(more - top))
    return logs
