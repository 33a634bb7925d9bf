"""The search in plain Python: the specification that every backend equals bit for bit.

A search state is a graph state (word boosting has one boost state). Costs are float32,
added in the order written here. An arc's id names its source, so (cost, arc id) is
unique: no order of visits decides anything.

    start:  frontier = {0: +0.0}; close(frontier, cutoff = beam); re-base
    frame:  kept    = entries with cost <= beam; if there are more, the max_active
                      least (ties: lower state); if fewer, the min_active least
            next    = per emitting arc of kept: ((cost + lm_scale * arc.cost) + extras)
                      + acoustic_scale * -logprob; per state keep the least (cost, arc)
            cutoff  = least of next + beam; raised to the min_active-th least of next
                      where fewer survive; what is not finite or above it is dropped;
                      none left: the utterance ends here
            close(next, cutoff); trace nodes; re-base
    close:  relax epsilon arcs in rank order of their states, storing nothing above the
            cutoff; at equal cost an emitting arc beats an epsilon arc
    finish: least cost + lm_scale * final over final entries; if none is final, or no
            entry survived a frame, the least entry
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wfstdec.arcs import LABEL_MASK
from wfstdec.boost.boosts import UtteranceBoosts
from wfstdec.boost.words import WordBoosts
from wfstdec.graph import PackedGraph
from wfstdec.symbols import EPSILON, token_of
from wfstdec.wfst.options import DecodeOptions
from wfstdec.wfst.path import BestPath

F = np.float32
LARGEST = F(np.finfo(np.float32).max)


class Node(NamedTuple):
    """A trace node; the root has no arc."""

    previous: Node | None
    arc: int
    acoustic: np.float32


class Entry(NamedTuple):
    """How a state was reached; compares as (cost, epsilon last, arc)."""

    cost: np.float32
    epsilon: bool
    arc: int


class ReferenceBackend:
    """A graph, as it is."""

    def __init__(self, graph: PackedGraph) -> None:
        self.graph = graph

    def start(self, options: DecodeOptions, boosts: UtteranceBoosts) -> ReferenceSearch:
        """Begin an utterance."""
        return ReferenceSearch(self.graph, options, boosts.words)


class ReferenceSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self, graph: PackedGraph, options: DecodeOptions, boosts: WordBoosts
    ) -> None:
        self._graph, self._options, self._boosts = graph, options, boosts
        self._source = np.repeat(
            np.arange(graph.num_states), np.diff(graph.state_arc_splits)
        )
        self._beam = min(F(options.beam), LARGEST)
        self._base, self._frames, self._died = 0.0, 0, -1
        self._costs: dict[int, np.float32] = {}
        self._nodes: dict[int, Node] = {}
        frontier = {0: Entry(F(0), False, -1)}
        root = {0: Node(None, -1, F(0))}
        self._close(frontier, self._beam)
        self._settle(frontier, root, None)

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V]."""
        for row in logprobs:
            if self._died >= 0:
                return
            self._frame(row)

    def finish(self) -> BestPath:
        """End the utterance."""
        final_cost, lm_scale = self._graph.final_cost, F(self._options.lm_scale)
        ends = [
            (F(cost + F(lm_scale * final_cost[state])), state)
            for state, cost in self._costs.items()
            if final_cost[state] < np.inf and self._died < 0
        ]
        reached_final = bool(ends)
        cost, state = min(ends or [(c, s) for s, c in self._costs.items()])
        arcs, acoustic = self._walk_back(self._nodes[state])
        return BestPath(
            arcs=np.array(arcs, np.int64),
            acoustic=np.array(acoustic, np.float32),
            final_cost=float(final_cost[state]) if reached_final else 0.0,
            search_cost=self._base + float(cost),
            reached_final=reached_final,
            num_frames=self._frames,
            died_at_frame=self._died,
        )

    def _frame(self, logprobs: np.ndarray) -> None:
        beam = self._prune()
        unscaled, costs = self._price(logprobs)
        reached: dict[int, Entry] = {}
        for state, cost in self._costs.items():
            for a in self._row(state):
                arc = self._graph.arcs[a]
                label = int(arc["ilabel"]) & LABEL_MASK
                if label != EPSILON:
                    total = F(self._follow(cost, arc) + costs[token_of(label)])
                    self._improve(reached, arc, Entry(total, False, a), LARGEST)
        if not reached:
            self._died = self._frames
            return
        cutoff = min(F(min(reached.values()).cost + beam), LARGEST)
        survivors = sum(entry.cost <= cutoff for entry in reached.values())
        if survivors < self._options.min_active:
            least = sorted(entry.cost for entry in reached.values())
            cutoff = max(cutoff, least[: self._options.min_active][-1])
        reached = {s: e for s, e in reached.items() if e.cost <= cutoff}
        self._close(reached, cutoff)
        self._settle(reached, self._nodes, unscaled)
        self._frames += 1

    def _prune(self) -> np.float32:
        """Keep what the frame goes on from; returns the frame's beam."""
        options = self._options
        ranked = sorted((cost, state) for state, cost in self._costs.items())
        kept = [(cost, state) for cost, state in ranked if cost <= self._beam]
        bound = options.max_active is not None and len(kept) > options.max_active
        if bound:
            kept = kept[: options.max_active]
        if len(kept) < options.min_active:
            kept = ranked[: options.min_active]
        self._costs = {state: cost for cost, state in kept}
        if bound and options.beam_delta is not None:
            return min(self._beam, F(kept[-1][0] + F(options.beam_delta)))
        return self._beam

    def _price(self, logprobs: np.ndarray) -> tuple[list[np.float32], list[np.float32]]:
        """The cost of each token: unscaled, and scaled."""
        options, blank = self._options, self._graph.tokens.blank
        skip = options.blank_skip_threshold
        unscaled = [F(-x) for x in logprobs]
        unscaled[blank] = F(-F(logprobs[blank] - F(options.blank_penalty)))
        if skip is not None and logprobs[blank] >= F(math.log(skip)):
            unscaled = [x if v == blank else F(np.inf) for v, x in enumerate(unscaled)]
        scale = F(options.acoustic_scale)
        return unscaled, [F(scale * x) if x < np.inf else x for x in unscaled]

    def _close(self, frontier: dict[int, Entry], cutoff: np.float32) -> None:
        """Relax epsilon arcs, states by rank."""
        rank = self._graph.epsilon_rank
        waiting = {int(rank[state]) for state in frontier}
        done = -1
        while waiting:
            done = min(waiting)
            waiting.remove(done)
            for state in [s for s in frontier if rank[s] == done]:
                for a in self._row(state):
                    arc = self._graph.arcs[a]
                    if arc["ilabel"] & LABEL_MASK != EPSILON:
                        continue
                    total = self._follow(frontier[state].cost, arc)
                    self._improve(frontier, arc, Entry(total, True, a), cutoff)
                    waiting.add(int(rank[arc["nextstate"]]))

    def _settle(
        self,
        frontier: dict[int, Entry],
        before: dict[int, Node],
        unscaled: list[np.float32] | None,
    ) -> None:
        """Make trace nodes, sources first, and re-base."""
        rank, nodes = self._graph.epsilon_rank, {}
        by_source = sorted(frontier, key=lambda s: (frontier[s].epsilon, rank[s]))
        for state in by_source:
            _, epsilon, arc = frontier[state]
            if arc < 0:
                nodes[state] = before[state]
                continue
            source = int(self._source[arc])
            acoustic = F(0)
            if not epsilon:
                label = int(self._graph.arcs[arc]["ilabel"]) & LABEL_MASK
                acoustic = unscaled[token_of(label)]  # type: ignore[index]
            nodes[state] = Node((nodes if epsilon else before)[source], arc, acoustic)
        best = min(entry.cost for entry in frontier.values())
        self._costs = {s: F(entry.cost - best) for s, entry in frontier.items()}
        self._nodes, self._base = nodes, self._base + float(best)

    def _row(self, state: int) -> range:
        splits = self._graph.state_arc_splits
        return range(int(splits[state]), int(splits[state + 1]))

    def _follow(self, cost: np.float32, arc: np.void) -> np.float32:
        """(cost + graph) + extras."""
        total = F(cost + F(F(self._options.lm_scale) * arc["cost"]))
        if arc["olabel"] == EPSILON:
            return total
        bonus = F(self._boosts.bonus(int(arc["olabel"])))
        return F(total + F(F(self._options.word_insertion) - bonus))

    @staticmethod
    def _improve(
        reached: dict[int, Entry], arc: np.void, entry: Entry, cutoff: np.float32
    ) -> None:
        state = int(arc["nextstate"])
        if entry.cost <= cutoff and (state not in reached or entry < reached[state]):
            reached[state] = entry

    @staticmethod
    def _walk_back(node: Node) -> tuple[list[int], list[np.float32]]:
        arcs, acoustic = [], []
        while node.previous is not None:
            arcs.append(node.arc)
            acoustic.append(node.acoustic)
            node = node.previous
        return arcs[::-1], acoustic[::-1]
