"""The lattice in plain Python: the specification of what `lattice_pack.py` says.

It is the search of `reference.py`, which notes what it considers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from concatenation import Whole
from wfst_reference import Entry, F, Key, Node, ReferenceSearch

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.graph.packed import PackedGraph
from wfstdec.lattice.arrays import ARC, STATE
from wfstdec.search.paths.tokens import Path
from wfstdec.text.tokens import token_of
from wfstdec.wfst.lattice_pack import RecordedLattice, arcs_of, arranged, cuts_of
from wfstdec.wfst.options import WfstOptions

State = tuple[int, int, int]
"""Frames passed, graph state, boost state."""


class _Arc(NamedTuple):
    state: State
    nextstate: State
    arc: int
    excess: np.float32
    acoustic: np.float32
    boost_cost: np.float32


class RecordingSearch(ReferenceSearch):
    """The search of one utterance, which keeps more of what it found."""

    def __init__(
        self,
        graph: PackedGraph,
        whole: Whole,
        oov: np.ndarray,
        options: WfstOptions,
        boosts: CompiledBoosts,
    ) -> None:
        self._noted: list[tuple[Key, Entry]] = []
        self._arcs: list[list[_Arc]] = []
        self._packed, self._added = graph, oov
        self._first = 0  # the frame that the part not handed out begins at
        super().__init__(whole, options, boosts)

    def finish(self) -> RecordedLattice:  # type: ignore[override]
        end = self._end_excess()
        states, arcs = self._kept(end)
        best = super().finish()
        return RecordedLattice(best, *self._arranged(states, arcs, end, best))

    def settle(self, shortest: int) -> list[RecordedLattice]:
        """The segments that are settled since the last call; they are forgotten."""
        states, arcs = self._kept({(self._frames, *key): F(0) for key in self._costs})
        in_frame = np.array([state[0] for state in states]) - self._first
        begin, segments = self._first, []
        for length in cuts_of(np.bincount(in_frame), shortest):
            end = begin + length
            inside = [s for s in states if self._first <= s[0] <= end]
            between = [a for a in arcs if a.state in inside and a.nextstate in inside]
            last = {state: F(0) for state in inside if state[0] == end}
            arrays = self._arranged(inside, between, last, None)
            segments.append(RecordedLattice.segment(*arrays))
            self._first = end
        if segments:
            self._arcs[: self._first + 1] = [[] for _ in range(self._first + 1)]
        return segments

    def _kept(self, end: dict[State, np.float32]) -> tuple[list[State], list[_Arc]]:
        """The states and arcs that are kept, given what ends cost more than the best.

        Arcs of segments that were handed out are there no more.
        """
        extra, limit = dict(end), F(self._options.beam_of_lattice)
        arcs = [arc for arcs in reversed(self._arcs) for arc in _prune(arcs, extra)]
        arcs = [
            arc
            for arc in arcs
            if F(arc.excess + extra.get(arc.nextstate, F(np.inf))) <= limit
        ]
        return [state for state in extra if extra[state] <= limit], arcs

    def _end_excess(self) -> dict[State, np.float32]:
        """Excess of each end over the best."""
        (best, *_), reached_final = self._best_end(self._died < 0)
        found = {}
        for (state, boost), cost in self._costs.items():
            total = cost
            if reached_final:
                final_cost = self._graph.final_cost[state]
                if final_cost == np.inf:
                    continue
                total = F(cost + F(F(self._options.lm_scale) * final_cost))
            excess = F(F(total + self._account.rest(boost)) - best)
            if excess <= F(self._options.beam_of_lattice):
                found[self._frames, state, boost] = excess
        return found

    def _improve(  # type: ignore[override]  # the search's is static
        self, reached: dict[Key, Entry], key: Key, entry: Entry, cutoff: np.float32
    ) -> None:
        if entry.cost <= cutoff:
            self._noted.append((key, entry))
        super()._improve(reached, key, entry, cutoff)

    def _close(self, frontier: dict[Key, Entry], cutoff: np.float32) -> None:
        self._noted = [(k, e) for k, e in self._noted if e.cost <= cutoff]
        super()._close(frontier, cutoff)

    def _settle(
        self,
        frontier: dict[Key, Entry],
        before: dict[Key, Node],
        unscaled: list[np.float32] | None,
    ) -> None:
        now = 0 if unscaled is None else self._frames + 1
        epsilons = [n for n in self._noted if n[1].epsilon]
        emitting = [n for n in self._noted if not n[1].epsilon]
        rank, noted = self._graph.epsilon_rank, []
        epsilons.sort(key=lambda n: rank[self._source[n[1].arc]])
        for key, entry in [*emitting, *epsilons]:
            excess = F(entry.cost - frontier[key].cost)
            noted.append(self._arc(now, key, entry, excess, unscaled))
        self._arcs.append(noted)
        self._noted = []
        super()._settle(frontier, before, unscaled)

    def _arc(
        self,
        now: int,
        key: Key,
        entry: Entry,
        excess: np.float32,
        unscaled: list[np.float32] | None,
    ) -> _Arc:
        arc = self._graph.arcs[entry.arc]
        acoustic = F(0)
        if not entry.epsilon:
            assert unscaled is not None
            acoustic = unscaled[token_of(int(arc["ilabel"]) & LABEL_MASK)]
        word = int(arc["olabel"]) or None
        begun, bonus = self._begun(arc), self._bonus[entry.arc]
        paid, _ = self._account.step(entry.source_boost, word, begun, bonus=bonus)
        source = int(self._source[entry.arc]), entry.source_boost
        return _Arc(
            (now - (not entry.epsilon), *source),
            (now, *key),
            entry.number,
            excess,
            acoustic,
            paid,
        )

    def _arranged(
        self,
        states: list[State],
        arcs: list[_Arc],
        end: dict[State, np.float32],
        best: Path | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """States and arcs as those of lattices, with what ends cost more.

        `best`: the best path; None of a segment, where nothing ends.
        """
        number = {state: i for i, state in enumerate(states)}
        kept, between = np.zeros(len(states), STATE), np.zeros(len(arcs), ARC)
        for i, state in enumerate(states):
            one = kept[i]
            one["frame"], one["graph_state"], one["boost_state"] = state
            one["final_excess"] = end.get(state, np.inf)
            if state in end and best is not None:
                one["final_boost_cost"] = self._account.rest(state[2])
        for i, arc in enumerate(arcs):
            one = between[i]
            one["state"], one["nextstate"] = number[arc.state], number[arc.nextstate]
            one["arc"], one["excess"] = arc.arc, arc.excess
            one["acoustic_cost"], one["boost_cost"] = arc.acoustic, arc.boost_cost
        is_final = best is not None and best.reached_final
        of_graph = arcs_of(self._packed, self._added, between["arc"])
        given = self._packed, self._options, kept, between, of_graph
        return arranged(*given, is_final)


def _prune(arcs: list[_Arc], extra: dict[State, np.float32]) -> list[_Arc]:
    """Pass `extra` back through the arcs of a frame; those that lead to an end."""
    found = []
    for arc in reversed(arcs):
        through = F(arc.excess + extra.get(arc.nextstate, F(np.inf)))
        if through < np.inf:
            found.append(arc)
            extra[arc.state] = min(through, extra.get(arc.state, F(np.inf)))
    return found
