"""The records of `kernels/layout.cuh` as NumPy types, the `Program`, the device's data.

graph = DeviceGraph(graph, device, first_capacity)    # shared by all batches
of_batch = BatchOverlays(graph, boosts)               # a CompiledBoosts per utterance
of_batch.records, of_batch.read(...)                  # what kernels read; paths back
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.errors import GraphError
from wfstdec.gpu import boosts, logprobs
from wfstdec.gpu.boosts import DevicePhrases
from wfstdec.gpu.compiling import Macros, Program
from wfstdec.gpu.device import Device, DeviceArrays, ScratchLayout, ScratchPool
from wfstdec.gpu.records import NONE, fill_options, read_structs
from wfstdec.graph import arcs
from wfstdec.graph.overlay import Overlay, make_overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.jit.records import WeakCache
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.search.paths.tokens import Path
from wfstdec.search.paths.traceback import Rule
from wfstdec.text.tokens import TokenTable, ilabel_of
from wfstdec.text.vocabulary import OovWords
from wfstdec.wfst import rows
from wfstdec.wfst.gpu.traceback import read_row_paths
from wfstdec.wfst.options import SearchParams
from wfstdec.wfst.rows import RowArrays, row_graph_of, rule_of_rows

KERNELS = pathlib.Path(__file__).parent / "kernels"

OK, GROW_SCRATCH, GROW_FRONTIER, GROW_TRACE, FULL_TRACE, GROW_LINKS = range(6)
"""Values of `UTTERANCE.status` after a launch."""
PHASES = ("keep", "emit", "recombine", "close", "settle", "other")
"""Phases of a frame, timed by kernels compiled for it."""
OWN_BYTES = 10 * 1024
"""Shared memory of a block's variables, at most."""

STRUCTS = read_structs(KERNELS / "layout.cuh", **logprobs.STRUCTS, **boosts.STRUCTS)
"""The records that host and kernels share, by their names there."""
ENTRY, NODE, UTTERANCE = STRUCTS["Entry"], STRUCTS["Node"], STRUCTS["Utterance"]
LINK, OVERLAY, RECORD = STRUCTS["Link"], STRUCTS["Overlay"], STRUCTS["Record"]
HUB = 1 << 27
"""Flag of a record: the state after a blank, as an entry of its own."""

COUNTS = ("frames", "active", "arcs", "looked", "entries", "shared", "spilled")
"""Sums over frames in `UTTERANCE`: active states, arcs within the beam, arcs inspected,
entries built, frames with the table in shared memory, frames that left it."""

_U4: np.dtype = np.dtype("u4")
_U8: np.dtype = np.dtype("u8")
ENTRY_ARRAYS: dict[str, np.dtype] = {
    "new_entries": ENTRY,
    "entry_slots": _U4,
    "tie_breaks": _U4,
    "epsilon_entries": _U8,
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
SLOT_BYTES = sum(
    dtype.itemsize for dtype in (ENTRY_ARRAYS | CANDIDATE_ARRAYS).values()
) // 2 + sum(dtype.itemsize for dtype in TABLE_ARRAYS.values())
"""Bytes of a slot in shared memory, where there is an entry and a candidate for two."""


def table_bytes(room: int) -> int:
    """Size of the largest table that fits, bytes."""
    return max(0, room) // SLOT_BYTES * SLOT_BYTES


class Variant(NamedTuple):
    """What the kernels of a launch are compiled for: the least that will do."""

    # Code that is left out makes the rest fit into the instruction cache.
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
        "REPEAT": arcs.REPEAT,
        "EPSILONS": int(rows.EPSILONS),
        "SHARED": int(rows.SHARED),
        "NO_BLANK": int(rows.NO_BLANK),
        "TOKEN_FIRST": int(rows.TOKEN_FIRST),
        "HUB": HUB,
        "EXIT": int(rows.EXIT),
        "RECORDS": int(rows.RECORDS),
    },
    block_threads=(512, 256, 128),
)
"""The kernels of the search."""


def task_of(scales: SearchParams, tokens: TokenTable) -> np.ndarray:
    """TASK [1] with the options filled in."""
    task = np.zeros(1, STRUCTS["Task"])
    task["blank"], task["num_tokens"] = tokens.blank, len(tokens)
    names = "beam_delta", "lm_scale", "word_insertion", "instalment"
    fill_options(task, scales, ("max_active",), names)
    # States that are not active cost infinity: that is beyond any beam.
    task["beam"] = np.minimum(task["beam"], NO_CUTOFF)
    return task


CANDIDATES_PER_ENTRY = 4
TRACE_BYTES = 16 << 20
"""Size of an utterance's trace above which it is compacted."""
FRAMES_AHEAD = 64
"""Frames of full frontiers that a trace has room for, if their number is unknown."""
LINKS_PER_NODE = 2
_MIN_FRAMES = 4
NARROWER = "lower max_active or the beam"
"""Advice in the error for too little memory."""


