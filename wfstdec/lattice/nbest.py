"""The best paths of a lattice with different words, best first.

    found = nbest_paths(lattice, 10)
    found.arcs[0]                       # the arcs of the best path
    found.is_exact                      # whether no better path is missing

It is a best-first search from the ends backwards. Every state has a path from the start
without excess, so the excess of a partial path is that of the best whole one through
it. A second partial path of the same words to the same state can only be worse, and is
dropped. So all paths that reach the start have different words.
"""

import heapq
from typing import NamedTuple

import numpy as np
from numpy import int32, uint32

from wfstdec.errors import OptionError
from wfstdec.jit import jit
from wfstdec.jit.arrays import enter, longer
from wfstdec.jit.records import record
from wfstdec.lattice.arrays import Lattice

MAX_STEPS = 2_000_000
"""Most partial paths to visit: seconds of work."""
_STEP = record("i4 state text parent arc")


class NbestPaths(NamedTuple):
    """Paths of different words, best first."""

    arcs: list[np.ndarray]  # of each path, positions in `Lattice.arcs`, int64
    excess: list[float]  # extra cost of each over the best, nats
    # whether these are the best: False if `max_steps` stopped the search
    is_exact: bool


def nbest_paths(lattice: Lattice, n: int, *, max_steps: int = MAX_STEPS) -> NbestPaths:
    """Return the `n` best paths of different words, fewer if there are no more.

    Paths above the lattice beam are omitted, since the lattice does not have all of
    them. The first path is the best one of the search even with ties; other ties go to
    the first in the lattice.

    Args:
        lattice: Any lattice.
        n: 1 or more.
        max_steps: Most partial paths to visit.
    """
    best = lattice.best_arcs()
    if n < 1 or max_steps < 0:
        raise OptionError(f"n={n!r}, max_steps={max_steps!r}, expected 1, 0 or more")
    if n == 1:
        return NbestPaths([best], [0.0], True)
    splits, into = lattice.arcs_into
    excess = lattice.states["final_excess"]
    ends = np.flatnonzero(excess <= np.float32(lattice.lattice_beam))
    steps, found, costs, done = _search(
        lattice.arcs,
        (splits, into),
        (ends, excess[ends].astype(np.float64)),
        np.array(lattice.word_ids(best)[::-1], np.int64),
        (n, max_steps, float(lattice.lattice_beam)),
    )
    paths = [_walk(steps, at) for at in found]
    return NbestPaths([best, *paths], [0.0, *costs.tolist()], bool(done))


@jit
def _search(arcs, incoming, ends, best_words, limits):
    # Returns (half paths, those that reached the start, their excess, is_exact).
    splits, into = incoming
    n, max_steps, beam = limits
    room = max(1024, len(ends[0]))
    steps, made = np.empty(room, _STEP), len(ends[0])
    texts = np.full((64, 2), -1, np.int32), np.full(256, -1, np.int32)
    seen = np.full((512, 2), -1, np.int32), np.full(2048, -1, np.int32)
    num_texts, num_seen = 1, 0  # text 0 is the empty one
    best = 0
    for word in best_words:
        texts, num_texts, best = enter(texts, num_texts, best, word)
    found, costs = np.empty(n, np.int64), np.empty(n, np.float64)
    num_found, looked = 0, 0
    for i in range(made):
        step = steps[i]
        step.state, step.text, step.parent, step.arc = ends[0][i], 0, -1, -1
    # Ties go to the earlier one.
    waiting = [(ends[1][i], i) for i in range(made)]
    heapq.heapify(waiting)
    while len(waiting) > 0 and num_found < n - 1:
        if looked == max_steps:
            return steps, found[:num_found], costs[:num_found], False
        cost, at = heapq.heappop(waiting)
        looked += 1
        state, text = np.int64(steps[at].state), np.int64(steps[at].text)
        before = num_seen
        seen, num_seen, _ = enter(seen, num_seen, state, text)
        # A second path is another alignment of the same words, at no lower cost.
        if num_seen == before:
            continue
        if state == 0:
            if text != best:
                found[num_found], costs[num_found] = at, cost
                num_found += 1
            continue
        for q in range(splits[state], splits[state + 1]):
            arc = arcs[into[q]]
            total = cost + np.float64(arc.excess)
            if total > beam:
                break  # the others have at least this excess
            reached = text
            if arc.olabel != uint32(0):
                word = np.int64(arc.olabel)
                texts, num_texts, reached = enter(texts, num_texts, text, word)
            if made == len(steps):
                steps = longer(steps, 0)
            step = steps[made]
            step.state, step.text = int32(arc.state), int32(reached)
            step.parent, step.arc = at, int32(into[q])
            heapq.heappush(waiting, (total, made))
            made += 1
    return steps, found[:num_found], costs[:num_found], True


@jit
def _walk(steps, at):
    length, step = 0, at
    while steps[step].parent >= 0:
        length += 1
        step = np.int64(steps[step].parent)
    arcs = np.empty(length, np.int64)
    # Paths were built from their ends backwards, so that parents lead to the end.
    for i in range(length):
        arcs[i] = steps[at].arc
        at = np.int64(steps[at].parent)
    return arcs
