"""Batches of the WFST search on a device.

    batch = DeviceBatch(device_graph, options, boosts)    # one CompiledBoosts each
    batch.advance(chunks)                                 # [T, V] per utterance
    batch.finish()                                        # a Path per utterance

    batch = RecordingBatch(device_graph, options, boosts, lengths)
    batch.finish()                                        # a RecordedLattice each

`gpu/batch.py` launches kernels, enlarges arrays, and reports invalid numbers.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.kernels import max_credit_per_arc, pay, state_of
from wfstdec.boost.phrases import PhraseBoosts, initial_states
from wfstdec.gpu.batch import Batch, BatchLayout, Growth, Session
from wfstdec.gpu.device import BlockShape, Grid
from wfstdec.gpu.records import NONE
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, NO_ARCS, REPEAT
from wfstdec.graph.overlay import Overlay
from wfstdec.lattice.arrays import ARC, STATE
from wfstdec.lm import kernels as lm_kernels
from wfstdec.search.paths.tokens import PATH_END, PartialPath, Path
from wfstdec.search.paths.traceback import History
from wfstdec.text.tokens import EPSILON, ilabel_of, token_of
from wfstdec.wfst import lattice_pack
from wfstdec.wfst.final import best_end, best_so_far
from wfstdec.wfst.gpu import layout as d
from wfstdec.wfst.gpu.layout import BatchOverlays, DeviceGraph, trace_nodes
from wfstdec.wfst.lattice_pack import RecordedLattice, arcs_of, arranged
from wfstdec.wfst.options import SearchParams, WfstOptions, search_params

LAYOUT = BatchLayout(
    utterance=d.UTTERANCE,
    # `backup` only for utterances in chunks, `links` only for lattices
    arrays={"frontier": d.ENTRY, "trace": d.NODE, "backup": d.ENTRY, "links": d.LINK},
    kernel="search_chunk",
    phases=d.PHASES,
    counts=d.COUNTS,
    grow_scratch=d.GROW_SCRATCH,
    growths={
        d.GROW_FRONTIER: Growth("frontier", lambda old, entries: 2 * entries),
        d.GROW_TRACE: Growth("trace", lambda old, entries: 2 * (old + entries)),
        d.GROW_LINKS: Growth(
            "links", lambda old, entries: 2 * (old + d.CANDIDATES_PER_ENTRY * entries)
        ),
    },
)
_STEPS_PER_FRAME = 2
"""Initial capacity for the arcs of a path, per frame."""


def _stepping(
    boosts: CompiledBoosts, overlay: Overlay | None, scales: SearchParams
) -> PhraseBoosts | None:
    """Return phrases of an utterance; empty if credit is deferred without phrases."""
    top_bonus = boosts.words.top_bonus
    if overlay is not None:
        top_bonus = top_bonus + overlay.top_bonus
    if boosts.phrases is None and top_bonus > scales.instalment:
        return initial_states()
    return boosts.phrases


def boosts_at_end(
    boosts: CompiledBoosts, options: WfstOptions, frontier: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.float32] | None:
    """Return boosts for `best_end`."""
    if not boosts:
        return None
    phrases = initial_states() if boosts.phrases is None else boosts.phrases
    size = max_credit_per_arc(options.beam)
    return frontier["boost"], phrases.automaton.final_cost, size


class DeviceBatch(Batch):
    """Batch of utterances: `advance` any number of times, then `finish`."""

    # `lengths`: number of frames of each; None if they arrive in chunks.

    def __init__(
        self,
        device_graph: DeviceGraph,
        options: WfstOptions,
        boosts: Sequence[CompiledBoosts],
        lengths: Sequence[int] | None = None,
    ) -> None:
        pool = device_graph.scratch
        scales = search_params(options, any(bool(one.words) for one in boosts))
        oov = BatchOverlays(device_graph, boosts)
        stepping = [
            _stepping(one, overlay, scales)
            for one, overlay in zip(boosts, oov.overlays, strict=True)
        ]
        variant = d.PLAIN._replace(
            phrases=any(one is not None for one in stepping),
            oov=oov.any,
        )
        task = d.task_of(scales, device_graph.graph.tokens)
        device_graph.fill_in(task)
        super().__init__(LAYOUT, pool, task, variant, len(boosts))
        self._device_graph, self._oov = device_graph, oov
        self.utterances["overlay"] = oov.records
        frames: Sequence[int | None] = lengths or [None] * len(boosts)
        self._prepare(
            pool.entries,
            [trace_nodes(pool.entries, n) for n in frames],
            [one.words for one in boosts],
            stepping,
            device_graph.phrases,
            in_chunks=lengths is None,
        )

    def _take_shape(self, shape: BlockShape) -> None:
        self._task["shared_slots"] = shape.shared_bytes // d.SLOT_BYTES

    def finish(self) -> Sequence[Path]:
        """End all utterances; the batch cannot be used afterwards."""
        if len(self.utterances) == 0:
            return []
        with self._device.on_stream(self._stream):
            self._begin()
            frames = self.utterances["frames"].astype(np.int64)
            steps, first = self._find_paths(_STEPS_PER_FRAME * frames + 16)
            count = self.utterances["path_length"].astype(np.int64)
            if (count > self.utterances["path_capacity"]).any():
                steps, first = self._find_paths(count)
        self._release()
        found, ends = self.utterances, np.zeros(len(count), PATH_END)
        final, died = found["reached_final"] != 0, found["died"].astype(np.int64)
        states = found["end_state"][final]  # others may be within an OOV word
        ends["graph_cost"][final] = self._device_graph.graph.final_cost[states]
        ends["search_cost"] = found["base"] + found["end_cost"].astype(np.float64)
        ends["reached_final"], ends["num_frames"] = final, found["frames"]
        ends["died_at_frame"] = np.where(died == NONE, -1, died)
        ends["first"], ends["count"] = first, count
        return self._oov.read(steps, ends)

    def _find_paths(self, capacity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts = np.concatenate([[0], np.cumsum(capacity)])
        buffer = self._device.empty(int(starts[-1]), d.STEP)
        first = self._device.address(buffer)
        self.utterances["path"] = first + d.STEP.itemsize * starts[:-1]
        self.utterances["path_capacity"] = capacity
        which = np.arange(len(capacity))
        self._launch(Grid("best_paths", len(which), 0, self._variant.macros), which)
        with self._device.downloaded(buffer, d.STEP) as steps:
            return steps.copy(), starts[:-1]


class DeviceSession(DeviceBatch, Session):
    """Search of an utterance that arrives in chunks."""

    def __init__(
        self, device_graph: DeviceGraph, options: WfstOptions, boosts: CompiledBoosts
    ) -> None:
        super().__init__(device_graph, options, [boosts])
        self._history = History(self._oov.rule(0))
        self._lm_scale = np.float32(options.lm_scale)
        self._at_end = partial(boosts_at_end, boosts, options)

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        """Return the best path so far, without its first tokens and words."""
        frontier = self.fold()
        one = self.utterances[0]
        at, cost, ended = best_so_far(
            frontier,
            self._device_graph.graph.final_cost,
            self._lm_scale,
            bool(one["died"] == NONE),
            self._at_end(frontier),
        )
        return self._history.look(at, since, int(one["frames"]), ended - cost)

    def finish(self) -> Path:  # type: ignore[override]
        """End the utterance; the session cannot be used afterwards."""
        frontier, final_costs = self.fold(), self._device_graph.graph.final_cost
        one = self.utterances[0]
        survived = bool(one["died"] == NONE)
        at, cost, final = best_end(
            frontier, final_costs, self._lm_scale, survived, self._at_end(frontier)
        )
        # First release memory, for which others may wait.
        self._release()
        end = np.zeros(1, PATH_END)
        if final:
            end["graph_cost"] = final_costs[frontier[at]["state"]]
        end["search_cost"] = float(one["base"]) + float(cost)
        end["reached_final"], end["num_frames"] = final, one["frames"]
        end["died_at_frame"] = -1 if survived else int(one["died"])
        return self._history.read(at, end)

    def fold(self) -> np.ndarray:
        """Fold the trace on the host; return the frontier, ENTRY [F]."""
        with self._device.on_stream(self._stream):
            self._begin()
            one = self.utterances[0]
            frontier = self._download("frontier", int(one["frontier_count"]))
            trace = self._download("trace", int(one["trace_count"]))
            count = self._history.fold(frontier, trace, len(trace))
            self._write_back(frontier, trace[:count])
        return frontier


class RecordingBatch(DeviceBatch):
    """Batch of utterances that records lattices; arguments as `DeviceBatch`."""

    # Kernels record arcs within `lattice_beam` so far; the host prunes them. Positions
    # on the device depend on the schedule of threads: `arranged` sorts them.

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
            counts = [d.link_count(trace_nodes(entries, n)) for n in frames]
            self._allocate("links", counts)
            self._device.wait()

    def finish(self) -> list[RecordedLattice]:  # type: ignore[override]
        """End all utterances; the batch cannot be used afterwards."""
        if len(self.utterances) == 0:
            return []
        with self._device.on_stream(self._stream):
            self._begin()
            found = [self._records(i) for i in range(len(self.utterances))]
        best = super().finish()
        return [self._recorded(i, *found[i], one) for i, one in enumerate(best)]

    def _records(self, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ENTRY [F], NODE [N], LINK [M] of an utterance."""
        counts = self.utterances[i]
        frontier, trace, links = (
            self._download(name, int(counts[f"{name}_count"]), i)
            for name in ("frontier", "trace", "links")
        )
        # If the search died, some were dropped.
        return frontier[frontier["cost"] < np.inf], trace, links

    def _recorded(
        self,
        i: int,
        frontier: np.ndarray,
        trace: np.ndarray,
        links: np.ndarray,
        best: Path,
    ) -> RecordedLattice:
        graph, overlay = self._device_graph.graph, self._oov.overlays[i]
        at_end = boosts_at_end(self._given[i], self._options, frontier)
        costs = graph.final_cost, np.float32(self._options.lm_scale)
        survived = bool(self.utterances[i]["died"] == NONE)
        _, least, is_final = best_end(frontier, *costs, survived, at_end)
        excess, rest = lattice_pack.ends(frontier, at_end, *costs, least, is_final)
        # The CPU's rule on the device's records: the lattice must not depend on the
        # backend.
        limit = np.float32(self._options.beam_of_lattice)
        extra = lattice_pack.spread(frontier, excess, len(trace), links, limit)
        links, nodes = links[links["excess"] < np.inf], np.flatnonzero(extra < np.inf)
        oov = NO_ARCS if overlay is None else overlay.arcs
        of_graph = arcs_of(graph, oov, links["arc"])
        number = np.zeros(len(trace), np.int64)
        number[nodes] = np.arange(len(nodes))
        states, arcs = np.zeros(len(nodes), STATE), np.zeros(len(links), ARC)
        taken = trace["arc"][nodes]
        began = taken == NONE
        reached = arcs_of(graph, oov, np.where(began, 0, taken))["nextstate"]
        states["graph_state"] = np.where(began, np.uint32(0), reached)
        states["frame"] = lattice_pack.frames_of(links, of_graph, len(trace))[nodes]
        states["boost_state"] = trace["renumbered"][nodes]
        states["final_excess"] = np.inf
        ends = np.flatnonzero((excess <= limit) & (excess < np.inf))
        at = number[frontier["node"][ends]]
        states["final_excess"][at] = excess[ends]
        states["final_boost_cost"][at] = rest[ends]
        for name in ("state", "nextstate"):
            arcs[name] = number[links[name]]
        arcs["arc"], arcs["excess"] = links["arc"], links["excess"]
        arcs["acoustic_cost"] = links["acoustic"]
        bonus = np.zeros(len(links), np.float32)
        if overlay is not None:
            beyond = links["arc"] >= overlay.first_arc
            inner = links["arc"][beyond] - np.uint32(overlay.first_arc)
            bonus[beyond] = overlay.bonus[inner]
        boost_state = trace["renumbered"][links["state"]]
        arcs["boost_cost"] = self._boost_costs(i, of_graph, bonus, boost_state)
        made = arranged(
            graph, self._options, states, arcs, of_graph, best.reached_final
        )
        return RecordedLattice(best, *made)

    def _boost_costs(
        self, i: int, arcs: np.ndarray, bonus: np.ndarray, boost_state: np.ndarray
    ) -> np.ndarray:
        """Return boost costs of arcs, float32 [M], negative for credit."""
        # `bonus`: of arcs of OOV words. `boost_state`: at the source of each arc.
        boosts, blank = self._given[i], ilabel_of(self._device_graph.graph.tokens.blank)
        if not boosts:
            return np.zeros(len(arcs), np.float32)
        phrases, size = boosts.phrases, max_credit_per_arc(self._options.beam)
        label = arcs["ilabel"] & LABEL_MASK
        stays = (label == EPSILON) | (label == blank) | (arcs["ilabel"] & REPEAT != 0)
        begun = np.where(stays, EPSILON, label)
        word = np.where(arcs["ilabel"] & CARRIES_WORD, arcs["olabel"], EPSILON)
        steps = np.stack([boost_state, begun, word, bonus.view(np.uint32)], axis=1)
        # In Python: the arcs have few different steps.
        different, first, which = np.unique(
            steps, axis=0, return_index=True, return_inverse=True
        )
        costs = np.zeros(len(different), np.float32)
        for at, (boost, label, word, _) in enumerate(different.tolist()):
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
            paid, _ = pay(boost, state, np.float32(credit + bonus[first[at]]), size)
            costs[at] = np.float32(0) - paid
        return costs[which.reshape(-1)]