def trace_nodes(entries: int, num_frames: int | None) -> int:
    """Nodes of a trace, for frontiers of `entries` entries."""
    frames = FRAMES_AHEAD if num_frames is None else num_frames + 1
    most = TRACE_BYTES // NODE.itemsize
    return max(min(frames * entries, most), _MIN_FRAMES * entries)


def link_count(nodes: int) -> int:
    """Lattice arcs to allocate at first for a trace of `nodes` nodes."""
    return LINKS_PER_NODE * nodes


def utterance_bytes(
    entries: int, num_frames: int | None, lattices: bool = False
) -> int:
    """Bytes of an utterance, for frontiers of `entries` entries."""
    nodes = trace_nodes(entries, num_frames)
    links = link_count(nodes) * LINK.itemsize if lattices else 0
    trace = nodes * NODE.itemsize
    frontiers = 2 if num_frames is None else 1  # in chunks: the one before is kept
    return frontiers * entries * ENTRY.itemsize + trace + links


def _counts(entries: int) -> dict[str, int]:
    """Entries, candidates and slots of a block; the table is at most half full."""
    return {
        "entry_capacity": entries,
        "candidate_capacity": CANDIDATES_PER_ENTRY * entries,
        "table_slots": 2 * entries,
    }


def _arrays(entries: int) -> list[tuple[str, int, np.dtype]]:
    """Name, length and type of the arrays of one block."""
    groups = (ENTRY_ARRAYS, CANDIDATE_ARRAYS, TABLE_ARRAYS)
    counted = zip(groups, _counts(entries).values(), strict=True)
    return [(name, n, dtype) for group, n in counted for name, dtype in group.items()]


SCRATCH = ScratchLayout(_arrays, _counts)
"""The scratch of a block."""


def _fill_states(
    records: np.ndarray, first: tuple[int, int], splits: np.ndarray, skip: np.ndarray
) -> None:
    """Fill in numbers of emitting arcs; `first`: state and arc, `skip`: epsilons."""
    number = (first[1] + splits[:-1].astype(np.int64) + skip).astype(np.uint32)
    for name in ("blank", "token"):
        state = records["states"][f"after_{name}"]
        records["states"][f"{name}_number"] = number[state - np.uint32(first[0])]


def _fill_order(
    records: np.ndarray, row: np.ndarray, labels: np.ndarray, splits: np.ndarray
) -> None:
    """Fill in where the arcs of the token are; `labels`: of arcs, by rows."""
    most = 1 + int(labels.max(initial=0)) + int(records["row"]["token"].max(initial=0))
    key = np.repeat(np.arange(len(splits) - 1), np.diff(splits)) * (most + 1) + labels
    own = row * (most + 1) + ilabel_of(records["row"]["token"].astype(np.int64))
    begin = np.searchsorted(key, own)
    order = records["order"]
    order["own_count"] = np.searchsorted(key, own, "right") - begin
    order["own_begin"] = order["repeat_at"] = begin - splits[row]


def device_rows(graph: PackedGraph, laid: RowArrays) -> tuple[np.ndarray, np.ndarray]:
    """Records, RECORD [U], and arcs that lead to records, ARC, as in `path_arcs`."""
    own, count = laid.records[:-1], np.diff(laid.records["epsilon"])
    records = np.zeros(len(own), RECORD)
    row, states, epsilons, order, labels_of = (
        records[name] for name in RECORD.names or ()
    )
    for name in ("first", "length", "token"):
        row[name] = own[name]
    states["after_blank"] = laid.state_of_row[own["row"]]
    states["after_token"] = laid.state_of_record
    has = count > 0
    epsilons["begin"][has] = laid.epsilon_arc[own["epsilon"][has]]
    epsilons["end"] = epsilons["begin"] + count
    epsilons["rank"] = own["rank"] + np.uint32(laid.has_hubs)
    exits = np.zeros(graph.num_states, np.bool_)
    if graph.oov_exits is not None:
        exits[graph.oov_exits.state] = True
    row["hub"] = own["row"] | np.uint32(HUB)
    row["hub"] |= np.where(has & laid.has_hubs, rows.EPSILONS, np.uint32(0))
    row["hub"] |= np.where(exits[states["after_blank"]], rows.EXIT, np.uint32(0))
    skip = graph.state_num_epsilons
    _fill_states(records, (0, 0), graph.state_arc_splits, skip)
    num_arcs, num_rows = len(laid.arc), int(laid.num_rows)
    labels = laid.path_arcs["ilabel"][:num_arcs] & np.uint32(arcs.LABEL_MASK)
    of_row, first = own["row"].astype(np.int64), own["first"][:num_rows]
    splits = np.append(first, num_arcs).astype(np.int64)
    if laid.plain:
        for name in order.dtype.names or ():
            order[name] = NONE
    else:
        # Blanks come before the first arc of a higher label, if the row has one.
        _fill_order(records, of_row, labels.astype(np.int64), splits)
        before = np.cumsum(np.append(0, labels < laid.blank_label))
        order["blank_at"] = (before[splits[1:]] - before[splits[:-1]])[of_row]
        without = (states["after_blank"] == states["after_token"]) & (not laid.has_hubs)
        order["blank_at"][without] = NONE
        order["repeat_at"][row["token"] == len(laid.repeat_arc)] = NONE
        if laid.by_token:
            labels_of["tokens"], labels_of["least"] = own["labels"], own["least"]
    leads = laid.path_arcs[: len(laid.path_arcs) - len(laid.repeat_arc) - 1].copy()
    leads["nextstate"][laid.arc] = laid.arcs["next"] & ~rows.WORD
    leads["nextstate"][laid.epsilon_arc] = laid.epsilons["next"] & ~rows.WORD
    return records, leads


