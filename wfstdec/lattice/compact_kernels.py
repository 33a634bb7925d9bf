"""A lattice in the order of its arcs; what is reached without a word: `compact.py`."""

from __future__ import annotations

import numpy as np

from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice


class Prepared:
    """A lattice as `reach` takes it: states in an order that arcs lead onwards in.

    Attributes:
        order: The lattice's states by their new numbers.
        splits: int64 [S + 1], the arcs of each.
        to, word, label: int64 [A].
        costs: float64 [A, 3]: graph, acoustic, total.
        final: float64 [S, 3], the same, `inf`.
        rest: float64 [S], the total of the best way to an end.
        width: How much more than the best path any state's best path costs.

    Args:
        lattice: Any.
    """

    def __init__(self, lattice: Lattice) -> None:
        order, arcs = lattice.order, lattice.arcs
        place = np.argsort(order)
        by = np.argsort(place[arcs["state"]], kind="stable")
        arcs = arcs[by]
        source = place[arcs["state"]]
        self.splits = np.searchsorted(source, np.arange(len(order) + 1))
        self.to = place[arcs["nextstate"]].astype(np.int64)
        self.word = arcs["olabel"].astype(np.int64)
        self.label = (arcs["ilabel"] & np.uint32(LABEL_MASK)).astype(np.int64)
        total = lattice.arc_costs()[by]
        acoustic = arcs["acoustic_cost"].astype(np.float64)
        graph = total - lattice.scales.acoustic_scale * acoustic
        self.costs = np.stack([graph, acoustic, total], axis=1)
        final = lattice.final_costs()[order]
        self.final = np.stack([final, np.where(final < np.inf, 0, np.inf), final], 1)
        self.rest = _rest(self.splits, self.to, total, final)
        through = _least(self.splits, self.to, total) + self.rest
        self.width = float(through[through < np.inf].max() - self.rest[0])


@jit
def _rest(splits, to, total, final):
    """The total of the best way to an end, float64 [S]."""
    rest = final.copy()
    for state in range(len(final) - 1, -1, -1):
        for a in range(splits[state], splits[state + 1]):
            rest[state] = min(rest[state], rest[to[a]] + total[a])
    return rest


@jit
def _least(splits, to, total):
    """The total of the best way from the start, float64 [S]."""
    least = np.full(len(splits) - 1, np.inf)
    least[0] = 0.0
    for state in range(len(least)):
        for a in range(splits[state], splits[state + 1]):
            least[to[a]] = min(least[to[a]], least[state] + total[a])
    return least


@jit
def reach(lattice, states, owed, limit, scratch):
    """Follow arcs without words from some states, and then those with words.

    Args:
        lattice: Its splits, to, word, costs and rest.
        states: int64 [N].
        owed: float64 [N, 3].
        limit: What the best whole path through an arc may cost, from here on.
        scratch: Costs so far, float64 [S, 3], inf, and how they came to be, int64
            [S, 2]; is left so.

    Returns:
        (int64 [M], states; float64 [M, 3]; int64 [M, 2], the arc to each and where it
        comes from, or ~n of the nth that is owed; int64 [K], arcs with words; float64
        [K, 3]).
    """
    splits, to, word, costs, rest = lattice
    cost, before = scratch
    top, low = 0, len(rest)
    for i in range(len(states)):
        state = states[i]
        # What the rest costs at least is known exactly: nothing is followed in vain.
        if owed[i, 2] + rest[state] <= limit and owed[i, 2] < cost[state, 2]:
            cost[state], before[state, 0] = owed[i], ~i
            top, low = max(top, state), min(low, state)
    found, num = np.empty(64, np.int64), 0
    ends, count = np.empty(64, np.int64), 0
    end_costs = np.empty((64, 3))
    state = low
    # States are numbered in topological order, so that a state is final when its turn
    # comes; most of the lattice lies outside of `low` to `top`.
    while state <= top:
        if cost[state, 2] < np.inf:
            if num == len(found):
                found = np.concatenate((found, found))
            found[num] = state
            num += 1
            for a in range(splits[state], splits[state + 1]):
                one = cost[state] + costs[a]
                if not one[2] + rest[to[a]] <= limit:
                    continue
                if word[a] == 0:
                    if one[2] < cost[to[a], 2]:
                        cost[to[a]] = one
                        before[to[a], 0], before[to[a], 1] = a, state
                        top = max(top, to[a])
                    continue
                if count == len(ends):
                    ends = np.concatenate((ends, ends))
                    end_costs = np.concatenate((end_costs, end_costs))
                ends[count], end_costs[count] = a, one
                count += 1
        state += 1
    found = found[:num].copy()
    found_costs, ways = np.empty((num, 3)), np.empty((num, 2), np.int64)
    for i in range(num):
        found_costs[i], ways[i] = cost[found[i]], before[found[i]]
        # Only what was touched is cleaned: the scratch is as long as the lattice.
        cost[found[i]] = np.inf
    return found, found_costs, ways, ends[:count].copy(), end_costs[:count].copy()
