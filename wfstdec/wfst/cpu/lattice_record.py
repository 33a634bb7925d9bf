"""Records of the arcs that a lattice may need, frame by frame.

    record_epsilon     each epsilon arc that is followed
    record_frame       when the frame is closed and the best arc of each state is known:
                       the arcs whose excess is within the lattice's beam
    record_compaction  old position of each entry when dead entries are removed

`lattice_pack.py` has the rule. Most arcs of a lattice are blanks and repeats that are
the best arc of their state: they are three bits per entry and frame, written sixteen
entries at a time. All others have records: token and epsilon arcs, and arcs that are
not the best of their state. `lattice_build.py` reads both backwards.

An entry's position denotes a state: with a flag the one after the token, without it the
one after a blank.
"""

from typing import NamedTuple

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.jit import inlined, part
from wfstdec.jit.records import longer, record
from wfstdec.jit.vectors import (
    LANES,
    STEP,
    at_most,
    below,
    equal,
    load,
    splat,
    subtract,
    trailing,
)
from wfstdec.wfst.cpu.arrays import (
    FROM_TOKEN,
    GROW_NOTES,
    NONE,
    OK,
    RowScratch,
    RowState,
)
from wfstdec.wfst.cpu.entries import first_of
from wfstdec.wfst.cpu.rows import SHARED

NOTE = record("u4 source to arc", "f4 excess")
"""Recorded arc: source and destination state; a token arc of `RowArrays`, an epsilon
arc with a flag, or one of the values below; its excess (in `epsilons` its cost)."""
IN_PLACE, FALLS, DROPPED = uint32(0xFFFFFFFD), uint32(0xFFFFFFFE), NONE
"""In place of an arc: a blank or repeat; from a token to its hub; dropped."""
TOKEN_WINS, REPEAT_WINS = 16, 32
"""First bit of `winners` for the blank after a token, and for a repeat; lower bits are
for the blank after a blank."""
FRAME_END = "i8 kind arcs emitted blocks moved entries"
"""End of a step: its kind; end of its arcs, its emitting arcs, its blocks, its part of
`moved`; number of entries."""
STEP_END = record(FRAME_END)
PROGRESS = record(FRAME_END, "i8 steps epsilons stayed made", "f4 limit")
"""Current step; number of steps, of epsilon arcs of this frame, of entries that
advanced in place, of candidates; the largest excess."""
FRAME, BEGINNING, MOVE = range(3)
"""Kinds of steps: a frame; the start, before the first frame; a compaction."""
_NO_FLAG = uint32(0)
_INF = float32(np.inf)
_ZERO, _ONE = uint64(0), uint64(1)


class LatticeRecord(NamedTuple):
    """Records of the frames since the last read, and scratch of a frame."""

    arcs: np.ndarray  # NOTE [M]
    winners: np.ndarray  # uint64 [B]: bits of sixteen entries each
    alive: np.ndarray  # uint32 [B]: states of the lattice, set by `lattice_build.py`
    moved: np.ndarray  # uint32 [P]: old position of each entry after a compaction
    steps: np.ndarray  # STEP_END [S]
    epsilons: np.ndarray  # NOTE [E]: those of this frame
    of_blank: np.ndarray  # float32 [F]: cost of a blank after a blank, or infinity
    of_token: np.ndarray  # float32 [F]: cost of a blank after the token
    again: np.ndarray  # float32 [F]: cost of a repeat
    others: np.ndarray  # float32 [C]: candidate costs from the source's other state
    found: np.ndarray  # uint32 [C]: destination entry of a candidate
    progress: np.ndarray  # PROGRESS [1]


def new_notes(arcs: int) -> LatticeRecord:
    """Allocate records of `arcs` arcs; `fitted` allocates what depends on entries."""
    none = np.zeros(0, np.float32)
    return LatticeRecord(
        arcs=np.zeros(arcs, NOTE),
        winners=np.zeros(0, np.uint64),
        alive=np.zeros(0, np.uint32),
        moved=np.zeros(0, np.uint32),
        steps=np.zeros(0, STEP_END),
        epsilons=np.zeros(arcs, NOTE),
        of_blank=none,
        of_token=none,
        again=none,
        others=none,
        found=np.zeros(0, np.uint32),
        progress=np.zeros(1, PROGRESS),
    )