def overlay_rows(
    overlay: Overlay, device_graph: DeviceGraph
) -> tuple[np.ndarray, np.ndarray]:
    """Records and arcs of an overlay, as `device_rows`."""
    # A node of its trie is a record, as is each state where rows are `plain`.
    laid, none = device_graph.rows, np.uint32(0)
    own = 1 if laid.plain else 2
    num_nodes, first_record = overlay.num_states // own, len(device_graph.states)
    if first_record + num_nodes > rows.RECORDS:
        raise GraphError(
            f"added words of {num_nodes} beginnings on a graph of {first_record}, "
            f"expected at most {rows.RECORDS} together"
        )
    first_arc, splits = np.uint32(len(laid.path_arcs)), overlay.state_arc_splits
    emitting = splits[:-1] + overlay.state_num_epsilons
    label = overlay.arcs["ilabel"] & np.uint32(arcs.LABEL_MASK)
    records = np.zeros(num_nodes, RECORD)
    row, states, epsilons, order, _ = (records[name] for name in RECORD.names or ())
    number = first_record + np.arange(num_nodes, dtype=np.uint32)
    states["after_token"] = overlay.first_state + own * np.arange(num_nodes)
    states["after_blank"] = states["after_token"] + np.uint32(own - 1)
    row["hub"] = number | np.uint32(HUB)
    flags = np.full(num_nodes, rows.TOKEN_FIRST)
    if laid.plain:
        begin, row["token"] = emitting, len(laid.repeat_arc)
        epsilons["begin"], epsilons["end"] = splits[:-1] + first_arc, begin + first_arc
        for name in order.dtype.names or ():
            order[name] = NONE
        leads = overlay.state_num_epsilons > 0
        flags = rows.NO_BLANK | np.where(leads, rows.EPSILONS, none)
    else:
        # The row comes after the blank in the state after a blank; the state after the
        # token begins with its repeat and, without hubs, its blank.
        begin = splits[1:-1:2] + np.uint32(1)
        row["token"] = label[emitting[::2]] - np.uint32(ilabel_of(0))
        lengths = (splits[2::2] - begin).astype(np.int64)
        of_rows = np.append(0, np.cumsum(lengths))
        at = np.arange(of_rows[-1]) + np.repeat(begin - of_rows[:-1], lengths)
        _fill_order(records, np.arange(num_nodes), label[at].astype(np.int64), of_rows)
        order["repeat_at"] = 0
    row["first"], row["length"] = begin + first_arc, splits[own::own] - begin
    first = overlay.first_state, overlay.first_arc
    _fill_states(records, first, splits, overlay.state_num_epsilons)
    made = overlay.arcs.copy()
    made["nextstate"] = laid.return_state[label]
    node = (overlay.arcs["nextstate"].astype(np.int64) - overlay.first_state) // own
    inner = node >= 0
    made["nextstate"][inner] = number[node[inner]] | flags[node[inner]]
    return records, made


def _states_of(records: np.ndarray) -> np.ndarray:
    """States after a blank and after the token, uint32 [U, 2]."""
    states = records["states"]
    return np.stack([states["after_blank"], states["after_token"]], axis=1)


