"""Records of `kernels/layout.cuh` as NumPy types, the `Program`, data on the device.

graph = DeviceGraph(graph, device, first_capacity)    # shared by all batches
of_batch = BatchOverlays(graph, boosts)               # a CompiledBoosts per utterance
of_batch.records, of_batch.read(...)                  # for kernels; for reading paths
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.gpu import boosts, logprobs
from wfstdec.gpu.boosts import DevicePhrases
from wfstdec.gpu.compiling import Macros, Program
from wfstdec.gpu.device import Device, DeviceArrays, ScratchLayout, ScratchPool
from wfstdec.gpu.records import NONE, fill_options, read_structs
from wfstdec.graph import arcs
from wfstdec.graph.overlay import Overlay, make_overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit.records import WeakCache
from wfstdec.search.paths.tokens import Path
from wfstdec.search.paths.traceback import Rule, read_paths, rule_of
from wfstdec.text.tokens import TokenTable
from wfstdec.text.vocabulary import OovWords
from wfstdec.wfst.options import SearchParams

KERNELS = pathlib.Path(__file__).parent / "kernels"

OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE, FULL_TRACE, GROW_LINKS = range(6)
"""Values of `UTTERANCE.status` after a launch."""
PHASES = ("keep", "bound", "emit", "recombine", "close", "settle", "other")
"""Phases of a frame, timed by kernels compiled for it."""
OWN_BYTES = 6 * 1024
"""Largest shared memory of a block's variables, bytes."""

STRUCTS = read_structs(KERNELS / "layout.cuh", **logprobs.STRUCTS, **boosts.STRUCTS)
"""Records shared by host and kernels, by their names there."""
ENTRY, NODE, UTTERANCE = STRUCTS["Entry"], STRUCTS["Node"], STRUCTS["Utterance"]
LINK, OVERLAY, STEP = STRUCTS["Link"], STRUCTS["Overlay"], STRUCTS["Step"]
STATE_ARCS = STRUCTS["StateArcs"]

COUNTS = ("frames", "active", "arcs", "looked", "entries", "shared", "spilled")
"""Sums over frames in `UTTERANCE`: active states, arcs within the beam, arcs inspected,
entries built, frames with the table in shared memory, frames that left it."""

_U4: np.dtype = np.dtype("u4")
_U8: np.dtype = np.dtype("u8")
ENTRY_ARRAYS: dict[str, np.dtype] = {
    "new_entries": STRUCTS["NewEntry"],
    "entry_slots": _U4,
    "tie_breaks": _U4,
    "epsilon_entries": _U4,
}
"""Scratch of a block: fields of `TASK` that point to `entry_capacity` of these,"""
CANDIDATE_ARRAYS: dict[str, np.dtype] = {
    "candidates": STRUCTS["Candidate"],
    "candidate_boosts": _U4,
    "candidate_slots": _U4,
}
"""to `candidate_capacity`,"""
TABLE_ARRAYS: dict[str, np.dtype] = {
    "table_keys": _U8,
    "table_best": _U8,
    "table_entries": _U4,
}
"""and to `table_slots`."""
SLOT_BYTES = sum(dtype.itemsize for dtype in TABLE_ARRAYS.values())
"""Size of a slot of a table."""


def table_bytes(room: int) -> int:
    """Return the size of the largest table that fits, bytes."""
    return max(0, room) // SLOT_BYTES * SLOT_BYTES


class Variant(NamedTuple):
    """Compile-time features of a launch's kernels, as few as possible."""

    # Omitted code leaves room for the rest in the instruction cache.
    phrases: bool = True  # whether any utterance has phrases
    logprob_type: int = logprobs.MIXED  # of all chunks, or `MIXED`
    times: bool = False  # whether phases are timed
    lattices: bool = False  # whether arcs are recorded for lattices
    oov: bool = False  # whether any utterance has OOV words

    @property
    def macros(self) -> Macros:
        """Macros for the compiler."""
        flags = (("PHRASES", int(self.phrases)), ("LOGPROB_TYPE", self.logprob_type))
        more = (("TIMES", 1),) * self.times + (("LATTICES", 1),) * self.lattices
        return flags + more + (("ADDED", 1),) * self.oov


