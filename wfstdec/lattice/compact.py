"""Compact lattices as in Kaldi: determinized over words, with costs and labels.

    compact = compact_lattice(lattice, beam=8.0)

A state is a set of the lattice's states, each with residual costs and labels. `reach`
follows its arcs without words, and then those with words.
"""

import heapq
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wfstdec.errors import OptionError
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice
from wfstdec.text.tokens import EPSILON


class Prepared(NamedTuple):
    """Lattice in topological order, for `reach`."""

    splits: np.ndarray  # int64 [S + 1], the arcs of each state
    to: np.ndarray  # int64 [A]
    word: np.ndarray  # int64 [A]
    label: np.ndarray  # int64 [A]
    costs: np.ndarray  # float64 [A, 3]: graph, acoustic, total
    final: np.ndarray  # float64 [S, 3], the same, `inf`
    rest: np.ndarray  # float64 [S], least total to an end


def prepare(lattice: Lattice) -> Prepared:
    """Sort a lattice's states and arcs topologically."""
    order, arcs = lattice.order, lattice.arcs
    place = np.argsort(order)
    by = np.argsort(place[arcs["state"]], kind="stable")
    arcs, total = arcs[by], lattice.arc_costs()[by]
    splits = np.searchsorted(place[arcs["state"]], np.arange(len(order) + 1))
    to = place[arcs["nextstate"]].astype(np.int64)
    acoustic = arcs["acoustic_cost"].astype(np.float64)
    graph = total - lattice.scales.acoustic_scale * acoustic
    final = lattice.final_costs()[order]
    return Prepared(
        splits,
        to,
        word=arcs["olabel"].astype(np.int64),
        label=(arcs["ilabel"] & np.uint32(LABEL_MASK)).astype(np.int64),
        costs=np.stack([graph, acoustic, total], axis=1),
        final=np.stack([final, np.where(final < np.inf, 0, np.inf), final], 1),
        rest=_rest(splits, to, total, final),
    )


def _width(lattice: Prepared) -> float:
    total = np.ascontiguousarray(lattice.costs[:, 2])
    through = _least(lattice.splits, lattice.to, total) + lattice.rest
    return float(through[through < np.inf].max() - lattice.rest[0])


@jit
def _rest(splits, to, total, final):
    rest = final.copy()
    for state in range(len(final) - 1, -1, -1):
        for a in range(splits[state], splits[state + 1]):
            rest[state] = min(rest[state], rest[to[a]] + total[a])
    return rest


@jit
def _least(splits, to, total):
    least = np.full(len(splits) - 1, np.inf)
    least[0] = 0.0
    for state in range(len(least)):
        for a in range(splits[state], splits[state + 1]):
            least[to[a]] = min(least[to[a]], least[state] + total[a])
    return least


@jit
def reach(lattice, states, owed, limit, scratch):
    """Follow arcs without words from some states, and then those with words.

    `states`: int64 [N]. `owed`: residual costs, float64 [N, 3]. `scratch`: costs so
    far, float64 [S, 3], inf, and the arc to each state, or ~n of residual n, int64 [S];
    is reset. Returns (int64 [M], states; float64 [M, 3]; int64 [M], arcs to them; int64
    [K], arcs with words; float64 [K, 3]).
    """
    splits, to, word, _, costs, _, rest = lattice
    cost, before = scratch
    top, low = 0, len(rest)
    for i in range(len(states)):
        state = states[i]
        # The least remaining cost is known exactly: only useful states are followed.
        if owed[i, 2] + rest[state] <= limit and owed[i, 2] < cost[state, 2]:
            cost[state], before[state] = owed[i], ~i
            top, low = max(top, state), min(low, state)
    found, num = np.empty(64, np.int64), 0
    ends, count = np.empty(64, np.int64), 0
    end_costs = np.empty((64, 3))
    state = low
    # States are numbered in topological order, so that a state is final at its turn;
    # most of the lattice is outside of `low` to `top`.
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
                        cost[to[a]], before[to[a]] = one, a
                        top = max(top, to[a])
                    continue
                if count == len(ends):
                    ends = np.concatenate((ends, ends))
                    end_costs = np.concatenate((end_costs, end_costs))
                ends[count], end_costs[count] = a, one
                count += 1
        state += 1
    found = found[:num].copy()
    found_costs, ways = np.empty((num, 3)), np.empty(num, np.int64)
    for i in range(num):
        found_costs[i], ways[i] = cost[found[i]], before[found[i]]
        # Resets only modified entries: the scratch is as long as the lattice.
        cost[found[i]] = np.inf
    return found, found_costs, ways, ends[:count].copy(), end_costs[:count].copy()


