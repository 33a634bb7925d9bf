"""The lattice in plain Python: the specification of what `lattice_pack.py` says.

It is the search of `reference.py`, which notes what it considers, and considers both
phases of an entry.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from trie_reference import (
    BLANK,
    INF,
    NONBLANK,
    ByPhase,
    Candidate,
    Entry,
    F,
    ReferenceSearch,
)
from trie_reference_steps import Key

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.lattice.arrays import OPEN, REPEATED
from wfstdec.search.paths.tokens import OPEN_PRON
from wfstdec.text.tokens import EPSILON, ilabel_of
from wfstdec.trie.lattice_pack import END, RecordedArcs, RecordedEntries, RecordedFrames
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import NONE, SearchSpace, WordEnd, charged

State = tuple[int, Key, int]
"""Frames passed, the entry, its phase."""


class _Arc(NamedTuple):
    """An arc of the lattice; `nextstate` is None for the end."""

    state: State
    nextstate: State | None
    ilabel: int
    olabel: int
    excess: np.float32
    graph: np.float32
    acoustic: np.float32
    boost: np.float32


class RecordingSearch(ReferenceSearch):
    """The search of one utterance, which keeps more of what it found."""

    def __init__(
        self, space: SearchSpace, options: TrieOptions, boosts: CompiledBoosts
    ) -> None:
        super().__init__(space, replace(options, nbest=1), boosts)
        (first,) = self._frontier
        self._entries: dict[tuple[int, Key], Entry] = {(0, first.key): first}
        self._arcs: list[_Arc] = []
        self._came_from: dict[int, tuple[Entry, int]] = {}
        self._start_lookahead = charged(first.lookahead_cost)

    def finish(self) -> RecordedFrames:  # type: ignore[override]
        limit = F(self._options.beam_of_lattice)
        extra: dict[State | None, np.float32] = {None: F(0)}
        kept = []
        # Backwards, all arcs that leave a state come before those that enter it.
        for arc in reversed([*self._arcs, *self._ends()]):
            through = F(arc.excess + extra.get(arc.nextstate, INF))
            if through <= limit and through < INF:
                kept.append(arc)
                extra[arc.state] = min(through, extra.get(arc.state, INF))
        return self._as_arrays(kept)

    def _phases_of(self, entry: Entry) -> list[int]:
        """Both phases that are there, first the one that the search continues."""
        # The costlier phase changes no cost and no best path: where both lead on,
        # its candidates lose. They are arcs of the lattice all the same.
        (first,) = super()._phases_of(entry)
        other = NONBLANK if first == BLANK else BLANK
        return [first, other] if entry.phases[other].cost < INF else [first]

    def _frame(self, logprobs: np.ndarray) -> None:
        # Candidates hold the phase that they come from, and not whose it is.
        self._came_from = {
            id(phase): (entry, kind)
            for entry in self._frontier
            for kind, phase in enumerate(entry.phases)
        }
        super()._frame(logprobs)

    def _entry(self, key: Key, by_phase: ByPhase, best: np.float32) -> Entry:
        """Note what leads to an entry that remains."""
        for phase, candidates in enumerate(by_phase):
            least = self._phase_cost(candidates)
            for one in candidates:
                excess = F(one.cost - least)
                source, kind = self._came_from[id(one.source)]
                self._arcs.append(self._arc(source, kind, one, phase, excess))
        entry = super()._entry(key, by_phase, best)
        self._entries[self._frames + 1, key] = entry
        return entry

    def _arc(
        self, source: Entry, kind: int, one: Candidate, phase: int, excess: np.float32
    ) -> _Arc:
        token = self._space.blank
        repeated = 0
        if one.token != NONE:
            token = one.token
        elif phase == NONBLANK:
            token, repeated = self._steps.token_of(one.key.node), REPEATED
        olabel, graph, boost = 0, F(0), F(0)
        if one.token != NONE:
            end, graph, boost = self._step(source, one)
            olabel = _olabel(end) if self._space.has_lexicon else ilabel_of(token)
        return _Arc(
            (self._frames, source.key, kind),
            (self._frames + 1, one.key, phase),
            ilabel_of(token) | repeated,
            olabel,
            excess,
            self._with_start(graph),
            one.acoustic,
            boost,
        )

    def _step(
        self, source: Entry, one: Candidate
    ) -> tuple[WordEnd, np.float32, np.float32]:
        """The word that ends where a candidate's token begins, graph and boost cost."""
        for place, end in self._steps.successors(source.key, one.token):
            boost, cost = self._steps.step_boosts(
                source.key, end, one.token, place.node
            )
            key = Key(end.state, place.node, boost, place.spelling)
            if key == one.key and end.pron == one.pron:
                lookahead = self._steps.lookahead_cost(end.state, place.node)
                graph = F(F(end.cost + lookahead) - source.lookahead_cost)
                return end, graph, F(cost + F(0))
        raise AssertionError("a candidate is a successor of its source")

    def _with_start(self, graph: np.float32) -> np.float32:
        """Graph costs with the look-ahead of the start, of arcs that leave it."""
        return F(graph + self._start_lookahead) if self._frames == 0 else graph

    def _ends(self) -> list[_Arc]:
        """The arcs to the end, the best of excess 0."""
        endings = [one for one in self._endings()[0] if one.cost < INF]
        best = min(one.cost for one in endings)
        return [
            _Arc(
                (self._frames, one.entry.key, one.phase),
                None,
                EPSILON,
                _olabel(one.end),
                F(one.cost - best),
                self._with_start(one.graph_cost),
                F(0),
                one.boost_cost,
            )
            for one in endings
        ]

    def _as_arrays(self, arcs: list[_Arc]) -> RecordedFrames:
        number = {entry: i for i, entry in enumerate(self._entries)}
        keys = [key for _, key in number]
        states = np.array([key.state for key in keys], np.int64)
        entries = self._entries.values()

        def state(one: State | None) -> int:
            return END if one is None else 2 * number[one[:2]] + one[2]

        return RecordedFrames(
            super().finish()[0],
            RecordedEntries(
                frame=np.array([frame for frame, _ in number], np.int32),
                cost=np.array([entry.cost for entry in entries], F),
                state=self._lm.orders(states).astype(np.uint64),
                node=np.array([key.node for key in keys], np.int32),
                boost=np.array([key.boost for key in keys], np.int32),
                spelling=np.array([key.spelling for key in keys], np.uint64),
                nonblank_first=np.array(
                    [e.phases[1].cost < e.phases[0].cost for e in entries]
                ),
            ),
            RecordedArcs(
                state=np.array([state(arc.state) for arc in arcs], np.int64),
                nextstate=np.array([state(arc.nextstate) for arc in arcs], np.int64),
                ilabel=np.array([arc.ilabel for arc in arcs], np.uint32),
                olabel=np.array([arc.olabel for arc in arcs], np.uint32),
                excess=np.array([arc.excess for arc in arcs], F),
                graph_cost=np.array([arc.graph for arc in arcs], F),
                acoustic_cost=np.array([arc.acoustic for arc in arcs], F),
                boost_cost=np.array([arc.boost for arc in arcs], F),
            ),
        )


def _olabel(end: WordEnd) -> int:
    """The label of the word that ends, if one does."""
    if end.pron == NONE:
        return EPSILON
    return OPEN if end.pron == OPEN_PRON and end.word == EPSILON else end.word
