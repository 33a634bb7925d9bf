"""Batches of the WFST search on a device.

    batch = DeviceBatch(device_graph, options, boosts)    # one CompiledBoosts each
    batch.advance(chunks)                                 # [T, V] per utterance
    batch.finish()                                        # a Path per utterance

    batch = RecordingBatch(device_graph, options, boosts, lengths)
    batch.finish()                                        # a RecordedLattice each

`gpu/batch.py` launches kernels, enlarges arrays, and reports bad numbers.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.kernels import max_credit_per_arc, pay, state_of
from wfstdec.boost.phrases import PhraseBoosts, initial_states
from wfstdec.gpu.batch import Batch, BatchLayout, Growth, Session
from wfstdec.gpu.device import BlockShape, Grid, shape_for
from wfstdec.gpu.records import NONE
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, NO_ARCS, REPEAT
from wfstdec.graph.overlay import Overlay
from wfstdec.lattice.arrays import ARC, STATE
from wfstdec.lm import kernels as lm_kernels
from wfstdec.search.paths.tokens import PATH_END, PartialPath, Path
from wfstdec.search.paths.traceback import History, settle_events, with_room
from wfstdec.text.tokens import EPSILON, ilabel_of, token_of
from wfstdec.wfst import lattice_pack
from wfstdec.wfst.final import best_end, best_so_far
from wfstdec.wfst.gpu import layout as d
from wfstdec.wfst.gpu.layout import BatchOverlays, DeviceGraph, trace_nodes
from wfstdec.wfst.gpu.traceback import TIP, fold_rows, roots_of, tips_of
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
"""The search's batches."""
_FRAMES_PER_NODE = 3
"""Frames of a path for which there is room for a node at first."""


def _stepping(
    boosts: CompiledBoosts, overlay: Overlay | None, scales: SearchParams
) -> PhraseBoosts | None:
    """Phrases of an utterance; empty ones if credit is deferred without phrases."""
    top_bonus = boosts.words.top_bonus
    if overlay is not None:
        top_bonus = top_bonus + overlay.top_bonus
    if boosts.phrases is None and top_bonus > scales.instalment:
        return initial_states()
    return boosts.phrases


def boosts_at_end(
    boosts: CompiledBoosts, options: WfstOptions, tips: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.float32] | None:
    """Boosts for `best_end`."""
    if not boosts:
        return None
    phrases = initial_states() if boosts.phrases is None else boosts.phrases
    size = max_credit_per_arc(options.beam)
    return tips["boost"], phrases.automaton.final_cost, size