class DeviceOverlay:
    """An overlay on a device; `record`: an OVERLAY."""

    def __init__(self, device_graph: DeviceGraph, overlay: Overlay) -> None:
        records, made = overlay_rows(overlay, device_graph)
        arrays = {
            "arcs": made,
            "bonus": overlay.bonus,
            "records": records,
            "call_state": overlay.exit_state.astype(np.uint32),
        }
        self.overlay, self.states = overlay, _states_of(records)
        self._arrays = DeviceArrays(
            device_graph.device,
            arrays,
            f"added words of {len(overlay.arcs)} arcs",
            "add fewer words",
        )
        self.num_bytes = self._arrays.num_bytes
        self.record = np.zeros((), OVERLAY)
        self._arrays.fill_in(self.record)
        self.record["num_calls"] = len(overlay.exit_state)
        self.record["first_state"] = overlay.first_state
        self.record["first_record"] = len(device_graph.states)
        self.record["first_arc"] = len(device_graph.rows.path_arcs)
        self.record["first_number"] = overlay.first_arc
        self.record["num_entering"] = overlay.num_entry_arcs


class BatchOverlays:
    """Overlays of the utterances of a batch, kept on the device."""

    # `overlays`: of each utterance, or None. `records`: OVERLAY [B].
    def __init__(
        self, device_graph: DeviceGraph, boosts: Sequence[CompiledBoosts]
    ) -> None:
        self._rule, stored = device_graph.rule, device_graph.overlays
        self._states = device_graph.states
        with device_graph.device.on_stream(None):
            self._kept = [
                None if one.oov is None else stored.of(one.oov) for one in boosts
            ]
        self.overlays = [None if one is None else one.overlay for one in self._kept]
        self.records = np.zeros(len(boosts), OVERLAY)
        for name in ("first_state", "first_record", "first_arc"):
            self.records[name] = NONE
        for i, one in enumerate(self._kept):
            if one is not None:
                self.records[i] = one.record

    @property
    def any(self) -> bool:
        """Tell whether any utterance has OOV words."""
        return any(one is not None for one in self.overlays)

    def states(self, i: int, records: np.ndarray) -> np.ndarray:
        """Graph states of records after a blank and after the token, uint32 [F, 2]."""
        own, number = self._states, records & rows.RECORDS
        one = self._kept[i]
        if one is None:
            return own[number]
        beyond = number >= len(own)
        states = own[np.where(beyond, 0, number)]
        states[beyond] = one.states[number[beyond] - len(own)]
        return states

    def rule(self, i: int) -> Rule:
        """How the arcs of utterance `i` are read."""
        overlay = self.overlays[i]
        return self._rule if overlay is None else self._rule._replace(oov=overlay.arcs)

    def read(
        self, which: np.ndarray, ends: np.ndarray, nodes: np.ndarray, paths: np.ndarray
    ) -> list[Path]:
        """`read_row_paths` of the utterances `which`, each by its own rule."""
        groups: dict[int, list[int]] = {}  # utterances with the same words together
        for at, i in enumerate(which.tolist()):
            groups.setdefault(id(self.overlays[i]), []).append(at)
        found: dict[int, Path] = {}
        for group in groups.values():
            rule = self.rule(int(which[group[0]]))
            read = read_row_paths(rule, ends[group], nodes, paths[group])
            found.update(zip(group, read, strict=True))
        return [found[at] for at in range(len(which))]


class DeviceGraph:
    """A graph on a device; scratch, phrases and OOV words that batches share."""

    def __init__(self, graph: PackedGraph, device: Device, first_capacity: int) -> None:
        self.graph, self.device = graph, device
        self.scratch = ScratchPool(device, SCRATCH, first_capacity, NARROWER)
        self.phrases: WeakCache[PhraseBoosts, DevicePhrases]
        self.phrases = WeakCache(partial(DevicePhrases, device))
        self.overlays: WeakCache[OovWords, DeviceOverlay] = WeakCache(
            lambda oov: DeviceOverlay(self, make_overlay(graph, oov))
        )
        laid = row_graph_of(graph)
        self.rule = rule_of_rows(laid, graph.info.marks_repeats)
        records, leads = device_rows(graph, laid)
        self.states, none = _states_of(records), np.zeros(0)
        # What remains on the host
        self.rows = laid._replace(records=none, arcs=none, tokens=none, costs=none)
        self.rows = self.rows._replace(arc=none, epsilons=none, epsilon_arc=none)
        self._arrays = DeviceArrays(
            device,
            {"arcs": leads, "records": records, "final_cost": graph.final_cost},
            f"a graph of {len(leads)} arcs",
            "prune its language model",
        )
        self.num_bytes = self._arrays.num_bytes
        self._start = int(self.rows.start)
        if self.rows.has_hubs:
            self._start = int(records["row"]["hub"][self._start & int(rows.RECORDS)])

    def fill_in(self, task: np.ndarray) -> None:
        """Fill in the fields of a TASK that are of the graph."""
        self._arrays.fill_in(task)
        task["start"], task["plain"] = self._start, self.rows.plain
        task["has_hubs"] = self.rows.has_hubs
        task["by_token"] = self.rows.by_token and not self.rows.plain
