"""Lattices on a device: a batch whose kernels record arcs.

    batch = RecordingBatch(device_graph, options, boosts, lengths)
    batch.advance(chunks)
    batch.finish()                                      # a Recorded per utterance

The kernels record what is within `lattice_beam` so far; the host prunes it. Positions
on the device depend on the schedule of threads: `arranged` sorts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.kernels import max_credit_per_arc, pay, state_of
from wfstdec.gpu.records import NONE
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, NO_ARCS, REPEAT
from wfstdec.graph.overlay import Overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.lattice.arrays import ARC, STATE
from wfstdec.lm import kernels as lm_kernels
from wfstdec.search.paths.tokens import Path
from wfstdec.text.tokens import EPSILON, ilabel_of, token_of
from wfstdec.wfst import lattice_pack as noted
from wfstdec.wfst.final import best_end
from wfstdec.wfst.gpu.batch import DeviceBatch, boosts_at_end
from wfstdec.wfst.gpu.device_graph import DeviceGraph
from wfstdec.wfst.gpu.layout import link_count, trace_nodes
from wfstdec.wfst.lattice_pack import RecordedLattice, arranged
from wfstdec.wfst.options import WfstOptions


class _Searched(NamedTuple):
    """Graph, options and boosts of a search."""

    graph: PackedGraph
    options: WfstOptions
    boosts: CompiledBoosts
    overlay: Overlay | None


class _Noted(NamedTuple):
    """Records of a device of an utterance: ENTRY [F], NODE [N], LINK [M]."""

    frontier: np.ndarray
    trace: np.ndarray
    links: np.ndarray
    survived: bool


class RecordingBatch(DeviceBatch):
    """Utterances side by side that record lattices; arguments as `DeviceBatch`."""

    def __init__(
        self,
        device_graph: DeviceGraph,
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int] | None = None,
    ) -> None:
        super().__init__(device_graph, options, boosts, lengths)
        self._options, self._given = options, boosts
        self._variant = self._variant._replace(lattices=True)
        self._task["link_limit"] = options.beam_of_lattice
        entries = device_graph.scratch.entries
        frames: Sequence[int | None] = lengths or [None] * len(boosts)
        with self._device.on_stream(None):
            counts = [link_count(trace_nodes(entries, n)) for n in frames]
            self._allocate("links", counts)
            self._device.wait()

    def finish(self) -> list[RecordedLattice]:  # type: ignore[override]
        """End all utterances; the batch cannot be used afterwards."""
        if len(self.utterances) == 0:
            return []
        with self._device.on_stream(self._stream):
            self._begin()
            found = [self._noted(i) for i in range(len(self.utterances))]
        graph, given = self._device_graph.graph, (self._given, self._oov.overlays)
        searched = [
            _Searched(graph, self._options, *one) for one in zip(*given, strict=True)
        ]
        return list(map(_recorded, searched, found, super().finish()))

    def _noted(self, i: int) -> _Noted:
        one = self.utterances[i]
        frontier = self._download("frontier", int(one["frontier_count"]), i)
        # If the search died, some were dropped.
        return _Noted(
            frontier[frontier["cost"] < np.inf],
            self._download("trace", int(one["trace_count"]), i),
            self._download("links", int(one["links_count"]), i),
            bool(one["died"] == NONE),
        )


def _recorded(searched: _Searched, found: _Noted, best: Path) -> RecordedLattice:
    """Sort and prune the records of an utterance."""
    frontier, trace, links, _ = found
    excess, rest = _ends(searched, found)
    limit = np.float32(searched.options.beam_of_lattice)
    # The CPU's rule, on the device's records: what is kept must not depend on the
    # backend.
    extra = noted.spread(frontier, excess, len(trace), links, limit)
    links, nodes = links[links["excess"] < np.inf], np.flatnonzero(extra < np.inf)
    graph, overlay = searched.graph, searched.overlay
    oov = NO_ARCS if overlay is None else overlay.arcs
    of_graph = noted.arcs_of(graph, oov, links["arc"])
    number = np.zeros(len(trace), np.int64)
    number[nodes] = np.arange(len(nodes))
    states, arcs = np.zeros(len(nodes), STATE), np.zeros(len(links), ARC)
    taken = trace["arc"][nodes]
    began = taken == NONE
    reached = noted.arcs_of(graph, oov, np.where(began, 0, taken))["nextstate"]
    states["graph_state"] = np.where(began, np.uint32(0), reached)
    states["frame"] = noted.frames_of(links, of_graph, len(trace))[nodes]
    states["boost_state"] = trace["renumbered"][nodes]
    states["final_excess"] = np.inf
    ends = np.flatnonzero((excess <= limit) & (excess < np.inf))
    at = number[frontier["node"][ends]]
    states["final_excess"][at], states["final_boost_cost"][at] = (
        excess[ends],
        rest[ends],
    )
    for name in ("state", "nextstate"):
        arcs[name] = number[links[name]]
    for name, of_link in (
        ("arc", "arc"),
        ("excess", "excess"),
        ("acoustic_cost", "acoustic"),
    ):
        arcs[name] = links[of_link]
    bonus = np.zeros(len(links), np.float32)
    if overlay is not None:
        beyond = links["arc"] >= overlay.first_arc
        bonus[beyond] = overlay.bonus[
            links["arc"][beyond] - np.uint32(overlay.first_arc)
        ]
    boost_state = trace["renumbered"][links["state"]]
    arcs["boost_cost"] = _boost_costs(searched, of_graph, bonus, boost_state)
    made = arranged(graph, searched.options, states, arcs, of_graph, best.reached_final)
    return RecordedLattice(best, *made)


def _ends(searched: _Searched, found: _Noted) -> tuple[np.ndarray, np.ndarray]:
    """Excess of ending at each entry over the best end; the boosts' rest."""
    graph, options, boosts, _ = searched
    frontier = found.frontier
    at_end = boosts_at_end(boosts, options, frontier)
    costs = graph.final_cost, np.float32(options.lm_scale)
    _, least, is_final = best_end(frontier, *costs, found.survived, at_end)
    return noted.ends(frontier, at_end, *costs, least, is_final)