PLAIN = Variant(phrases=False, logprob_type=logprobs.FLOAT32)
"""The most common variant."""


PROGRAM = Program(
    "search.cu",
    KERNELS,
    kernels=("search_chunk", "best_paths"),
    own_bytes=OWN_BYTES,
    shared_bytes=table_bytes,
    structs=STRUCTS | {"Arc": arcs.ARC},
    constants=logprobs.CONSTANTS
    | {
        "OK": OK,
        "GROW_SCRATCH": GROW_SCRATCH,
        "GROW_FRONTIER": GROW_FRONTIER,
        "GROW_TRACE": GROW_TRACE,
        "FULL_TRACE": FULL_TRACE,
        "GROW_LINKS": GROW_LINKS,
        "NUM_PHASES": len(PHASES),
        "LABEL_MASK": arcs.LABEL_MASK,
        "CARRIES_WORD": arcs.CARRIES_WORD,
        "LEADS_TO_EPSILON": arcs.LEADS_TO_EPSILON,
        "REPEAT": arcs.REPEAT,
    },
)
"""The kernels of the search."""


def state_arcs_of(
    splits: np.ndarray, num_epsilons: np.ndarray, rank: np.ndarray | int = 0
) -> np.ndarray:
    """Return STATE_ARCS [S] of rows of arcs, epsilon arcs first."""
    states = np.zeros(len(num_epsilons), STATE_ARCS)
    states["begin"], states["end"] = splits[:-1], splits[1:]
    states["emit"] = splits[:-1] + num_epsilons
    states["rank"] = rank
    return states


def task_of(scales: SearchParams, tokens: TokenTable) -> np.ndarray:
    """Return TASK [1] with the options filled in."""
    task = np.zeros(1, STRUCTS["Task"])
    task["blank"], task["num_tokens"] = tokens.blank, len(tokens)
    names = "beam_delta", "lm_scale", "word_insertion", "instalment"
    fill_options(task, scales, ("max_active",), names)
    return task


CANDIDATES_PER_ENTRY = 4
TRACE_BYTES = 16 << 20
"""Size of an utterance's trace above which it is compacted."""
FRAMES_AHEAD = 64
"""Frames of full frontiers in a trace's capacity, if their number is unknown."""
LINKS_PER_NODE = 2
_MIN_FRAMES = 4
NARROWER = "lower max_active or the beam"
"""Advice in the error for too little memory."""


def trace_nodes(entries: int, num_frames: int | None) -> int:
    """Return nodes of a trace, for frontiers of `entries` entries."""
    frames = FRAMES_AHEAD if num_frames is None else num_frames + 1
    most = TRACE_BYTES // NODE.itemsize
    return max(min(frames * entries, most), _MIN_FRAMES * entries)


def link_count(nodes: int) -> int:
    """Return the initial capacity in lattice arcs, for a trace of `nodes` nodes."""
    return LINKS_PER_NODE * nodes


def utterance_bytes(
    entries: int, num_frames: int | None, lattices: bool = False
) -> int:
    """Return bytes of an utterance, for frontiers of `entries` entries."""
    nodes = trace_nodes(entries, num_frames)
    links = link_count(nodes) * LINK.itemsize if lattices else 0
    trace = nodes * NODE.itemsize
    frontiers = 2 if num_frames is None else 1  # in chunks: the one before is kept
    return frontiers * entries * ENTRY.itemsize + trace + links


def _counts(entries: int) -> dict[str, int]:
    """Return the capacities of a block; the table is at most half full."""
    return {
        "entry_capacity": entries,
        "candidate_capacity": CANDIDATES_PER_ENTRY * entries,
        "table_slots": 2 * entries,
    }


def _arrays(entries: int) -> list[tuple[str, int, np.dtype]]:
    groups = (ENTRY_ARRAYS, CANDIDATE_ARRAYS, TABLE_ARRAYS)
    counted = zip(groups, _counts(entries).values(), strict=True)
    return [(name, n, dtype) for group, n in counted for name, dtype in group.items()]