OF_ENTRIES, OF_CANDIDATES = ("of_blank", "of_token", "again"), ("others", "found")
"""Fields with one element per entry, and per candidate."""


def fitted(
    notes: LatticeRecord, scratch: RowScratch, state: RowState, frames: int
) -> LatticeRecord:
    """Enlarge arrays for entries, candidates and frames; the content is copied."""
    larger = {
        name: longer(getattr(notes, name), len(like))
        for names, like in (
            (OF_ENTRIES, state.record),
            (OF_CANDIDATES, scratch.candidates),
        )
        for name in names
        if len(getattr(notes, name)) < len(like)
    }
    [progress], entries = notes.progress, len(state.record)
    sizes = {
        "steps": int(progress["steps"]) + 2 * frames + 3,
        "moved": int(progress["moved"]) + 2 * entries,
        "winners": int(progress["blocks"]) + 2 * (entries // LANES + 1),
    }
    sizes["alive"] = sizes["winners"]
    for name, size in sizes.items():
        array = getattr(notes, name)
        if len(array) < size:
            larger[name] = longer(array, 2 * size)
    return notes._replace(**larger) if larger else notes


def twice(notes: LatticeRecord) -> LatticeRecord:
    """Double the room for arcs."""
    larger = {name: getattr(notes, name) for name in ("arcs", "epsilons")}
    return notes._replace(
        **{name: longer(array, 2 * len(array)) for name, array in larger.items()}
    )


@inlined
def start_frame(record, stayed):
    """Begin a frame in which `stayed` entries advance in place."""
    if record is not None:
        record.progress[0].stayed, record.progress[0].made = int64(stayed), 0
        record.progress[0].epsilons = 0


@inlined
def has_room_for_epsilons(record, many):
    """Return whether `many` epsilon arcs can be recorded."""
    if record is None:
        return True
    else:
        return uint64(record.progress[0].epsilons) + many <= uint64(
            len(record.epsilons)
        )


@inlined
def record_epsilon(record, source, to, arc, cost):
    """Record an epsilon arc between two entries, with the cost at its destination."""
    one = record.epsilons[record.progress[0].epsilons]
    one.source, one.to, one.arc, one.excess = uint32(source), uint32(to), arc, cost
    record.progress[0].epsilons += 1


@inlined
def _write(record, at, source, to, arc, excess):
    """Write record `at` if there is capacity; return the next number."""
    if at < uint64(len(record.arcs)):
        one = record.arcs[at]
        one.source, one.to, one.arc, one.excess = source, to, arc, excess
    return at + _ONE


@inlined
def _write_lanes(record, at, i, bits, costs, state, from_token, to_token):
    """Write non-best blanks or repeats of sixteen entries."""
    some, to = uint64(bits), FROM_TOKEN if to_token else _NO_FLAG
    while some != _ZERO:
        j = i + trailing(some)
        some &= some - _ONE
        reached = state.token[j] if to_token else state.blank[j]
        excess, lane = float32(costs[j] - reached), uint32(j)
        at = _write(record, at, lane | from_token, lane | to, IN_PLACE, excess)
    return at


@part
def record_frame(search):
    """Record the arcs of a closed frame; return OK or GROW_NOTES."""
    # Only the records change, so that the call can be repeated.
    rows, scratch, state = search.rows, search.scratch, search.state
    record, hubs = search.record, rows.has_hubs
    progress = record.progress[0]
    n, stayed = uint64(state.progress[0].entries), uint64(progress.stayed)
    blocks = (n + STEP - _ONE) // STEP
    block = uint64(progress.blocks)
    if block + blocks > uint64(len(record.winners)):
        return GROW_NOTES
    if uint64(progress.moved) + n > uint64(len(record.moved)):
        return GROW_NOTES
    at, inf = uint64(progress.arcs), splat(_INF)
    limit = progress.limit
    limits = splat(limit)
    i = _ZERO
    while i < n:
        winners = _ZERO
        if i < stayed:
            blank, token = load(state.blank, i), load(state.token, i)
            of_blank, of_token = load(record.of_blank, i), load(record.of_token, i)
            # Arcs of equal cost both have no excess.
            alive = below(blank, inf)
            wins = equal(of_blank, blank) & alive
            token_wins = equal(of_token, blank) & alive
            winners = uint64(wins) | uint64(token_wins) << uint64(TOKEN_WINS)
            near = at_most(subtract(of_blank, blank), limits) & below(of_blank, inf)
            near &= alive & ~wins
            at = _write_lanes(
                record, at, i, near, record.of_blank, state, _NO_FLAG, False
            )
            comes = below(of_token, inf)
            near = at_most(subtract(of_token, blank), limits) & comes & alive
            near &= ~token_wins
            at = _write_lanes(
                record, at, i, near, record.of_token, state, FROM_TOKEN, False
            )
            # In a shared row, the first entry has the cost after a blank.
            away = uint64(comes & ~alive)
            while away != _ZERO:
                j = i + trailing(away)
                away &= away - _ONE
                first = first_of(search, j)
                excess = float32(record.of_token[j] - state.blank[first])
                if excess <= limit:
                    at = _write(
                        *(record, at, uint32(j) | FROM_TOKEN, uint32(first)),
                        *(IN_PLACE, excess),
                    )
            again = load(record.again, i)
            comes = below(again, inf)
            wins = equal(again, token) & comes
            winners |= uint64(wins) << uint64(REPEAT_WINS)
            near = at_most(subtract(again, token), limits) & comes & ~wins
            at = _write_lanes(
                record, at, i, near, record.again, state, FROM_TOKEN, True
            )
        record.winners[block] = winners
        block += _ONE
        i += STEP
    cutoff = state.progress[0].cutoff
    for q in range(uint64(progress.made)):
        candidate = scratch.candidates[q]
        if not candidate.cost <= cutoff:
            continue
        to = record.found[q]
        reached = state.token[uint64(to)]
        excess = float32(candidate.cost - reached)
        to |= FROM_TOKEN
        if excess <= limit:
            at = _write(record, at, candidate.source, to, candidate.arc, excess)
            if record.others[q] <= cutoff:
                excess = float32(record.others[q] - reached)
                if excess <= limit:
                    source = candidate.source ^ FROM_TOKEN
                    at = _write(record, at, source, to, candidate.arc, excess)
    emitted, side = at, FROM_TOKEN
    if hubs:
        side = _NO_FLAG
        for j in range(n):
            if not state.token[j] < _INF:
                continue
            first = uint64(j)
            if state.record[j] & SHARED != _NO_FLAG:
                first = first_of(search, first)
            excess = float32(state.token[j] - state.blank[first])
            if excess <= limit:
                at = _write(
                    record, at, uint32(j) | FROM_TOKEN, uint32(first), FALLS, excess
                )
    for q in range(uint64(progress.epsilons)):
        one = record.epsilons[q]
        reached = state.token[uint64(one.to)]
        if hubs:
            reached = state.blank[uint64(one.to)]
        excess = float32(one.excess - reached)
        if excess <= limit:
            at = _write(record, at, one.source | side, one.to | side, one.arc, excess)
    if at > uint64(len(record.arcs)):
        return GROW_NOTES
    progress.arcs, progress.emitted, progress.blocks = at, emitted, block
    progress.kind = FRAME if state.progress[0].passes == 1 else BEGINNING
    _end_step(record, n)
    return OK


@inlined
def record_compaction(record, state, n):
    """Record the old positions of live entries, before the others are removed."""
    if record is not None:
        progress = record.progress[0]
        kept = uint64(progress.moved)
        for i in range(n):
            record.moved[kept] = uint32(i)
            kept += uint64(state.blank[i] < _INF or state.token[i] < _INF)
        if kept < uint64(progress.moved) + n:
            progress.moved, progress.kind, progress.emitted = kept, MOVE, progress.arcs
            _end_step(record, n)


@inlined
def _end_step(record, n):
    progress = record.progress[0]
    progress.entries = int64(n)
    row = record.steps[progress.steps]
    row.kind, row.arcs, row.emitted = progress.kind, progress.arcs, progress.emitted
    row.blocks, row.moved, row.entries = (
        progress.blocks,
        progress.moved,
        progress.entries,
    )
    progress.steps += 1


@inlined
def forget(record):
    """Drop all records."""
    progress = record.progress[0]
    progress.kind = progress.arcs = progress.emitted = progress.blocks = 0
    progress.moved = progress.entries = progress.steps = progress.epsilons = 0
    progress.stayed = progress.made = 0