class DeviceBatch(Batch):
    """Utterances side by side: `advance` any number of times, then `finish`."""

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
        self._device_graph, self._oov, self._stepping = device_graph, oov, stepping
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

    def finish(self) -> list[Path]:
        """End all utterances; the batch cannot be used afterwards."""
        if len(self.utterances) == 0:
            return []
        with self._device.on_stream(self._stream):
            self._begin()
            capacity = self.utterances["frames"].astype(np.int64)
            capacity = capacity // _FRAMES_PER_NODE + 16
            paths = self._read_paths(np.arange(len(self.utterances)), capacity)
            length = self.utterances["path_length"].astype(np.int64)
            longer = np.flatnonzero(length > capacity)
            for i, one in zip(
                longer, self._read_paths(longer, length[longer]), strict=True
            ):
                paths[i] = one
        self._release()
        return paths

    def _read_paths(self, which: np.ndarray, capacity: np.ndarray) -> list[Path]:
        """Read the paths of some utterances; empty where `capacity` is too small."""
        if len(which) == 0:
            return []
        nodes, first = self._find_paths(which, capacity)
        found, ends = self.utterances[which], np.zeros(len(which), PATH_END)
        final, died = found["reached_final"] != 0, found["died"].astype(np.int64)
        states = found["end_state"][final]  # others may be within an OOV word
        ends["graph_cost"][final] = self._device_graph.graph.final_cost[states]
        ends["search_cost"] = found["base"] + found["end_cost"].astype(np.float64)
        ends["reached_final"], ends["num_frames"] = final, found["frames"]
        ends["died_at_frame"] = np.where(died == NONE, -1, died)
        length = found["path_length"].astype(np.int64)
        last = first + np.minimum(length, capacity) - 1
        nodes["previous"] = np.arange(1, len(nodes) + 1)
        nodes["arc"][last] = NONE
        nodes["ended"][last] = 0
        tips = np.zeros(len(which), TIP)
        tips["node"], tips["ended"] = first, found["end_ended"]
        tips["acoustic"] = found["end_acoustic"]
        return self._oov.read(which, ends, nodes, tips)

    def _find_paths(
        self, which: np.ndarray, capacity: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Nodes of all paths, the last of each first, and where each begins."""
        starts = np.concatenate([[0], np.cumsum(capacity)])
        buffer = self._device.empty(int(starts[-1]), d.NODE)
        first = self._device.address(buffer)
        self.utterances["path"][which] = first + d.NODE.itemsize * starts[:-1]
        self.utterances["path_capacity"][which] = capacity
        threads = shape_for(self._device.shapes, len(which)).threads
        grid = Grid("best_paths", len(which), 0, self._variant.macros, threads)
        self._launch(grid, which)
        return self._device.download(buffer, d.NODE), starts[:-1]

    def _tips(self, i: int) -> np.ndarray:
        """The active states of utterance `i`, `traceback.TIP` [E]."""
        one = self.utterances[i]
        frontier = self._download("frontier", int(one["frontier_count"]), i)
        states = self._oov.states(i, frontier["record"])
        return tips_of(frontier, states, int(one["frames"]))


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
        """The best path so far but its first tokens and words; it can continue."""
        tips = self._fold()
        one = self.utterances[0]
        at, cost, ended = best_so_far(
            tips,
            self._device_graph.graph.final_cost,
            self._lm_scale,
            bool(one["died"] == NONE),
            self._at_end(tips),
        )
        return self._history.look(at, since, int(one["frames"]), ended - cost)

    def finish(self) -> Path:  # type: ignore[override]
        """End the utterance; the session cannot be used afterwards."""
        tips, final_costs = self._fold(), self._device_graph.graph.final_cost
        one = self.utterances[0]
        survived = bool(one["died"] == NONE)
        at, cost, final = best_end(
            tips, final_costs, self._lm_scale, survived, self._at_end(tips)
        )
        # Memory first: others that wait for it need not wait for the path.
        self._release()
        end = np.zeros(1, PATH_END)
        if final:
            end["graph_cost"] = final_costs[tips[at]["state"]]
        end["search_cost"] = float(one["base"]) + float(cost)
        end["reached_final"], end["num_frames"] = final, one["frames"]
        end["died_at_frame"] = -1 if survived else int(one["died"])
        return self._history.read(at, end)

    def fold(self) -> None:
        """Fold the trace on the host."""
        self._fold()

    def _fold(self) -> np.ndarray:
        """Fold the trace on the host; the tips of the history, `traceback.TIP` [E]."""
        with self._device.on_stream(self._stream):
            self._begin()
            one = self.utterances[0]
            frontier = self._download("frontier", int(one["frontier_count"]))
            trace = self._download("trace", int(one["trace_count"]))
            tips = tips_of(
                frontier,
                self._oov.states(0, frontier["record"]),
                int(one["frames"]),
            )
            history, rule = self._history, self._oov.rule(0)
            history.paths = with_room(history.paths, len(trace), len(tips))
            frames = np.full(len(tips), one["frames"], np.int64)
            given = rule, tips, frames, trace, history.paths
            settle_events(history.paths, *fold_rows(*given))
            number = np.arange(len(tips), dtype=np.uint32)
            for name, cell in (("blank_node", 0), ("token_node", 1)):
                of_cell = tips["place"] % 2 == cell
                frontier[name][tips["place"][of_cell] // 2] = number[of_cell]
            roots = roots_of(len(tips), int(one["frames"]), d.NODE)
            self._write_back(frontier, roots)
        return tips


class RecordingBatch(DeviceBatch):
    """Utterances side by side that record lattices; arguments as `DeviceBatch`."""

    # Kernels record what is within `lattice_beam` so far; the host prunes it. Positions
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
        self._start_boosts = [0 if one is None else one.start for one in self._stepping]
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

    def _records(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """`traceback.TIP` [E], LINK [M] of an utterance."""
        links = self._download("links", int(self.utterances[i]["links_count"]), i)
        tips = self._tips(i)
        tips["node"] = tips["place"] + self.utterances[i]["first_place"]
        return tips, links

    def _recorded(
        self, i: int, tips: np.ndarray, links: np.ndarray, best: Path
    ) -> RecordedLattice:
        """Sort and prune the records of an utterance."""
        graph, overlay = self._device_graph.graph, self._oov.overlays[i]
        at_end = boosts_at_end(self._given[i], self._options, tips)
        costs = graph.final_cost, np.float32(self._options.lm_scale)
        survived = bool(self.utterances[i]["died"] == NONE)
        _, least, is_final = best_end(tips, *costs, survived, at_end)
        excess, rest = lattice_pack.ends(tips, at_end, *costs, least, is_final)
        # The CPU's rule, on the device's records: what is kept must not depend on the
        # backend.
        limit, count = np.float32(self._options.beam_of_lattice), self._places(i)
        extra = lattice_pack.spread(tips, excess, count, links, limit)
        links, nodes = links[links["excess"] < np.inf], np.flatnonzero(extra < np.inf)
        graph_state, boost_state = np.zeros((2, count), np.uint32)
        boost_state[:2] = self._start_boosts[i]
        graph_state[links["nextstate"]] = links["graph_state"]
        boost_state[links["nextstate"]] = links["boost"]
        oov = NO_ARCS if overlay is None else overlay.arcs
        of_graph = arcs_of(graph, oov, links["arc"])
        number = np.zeros(count, np.int64)
        number[nodes] = np.arange(len(nodes))
        states, arcs = np.zeros(len(nodes), STATE), np.zeros(len(links), ARC)
        states["graph_state"], states["boost_state"] = (
            graph_state[nodes],
            boost_state[nodes],
        )
        states["frame"] = lattice_pack.frames_of(links, of_graph, count)[nodes]
        states["final_excess"] = np.inf
        ends = np.flatnonzero((excess <= limit) & (excess < np.inf))
        at = number[tips["node"][ends]]
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
        left = boost_state[links["state"]]
        arcs["boost_cost"] = self._boost_costs(i, of_graph, bonus, left)
        made = arranged(
            graph, self._options, states, arcs, of_graph, best.reached_final
        )
        return RecordedLattice(best, *made)

    def _places(self, i: int) -> int:
        """The number of states of all frontiers of an utterance."""
        return int(self.utterances[i]["num_places"])

    def _boost_costs(
        self, i: int, arcs: np.ndarray, bonus: np.ndarray, boost_state: np.ndarray
    ) -> np.ndarray:
        """Boost costs of arcs of the graph, float32 [M], negative for credit."""
        # `bonus`: of arcs of OOV words. `boost_state`: what each arc leaves.
        boosts, blank = self._given[i], ilabel_of(self._device_graph.graph.tokens.blank)
        if not boosts:
            return np.zeros(len(arcs), np.float32)
        phrases, size = boosts.phrases, max_credit_per_arc(self._options.beam)
        label = arcs["ilabel"] & LABEL_MASK
        stays = (label == EPSILON) | (label == blank) | (arcs["ilabel"] & REPEAT != 0)
        begun = np.where(stays, EPSILON, label)
        word = np.where(arcs["ilabel"] & CARRIES_WORD, arcs["olabel"], EPSILON)
        steps = np.stack([boost_state, begun, word, bonus.view(np.uint32)], axis=1)
        # In plain Python: the arcs have few different steps.
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