MAX_STATES = 20_000
"""Most states of a compact lattice."""
WORK_PER_ARC, LEAST_WORK = 16, 20_000
"""Bound of the work of one determinization: states and arcs visited, by arcs of the
lattice. Lattices of real speech take at most 5 per arc; damaged ones took over 90."""
_LEAST_BEAM = 0.01
_GRID = 2.0**20
"""Residual costs are equal if they agree to this fraction of a nat."""


class Weight(NamedTuple):
    """Kaldi's weight: two costs, and labels, a token + 1 for each frame."""

    graph_cost: float
    acoustic_cost: float
    labels: tuple[int, ...]


class CompactArc(NamedTuple):
    """An arc with a word."""

    word: int
    nextstate: int
    weight: Weight


@dataclass(frozen=True)
class CompactLattice:
    """A lattice over words; state 0 is the start, arcs lead to higher states."""

    arcs: list[list[CompactArc]]  # of each state, by word
    final: list[Weight | None]  # of each state; None if no path ends there
    beam: float  # largest extra cost of a text over the best

    @property
    def num_states(self) -> int:
        """S."""
        return len(self.final)

    @property
    def num_arcs(self) -> int:
        """A."""
        return sum(map(len, self.arcs))


def compact_lattice(
    lattice: Lattice, *, beam: float | None = None, max_states: int = MAX_STATES
) -> CompactLattice:
    """Determinize a lattice over its words."""
    # Texts above the beam are omitted. It is halved until the result has at most
    # `max_states` states.
    beam = lattice.lattice_beam if beam is None else float(beam)
    if not beam >= 0 or max_states < 1:
        raise OptionError(
            f"beam={beam!r} and max_states={max_states!r}, expected 0 or more nats and "
            "one state or more"
        )
    prepared = prepare(lattice)
    most_work = WORK_PER_ARC * len(prepared.to) + LEAST_WORK
    while beam > _LEAST_BEAM:
        made = _Determinized(prepared, beam, max_states, most_work)
        if made.is_whole:
            return made.compact()
        beam = min(beam, _width(prepared)) / 2
    alone = prepare(_best_path(lattice))
    return _Determinized(alone, 0.0, len(alone.rest), math.inf).compact()


class ResidualLabels(NamedTuple):
    """Residual labels in a state of the lattice."""

    state: int
    costs: tuple[float, float, float]
    labels: tuple[int, ...]


