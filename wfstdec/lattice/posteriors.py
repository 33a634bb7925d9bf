"""How probable arcs and words of a lattice are: forward-backward in float64.

    p(path) = exp(-scale * total(path)) / the same of all paths

A path passes one arc with a token in each frame, so these sum to 1 in every frame. Only
excess is added up, which differs from totals by the same number on every path.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.errors import OptionError
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice


class Posteriors(NamedTuple):
    """What is probable in a lattice.

    Attributes:
        arc: float64 [A], the probability that the path takes an arc.
        into: float64 [A], the same given that it is in the state that the arc leads to.
        end: float64 [S], the probability that it ends in a state.
    """

    arc: np.ndarray
    into: np.ndarray
    end: np.ndarray


def posteriors(lattice: Lattice, scale: float = 1.0) -> Posteriors:
    """The posterior probabilities of a lattice's arcs.

    Args:
        lattice: Any.
        scale: Times all costs; below 1 makes the search less sure of itself.

    Raises:
        OptionError: The scale is below 0 or infinite.
    """
    if not 0 <= scale < np.inf:
        raise OptionError(f"scale={scale!r}, expected a finite number, 0 or more")
    splits, into = lattice.arcs_into
    arcs, final = lattice.arcs, lattice.states["final_excess"].astype(np.float64)
    columns = arcs["state"].astype(np.int64), arcs["nextstate"].astype(np.int64)
    excess = scale * arcs["excess"].astype(np.float64)
    ends = final.copy()
    ends[final < np.inf] *= scale
    order = lattice.order
    forward = _forward(order, splits, into, columns[0], excess)
    backward = _backward(order, splits, into, columns[0], excess, ends)
    whole = _log_sum(forward - ends)
    through = forward[columns[0]] - excess
    return Posteriors(
        arc=np.exp(through + backward[columns[1]] - whole),
        into=np.exp(through - forward[columns[1]]),
        end=np.exp(forward - ends - whole),
    )


def _log_sum(logs: np.ndarray) -> float:
    top = logs.max()
    return float(top + np.log(np.exp(logs - top).sum()))


@jit
def _forward(order, splits, into, source, excess):
    """The log of the sum over all paths to each state, float64 [S]."""
    logs = np.full(len(order), -np.inf)
    logs[0] = 0.0
    for state in order:
        first, last = splits[state], splits[state + 1]
        if first == last:
            continue
        top = -np.inf
        for q in range(first, last):
            top = max(top, logs[source[into[q]]] - excess[into[q]])
        total = 0.0
        for q in range(first, last):
            total += np.exp(logs[source[into[q]]] - excess[into[q]] - top)
        logs[state] = top + np.log(total)
    return logs


@jit
def _backward(order, splits, into, source, excess, ends):
    """The same over all ways from each state to an end."""
    logs = -ends
    for state in order[::-1]:
        for q in range(splits[state], splits[state + 1]):
            at, more = source[into[q]], logs[state] - excess[into[q]]
            top = max(logs[at], more)
            if top > -np.inf:
                logs[at] = top + np.log(np.exp(logs[at] - top) + np.exp(more - top))
    return logs