def _boost_costs(
    searched: _Searched, arcs: np.ndarray, bonus: np.ndarray, boost_state: np.ndarray
) -> np.ndarray:
    """Boost costs of arcs of the graph, float32 [M], negative for credit.

    `bonus`: of arcs of OOV words. `boost_state`: what each arc leaves.
    """
    graph, options, boosts, _ = searched
    if not boosts:
        return np.zeros(len(arcs), np.float32)
    phrases, size = boosts.phrases, max_credit_per_arc(options.beam)
    label, blank = arcs["ilabel"] & LABEL_MASK, ilabel_of(graph.tokens.blank)
    stays = (label == EPSILON) | (label == blank) | (arcs["ilabel"] & REPEAT != 0)
    begun = np.where(stays, EPSILON, label)
    word = np.where(arcs["ilabel"] & CARRIES_WORD, arcs["olabel"], EPSILON)
    steps = np.stack([boost_state, begun, word, bonus.view(np.uint32)], axis=1)
    # In plain Python: the arcs have few different steps.
    different, first, which = np.unique(
        steps, axis=0, return_index=True, return_inverse=True
    )
    costs = np.zeros(len(different), np.float32)
    for i, (boost, label, word, _) in enumerate(different.tolist()):
        if word == EPSILON and label == EPSILON:
            continue
        credit = np.float32(0 if word == EPSILON else boosts.words.bonus(word))
        state, by = int(state_of(boost)), label and int(token_of(label))
        has_label = label != EPSILON
        if phrases is not None and phrases.unit == "word":
            has_label, by = word != EPSILON, word
        if phrases is not None and has_label:
            cost, state = lm_kernels.step(phrases.automaton, 0, state, by)
            credit = np.float32(credit - cost)
        paid, _ = pay(boost, state, np.float32(credit + bonus[first[i]]), size)
        costs[i] = np.float32(0) - paid
    return costs[which.reshape(-1)]