class _Determinized:
    def __init__(
        self, prepared: Prepared, beam: float, max_states: int, most_work: float
    ) -> None:
        self._lattice, self._beam = prepared, beam
        # Sums are in another order than in the search: keeps paths at the beam.
        self._limit = prepared.rest[0] + beam + 1e-4
        self._numbers: dict[tuple, int] = {}
        self._subsets: list[list[ResidualLabels]] = []
        self._least: list[float] = []
        self._waiting: list[tuple[float, int]] = []
        self._arcs: dict[int, list[CompactArc]] = {}
        self._final: dict[int, Weight | None] = {}
        num_states = len(prepared.rest)
        self._scratch = np.full((num_states, 3), np.inf), np.full(num_states, -1)
        self._number([ResidualLabels(0, (0.0, 0.0, 0.0), ())], 0.0)
        self._work = 0
        # The best sets first: if states or work run out, the best part is done.
        while (
            self._waiting
            and len(self._subsets) <= max_states
            and self._work <= most_work
        ):
            _, number = heapq.heappop(self._waiting)
            if number not in self._arcs:
                self._expand(number)
        self.is_whole = not self._waiting

    def compact(self) -> CompactLattice:
        order = _onwards(self._arcs)
        place = {number: i for i, number in enumerate(order)}
        arcs = [
            [arc._replace(nextstate=place[arc.nextstate]) for arc in self._arcs[number]]
            for number in order
        ]
        return CompactLattice(arcs, [self._final[n] for n in order], self._beam)

    def _number(self, owed: list[ResidualLabels], least: float) -> int:
        """Return the number of a set, whose best path from the start costs `least`."""
        key = tuple((o.state, round(o.costs[2] * _GRID), o.labels) for o in owed)
        number = self._numbers.setdefault(key, len(self._subsets))
        if number == len(self._subsets):
            self._subsets.append(owed)
            self._least.append(math.inf)
        if least < self._least[number]:
            self._least[number] = least
            rest = min(o.costs[2] + self._lattice.rest[o.state] for o in owed)
            heapq.heappush(self._waiting, (least + rest, number))
        return number

    def _expand(self, number: int) -> None:
        owed, least, lattice = self._subsets[number], self._least[number], self._lattice
        states, costs, before, ends, end_costs = reach(
            lattice,
            np.array([o.state for o in owed]),
            np.array([o.costs for o in owed]),
            self._limit - least,
            self._scratch,
        )
        self._work += len(states) + len(ends)
        sources = np.searchsorted(lattice.splits, np.append(before, ends), "right") - 1
        known: dict[int, tuple[int, ...]] = {}  # labels by state, sources before
        arcs = before.tolist(), sources[: len(states)].tolist()
        for state, arc, source in zip(states.tolist(), *arcs, strict=True):
            if arc < 0:
                known[state] = owed[~arc].labels
            else:
                known[state] = self._and(known[source], arc)
        by_word: dict[int, dict[int, ResidualLabels]] = {}
        columns = ends.tolist(), sources[len(states) :].tolist(), end_costs.tolist()
        for arc, source, one in zip(*columns, strict=True):
            state = int(lattice.to[arc])
            found = by_word.setdefault(int(lattice.word[arc]), {})
            # Only the best of several paths with one word to a state is kept: a compact
            # lattice has each text once, by its best alignment.
            if state not in found or one[2] < found[state].costs[2]:
                labels = self._and(known[source], arc)
                found[state] = ResidualLabels(state, (one[0], one[1], one[2]), labels)
        self._arcs[number] = [
            self._arc(word, sorted(found.values()), least)
            for word, found in sorted(by_word.items())
        ]
        self._final[number] = None
        total = costs[:, 2] + lattice.final[states, 2]
        at = int(np.argmin(total)) if len(total) else -1
        if at >= 0 and total[at] + least <= self._limit:
            graph, acoustic, _ = (costs[at] + lattice.final[states[at]]).tolist()
            self._final[number] = Weight(graph, acoustic, known[int(states[at])])

    def _arc(self, word: int, owed: list[ResidualLabels], least: float) -> CompactArc:
        """Return an arc to a set of residuals, without their common part."""
        best = min(owed, key=lambda o: (o.costs[2], o.state)).costs
        # The longest common prefix: works on any sequences.
        common = tuple(os.path.commonprefix([o.labels for o in owed]))
        rest = [
            ResidualLabels(
                o.state,
                (a - best[0], b - best[1], c - best[2]),
                o.labels[len(common) :],
            )
            for o in owed
            for a, b, c in [o.costs]
        ]
        number = self._number(rest, least + best[2])
        return CompactArc(word, number, Weight(best[0], best[1], common))

    def _and(self, labels: tuple[int, ...], arc: int) -> tuple[int, ...]:
        """Append the label of an arc."""
        label = int(self._lattice.label[arc])
        return labels if label == EPSILON else (*labels, label)


def _onwards(arcs: dict[int, list[CompactArc]]) -> list[int]:
    found: list[int] = []
    seen: set[int] = {0}
    open_states: list[tuple[int, Iterator[CompactArc]]] = [(0, iter(arcs[0]))]
    while open_states:
        state, rest = open_states[-1]
        arc = next(rest, None)
        if arc is None:
            found.append(state)
            open_states.pop()
        elif arc.nextstate not in seen:
            seen.add(arc.nextstate)
            open_states.append((arc.nextstate, iter(arcs[arc.nextstate])))
    return found[::-1]


def _best_path(lattice: Lattice) -> Lattice:
    arcs = lattice.arcs[lattice.best_arcs()]
    states = lattice.states[np.append(0, arcs["nextstate"])]
    states["final_excess"][:-1] = np.inf
    arcs["state"], arcs["nextstate"] = np.arange(len(arcs)), np.arange(1, len(states))
    return replace(lattice, states=states, arcs=arcs)
