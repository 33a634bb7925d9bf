"""The search in plain Python: the specification that every backend equals bit for bit.

A search state is a graph state and a boost state: what of a credit is still owed, and
the state of the phrases' automaton, 0 without phrases. Costs are float32, added in the
order written here. An arc's id names the graph state that it leaves, so (cost, arc,
source boost state) is unique: no order of visits decides anything. A tie between states
goes to the lower graph state, then to the lower boost state.

    start:  frontier = {(0, start of the phrases): +0.0}; close(frontier, cutoff =
            beam); re-base
    frame:  kept    = entries with cost <= beam; if there are more, the max_active
                      least (ties: lower state)
            next    = per emitting arc of kept: ((cost + lm_scale * arc.cost) + extras)
                      + acoustic_scale * -logprob; per state keep the least
                      (cost, arc, source boost state)
            cutoff  = least of next + beam
                      where fewer survive; what is not finite or above it is dropped;
                      none left: the utterance ends here
            close(next, cutoff); trace nodes; re-base
    close:  relax epsilon arcs in rank order of their states, storing nothing above the
            cutoff; at equal cost an emitting arc beats an epsilon arc, then the least
            (arc, source boost state)
    extras: first, on an arc with a word, + word_insertion; then + the cost of the
            boosts' step (`boost/reference.py`)
    added:  words that the graph does not have are on the arcs of an overlay; the
            search is that of graph and overlay as one graph (`graph/concatenation.py`),
            where the arcs of the overlay come after all others. The boosts' step on
            such an arc is also credited the arc's bonus
    steps:  boosts step on every arc with a word, and on emitting arcs whose token
            is not the blank and that does not repeat the frame before; on other arcs
            the boost state stays. Phrases of words go by the words, phrases of tokens
            by the tokens of these arcs
    finish: least (cost + lm_scale * final) + the boosts' rest over final entries; if
            none is final, or no entry survived a frame, the least cost + the boosts'
            rest over all entries
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from boost_reference import BoostAccount
from concatenation import Whole
from pricing_reference import price_frame
from wfst_reference_paths import CommonBeginning, Path, read_path, tokens_of

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.graph.arcs import LABEL_MASK, REPEAT
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.search.logprobs import pricing_of
from wfstdec.search.paths import tokens as paths
from wfstdec.text.tokens import EPSILON, token_of
from wfstdec.wfst.options import WfstOptions

F = np.float32
Key = tuple[int, int]
"""A search state: graph state, boost state."""


class Node(NamedTuple):
    """A trace node; the root has no arc."""

    previous: Node | None
    arc: int
    acoustic: np.float32


class Entry(NamedTuple):
    """How a state was reached; compares as (cost, epsilon last, arc, source)."""

    cost: np.float32
    epsilon: bool
    number: int
    arc: int
    source_boost: int


class ReferenceSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self, whole: Whole, options: WfstOptions, boosts: CompiledBoosts
    ) -> None:
        graph, self._bonus, self._number = whole
        self._graph = graph
        self._options = options
        self._pricing = pricing_of(options)
        self._account = BoostAccount(boosts, options.beam)
        self._source = np.repeat(
            np.arange(graph.num_states), np.diff(graph.state_arc_splits)
        )
        self._beam = min(F(options.beam), NO_CUTOFF)
        self._base, self._frames, self._died = 0.0, 0, -1
        self._costs: dict[Key, np.float32] = {}
        self._nodes: dict[Key, Node] = {}
        start = (0, self._account.start)
        frontier = {start: Entry(F(0), False, -1, -1, -1)}
        # Epsilon arcs of the start are followed before any frame, within the beam.
        self._close(frontier, self._beam)
        self._settle(frontier, {start: Node(None, -1, F(0))}, None)

    def advance(self, logprobs: np.ndarray) -> None:
        for row in logprobs:
            if self._died >= 0:
                return
            self._frame(row)

    def finish(self) -> paths.Path:
        (cost, state, boost), reached_final = self._best_end(self._died < 0)
        final_cost = self._graph.final_cost[state]
        path = self._read(self._nodes[state, boost])
        return paths.Path(
            tokens=tokens_of(path),
            graph_cost=path.graph_cost + (float(final_cost) if reached_final else 0.0),
            acoustic_cost=path.acoustic_cost,
            search_cost=self._base + float(cost),
            reached_final=reached_final,
            num_frames=self._frames,
            died_at_frame=self._died,
        )

    def look(self, since: tuple[int, int] = (0, 0)) -> paths.PartialPath:
        (cost, state, boost), _ = self._best_end(False)
        (ended, *_), final = self._best_end(self._died < 0)
        best = self._read(self._nodes[state, boost])
        common = CommonBeginning([self._read(self._nodes[k]) for k in self._costs])
        return paths.PartialPath(
            tokens_of(best, *since),
            num_whole=max(0, common.num_whole - since[0]),
            num_labels=common.num_words,
            num_frames=self._frames,
            final_cost=float(ended) - float(cost) if final else math.inf,
        )

    def _best_end(self, use_final: bool) -> tuple[tuple[np.float32, int, int], bool]:
        """The least (cost, state, boost state) to end at; whether it is final."""
        final_cost, lm_scale = self._graph.final_cost, F(self._options.lm_scale)
        finals = {
            (state, boost): F(cost + F(lm_scale * final_cost[state]))
            for (state, boost), cost in self._costs.items()
            if final_cost[state] < np.inf and use_final
        }
        ends = [
            (F(cost + self._account.rest(boost)), state, boost)
            for (state, boost), cost in (finals or self._costs).items()
        ]
        return min(ends), bool(finals)

    def _frame(self, logprobs: np.ndarray) -> None:
        # Pruning is by the costs of the frame before, so that nothing is followed in
        # vain.
        beam = self._prune()
        blank = self._graph.tokens.blank
        unscaled, costs = price_frame(logprobs, self._pricing, blank)
        reached: dict[Key, Entry] = {}
        for (state, boost), cost in self._costs.items():
            for a in self._row(state):
                arc = self._graph.arcs[a]
                label = int(arc["ilabel"]) & LABEL_MASK
                if label != EPSILON:
                    total, next_boost = self._follow(cost, boost, a)
                    # Acoustics last: the order of float32 sums is a part of what
                    # backends must equal.
                    total = F(total + costs[token_of(label)])
                    key = int(arc["nextstate"]), next_boost
                    entry = Entry(total, False, int(self._number[a]), a, boost)
                    self._improve(reached, key, entry, NO_CUTOFF)
        # The utterance ends before this frame, with the frontier as it was.
        if not reached:
            self._died = self._frames
            return
        cutoff = min(F(min(reached.values()).cost + beam), NO_CUTOFF)
        reached = {key: e for key, e in reached.items() if e.cost <= cutoff}
        # The cutoff is that of emitting arcs: epsilon arcs do not move it.
        self._close(reached, cutoff)
        self._settle(reached, self._nodes, unscaled)
        self._frames += 1

    def _prune(self) -> np.float32:
        """Keep what remains after the frame; returns the frame's beam."""
        options = self._options
        ranked = sorted((cost, key) for key, cost in self._costs.items())
        # Costs are relative to the best one, and ties go to the lower state: backends
        # must not depend on the order in which they found them.
        kept = [(cost, key) for cost, key in ranked if cost <= self._beam]
        bound = options.max_active is not None and len(kept) > options.max_active
        if bound:
            kept = kept[: options.max_active]
        self._costs = {key: cost for cost, key in kept}
        if bound and options.beam_delta is not None:
            return min(self._beam, F(kept[-1][0] + F(options.beam_delta)))
        return self._beam

    def _close(self, frontier: dict[Key, Entry], cutoff: np.float32) -> None:
        """Relax epsilon arcs, states by rank."""
        rank = self._graph.epsilon_rank
        # An epsilon arc leads to a higher rank, so that a state is settled once all
        # lower ranks are done, and each is looked at once.
        waiting = {int(rank[state]) for state, _ in frontier}
        done = -1
        while waiting:
            done = min(waiting)
            waiting.remove(done)
            for state, boost in [key for key in frontier if rank[key[0]] == done]:
                for a in self._row(state):
                    arc = self._graph.arcs[a]
                    if arc["ilabel"] & LABEL_MASK != EPSILON:
                        continue
                    cost = frontier[state, boost].cost
                    total, next_boost = self._follow(cost, boost, a)
                    key = int(arc["nextstate"]), next_boost
                    entry = Entry(total, True, int(self._number[a]), a, boost)
                    self._improve(frontier, key, entry, cutoff)
                    waiting.add(int(rank[arc["nextstate"]]))

    def _settle(
        self,
        frontier: dict[Key, Entry],
        before: dict[Key, Node],
        unscaled: list[np.float32] | None,
    ) -> None:
        """Make trace nodes, sources first, and re-base."""
        rank, nodes = self._graph.epsilon_rank, {}
        # A node needs that of its source: emitting arcs come from the frame before,
        # epsilon arcs from a lower rank of this one.
        by_source = sorted(frontier, key=lambda k: (frontier[k].epsilon, rank[k[0]]))
        for key in by_source:
            _, epsilon, _, arc, source_boost = frontier[key]
            if arc < 0:
                nodes[key] = before[key]
                continue
            source = int(self._source[arc]), source_boost
            acoustic = F(0)
            if not epsilon:
                label = int(self._graph.arcs[arc]["ilabel"]) & LABEL_MASK
                acoustic = unscaled[token_of(label)]  # type: ignore[index]
            nodes[key] = Node((nodes if epsilon else before)[source], arc, acoustic)
        best = min(entry.cost for entry in frontier.values())
        self._costs = {key: F(entry.cost - best) for key, entry in frontier.items()}
        self._nodes, self._base = nodes, self._base + float(best)

    def _row(self, state: int) -> range:
        splits = self._graph.state_arc_splits
        return range(int(splits[state]), int(splits[state + 1]))

    def _follow(self, cost: np.float32, boost: int, a: int) -> tuple[np.float32, int]:
        """(cost + graph) + extras, and the next boost state."""
        arc = self._graph.arcs[a]
        # Each sum is rounded to float32, in this order: all backends do the same.
        total = F(cost + F(F(self._options.lm_scale) * arc["cost"]))
        word = None if arc["olabel"] == EPSILON else int(arc["olabel"])
        if word is not None:
            total = F(total + F(self._options.word_insertion))
        begun, bonus = self._begun(arc), self._bonus[a]
        extra, boost = self._account.step(boost, word, begun, bonus=bonus)
        return F(total + extra), boost

    def _begun(self, arc: np.void) -> int | None:
        """The token that begins on an arc, if one does."""
        label, repeats = int(arc["ilabel"]) & LABEL_MASK, arc["ilabel"] & REPEAT
        if label == EPSILON or repeats or token_of(label) == self._graph.tokens.blank:
            return None
        return token_of(label)

    @staticmethod
    def _improve(
        reached: dict[Key, Entry], key: Key, entry: Entry, cutoff: np.float32
    ) -> None:
        if entry.cost <= cutoff and (key not in reached or entry < reached[key]):
            reached[key] = entry

    def _read(self, node: Node) -> Path:
        """Read tokens and words of the path to a node."""
        arcs, acoustic = [], []
        while node.previous is not None:
            arcs.append(node.arc)
            acoustic.append(node.acoustic)
            node = node.previous
        return read_path(self._graph, arcs[::-1], acoustic[::-1])