SCRATCH = ScratchLayout(_arrays, _counts)
"""The scratch of a block."""


class DeviceOverlay:
    """An overlay on a device; `record`: an OVERLAY."""

    def __init__(self, device: Device, overlay: Overlay) -> None:
        # Its epsilon arcs come only from states of rank 0.
        splits = overlay.first_arc + overlay.state_arc_splits.astype(np.int64)
        arrays = {
            "arcs": overlay.arcs,
            "bonus": overlay.bonus,
            "states": state_arcs_of(splits, overlay.state_num_epsilons),
            "call_state": overlay.exit_state.astype(np.uint32),
        }
        self.overlay = overlay
        self._arrays = DeviceArrays(
            device,
            arrays,
            f"added words of {len(overlay.arcs)} arcs",
            "add fewer words",
        )
        self.num_bytes = self._arrays.num_bytes
        self.record = np.zeros((), OVERLAY)
        self._arrays.fill_in(self.record)
        self.record["num_calls"] = len(overlay.exit_state)
        for name in ("first_state", "first_arc"):
            self.record[name] = getattr(overlay, name)
        self.record["num_entering"] = overlay.num_entry_arcs


class BatchOverlays:
    """Overlays of the utterances of a batch, kept on the device."""

    # `overlays`: of each utterance, or None. `records`: OVERLAY [B].
    def __init__(
        self, device_graph: DeviceGraph, boosts: Sequence[CompiledBoosts]
    ) -> None:
        self._rule, stored = rule_of(device_graph.graph), device_graph.overlays
        with device_graph.device.on_stream(None):
            self._kept = [
                None if one.oov is None else stored.of(one.oov) for one in boosts
            ]
        self.overlays = [None if one is None else one.overlay for one in self._kept]
        self.records = np.zeros(len(boosts), OVERLAY)
        self.records["first_state"] = self.records["first_arc"] = NONE
        for i, one in enumerate(self._kept):
            if one is not None:
                self.records[i] = one.record

    @property
    def any(self) -> bool:
        """Whether any utterance has OOV words."""
        return any(one is not None for one in self.overlays)

    def rule(self, i: int) -> Rule:
        """Return the rule for the arcs of utterance `i`."""
        overlay = self.overlays[i]
        return self._rule if overlay is None else self._rule._replace(oov=overlay.arcs)

    def read(self, steps: np.ndarray, ends: np.ndarray) -> Sequence[Path]:
        """Do as `read_paths` for all utterances, each by its own rule."""
        groups: dict[int, list[int]] = {}  # utterances with the same words together
        for i, one in enumerate(self.overlays):
            groups.setdefault(id(one), []).append(i)
        found: dict[int, Path] = {}
        for group in groups.values():
            read = read_paths(self.rule(group[0]), steps, ends[group])
            if len(groups) == 1:
                return read
            found.update(zip(group, read, strict=True))
        return [found[i] for i in range(len(ends))]


class DeviceGraph:
    """A graph on a device, with scratch, phrases and OOV words shared by batches."""

    def __init__(self, graph: PackedGraph, device: Device, first_capacity: int) -> None:
        self.graph, self.device = graph, device
        self.scratch = ScratchPool(device, SCRATCH, first_capacity, NARROWER)
        self.phrases: WeakCache[PhraseBoosts, DevicePhrases]
        self.phrases = WeakCache(partial(DevicePhrases, device))
        self.overlays: WeakCache[OovWords, DeviceOverlay] = WeakCache(
            lambda oov: DeviceOverlay(device, make_overlay(graph, oov))
        )
        arrays = {
            "arcs": graph.arcs,
            "states": state_arcs_of(
                graph.state_arc_splits, graph.state_num_epsilons, graph.epsilon_rank
            ),
            "final_cost": graph.final_cost,
        }
        self._arrays = DeviceArrays(
            device,
            arrays,
            f"a graph of {graph.num_arcs} arcs",
            "prune its language model",
        )
        self.num_bytes, self.fill_in = self._arrays.num_bytes, self._arrays.fill_in
