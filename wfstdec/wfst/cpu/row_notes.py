"""Noting for lattices what a search on rows does, frame by frame; `lattice_pack.py`.

    note_staying   of each entry, what going on by a blank or a repeat costs it
    note_epsilon   of each epsilon arc that is followed
    note_step      once epsilon arcs are done, when it is known which arc won a state:
                   the arcs whose excess is within the lattice's beam
    note_moves     where entries stood before the dead were left out

Most arcs of a lattice are blanks and repeats that won: they are bits of an entry, three
for each frame, written sixteen entries at a time. All others are notes of their own: an
arc that lost, or a token or epsilon arc. `row_lattices.py` reads both backwards.

Positions of entries stand for states: with a flag for the state after the token,
without one for that after a blank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.jit import inlined, part
from wfstdec.jit.vectors import (
    LANES,
    STEP,
    at_most,
    below,
    equal,
    load,
    select,
    splat,
    store,
    subtract,
    trailing,
)
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.row_entries import first_of
from wfstdec.wfst.cpu.rows import SHARED

NOTE = np.dtype([("source", "<u4"), ("to", "<u4"), ("arc", "<u4"), ("excess", "<f4")])
"""An arc: the states that it leads from and to; a token arc of `RowArrays`, an epsilon
arc with a flag, or one of those below; its excess, in `epsilons` its cost."""
IN_PLACE, FALLS, DROPPED = 0xFFFFFFFD, 0xFFFFFFFE, k.NONE
"""In the place of an arc: a blank or a repeat; from a token to the hub behind it; one
that is no part of the lattice."""
TOKEN_WINS, REPEAT_WINS = 16, 32
"""Bits of `winners` from here on: the blank behind a token; a repeat. Those below are
of a blank behind a blank."""
(KIND, ARCS, EMITTED, BLOCKS, MOVED, LAST) = range(6)
"""Columns of `steps`: what a step is; behind its last note; behind its last note of an
emitting arc; behind its last block; behind its last entry of `moved`; how many entries
there were."""
(STEPS, EPSILONS, STAYED, MADE) = range(6, 10)
"""Further positions in `counts`, whose first ones are those of `steps`: steps; epsilon
arcs of this frame; entries that went on in place; candidates."""
FRAME, BEGINNING, MOVE = range(3)
"""Kinds of steps: a frame; what there is before the first; entries were left out."""
_FROM_TOKEN, _SHARED, _NO_FLAG = uint32(k.FROM_TOKEN), uint32(SHARED), uint32(0)
_EPSILON_ARC, _IN_PLACE, _FALLS = uint32(k.EPSILON_ARC), uint32(IN_PLACE), uint32(FALLS)
_INF = float32(np.inf)
_ZERO, _ONE = uint64(0), uint64(1)


class RowNotes(NamedTuple):
    """Notes of the frames since they were last read, and scratch of a frame."""

    arcs: np.ndarray  # NOTE [M]
    winners: np.ndarray  # uint64 [B]: bits of sixteen entries
    alive: np.ndarray  # uint32 [B]: states of the lattice; see `row_lattices.py`
    moved: np.ndarray  # uint32 [P]: where the entries that were left stood before
    steps: np.ndarray  # int64 [S, 6]
    epsilons: np.ndarray  # NOTE [E]: those of this frame
    of_blank: np.ndarray  # float32 [F]: the cost of a blank behind a blank, or `inf`
    of_token: np.ndarray  # float32 [F]: that of a blank behind the token
    again: np.ndarray  # float32 [F]: that of a repeat
    others: np.ndarray  # float32 [C]: of a candidate, from the entry's other state
    found: np.ndarray  # uint32 [C]: the entry that it leads to
    counts: np.ndarray  # int64 [10]
    limit: np.ndarray  # float32 [1]: the most excess


def new_notes(arcs: int) -> RowNotes:
    """Make room for so many arcs; `fitted` makes that for entries."""
    none = np.zeros(0, np.float32)
    return RowNotes(
        arcs=np.zeros(arcs, NOTE),
        winners=np.zeros(0, np.uint64),
        alive=np.zeros(0, np.uint32),
        moved=np.zeros(0, np.uint32),
        steps=np.zeros((0, 6), np.int64),
        epsilons=np.zeros(arcs, NOTE),
        of_blank=none,
        of_token=none,
        again=none,
        others=none,
        found=np.zeros(0, np.uint32),
        counts=np.zeros(10, np.int64),
        limit=np.zeros(1, np.float32),
    )


OF_ENTRIES, OF_CANDIDATES = ("of_blank", "of_token", "again"), ("others", "found")
"""Arrays as long as a state's entries, and as scratch for candidates."""


def fitted(
    notes: RowNotes, scratch: k.RowScratch, state: k.RowState, frames: int
) -> RowNotes:
    """Make room where there is none: entries, candidates, and steps of some frames."""
    # Within a frame they have something already.
    larger = {
        name: longer(getattr(notes, name), len(like))
        for names, like in (
            (OF_ENTRIES, state.record),
            (OF_CANDIDATES, scratch.candidates),
        )
        for name in names
        if len(getattr(notes, name)) < len(like)
    }
    counts, entries = notes.counts, len(state.record)
    sizes = {
        "steps": int(counts[STEPS]) + 2 * frames + 3,
        "moved": int(counts[MOVED]) + 2 * entries,
        "winners": int(counts[BLOCKS]) + 2 * (entries // LANES + 1),
    }
    sizes["alive"] = sizes["winners"]
    for name, size in sizes.items():
        array = getattr(notes, name)
        if len(array) < size:
            larger[name] = longer(array, 2 * size)
    return notes._replace(**larger) if larger else notes


def twice(notes: RowNotes) -> RowNotes:
    """Make twice the room for arcs."""
    larger = {name: getattr(notes, name) for name in ("arcs", "epsilons")}
    return notes._replace(
        **{name: longer(array, 2 * len(array)) for name, array in larger.items()}
    )


def longer(array: np.ndarray, size: int) -> np.ndarray:
    """A copy with room for more rows."""
    copy = np.zeros((size, *array.shape[1:]), array.dtype)
    copy[: len(array)] = array
    return copy


@inlined
def note_staying(record, i, no_blank, after_blank, after_token, cutoffs):
    """Note what blanks cost the sixteen entries from `i` on; repeats are yet to come.

    `no_blank`: bits of those that none may follow.
    """
    inf = splat(_INF)
    store(
        record.of_blank,
        i,
        select(at_most(after_blank, cutoffs) & ~no_blank, after_blank, inf),
    )
    store(
        record.of_token,
        i,
        select(at_most(after_token, cutoffs) & ~no_blank, after_token, inf),
    )
    store(record.again, i, inf)


@inlined
def start_frame(record, stayed):
    """Forget the epsilon arcs of the frame before; so many entries go on in place."""
    if record is not None:
        record.counts[STAYED], record.counts[MADE] = int64(stayed), 0
        record.counts[EPSILONS] = 0


@inlined
def has_room_for_epsilons(record, many):
    """Tell whether so many epsilon arcs can be noted."""
    if record is None:
        return True
    else:
        return uint64(record.counts[EPSILONS]) + many <= uint64(len(record.epsilons))


@inlined
def note_epsilon(record, source, to, arc, cost):
    """Note an epsilon arc between two entries, with what its candidate costs."""
    one = record.epsilons[record.counts[EPSILONS]]
    one.source, one.to, one.arc, one.excess = uint32(source), uint32(to), arc, cost
    record.counts[EPSILONS] += 1


@inlined
def _note(record, at, source, to, arc, excess):
    """Write note number `at`, if there is room; the next number."""
    if at < uint64(len(record.arcs)):
        one = record.arcs[at]
        one.source, one.to, one.arc, one.excess = source, to, arc, excess
    return at + _ONE


@inlined
def _note_lanes(record, at, i, bits, costs, state, from_token, to_token):
    """Write notes of arcs in place that lost, of some of sixteen entries."""
    some, to = uint64(bits), _FROM_TOKEN if to_token else _NO_FLAG
    while some != _ZERO:
        j = i + trailing(some)
        some &= some - _ONE
        reached = state.token[j] if to_token else state.blank[j]
        excess, lane = float32(costs[j] - reached), uint32(j)
        at = _note(record, at, lane | from_token, lane | to, _IN_PLACE, excess)
    return at


@part
def note_step(rows, phrases, added, scratch, state, record):
    """Note the arcs of a frame, whose entries have the costs that they end it with.

    Nothing but the notes is changed, so that it may be done again.

    Returns:
        OK, or that notes must grow.
    """
    counts, hubs = record.counts, rows.through_epsilon
    n, stayed = uint64(state.counts[k.ENTRIES]), uint64(counts[STAYED])
    blocks = (n + STEP - _ONE) // STEP
    block = uint64(counts[BLOCKS])
    if block + blocks > uint64(len(record.winners)):
        return k.GROW_NOTES
    if uint64(counts[MOVED]) + n > uint64(len(record.moved)):
        return k.GROW_NOTES
    at, inf = uint64(counts[ARCS]), splat(_INF)
    limit = record.limit[0]
    limits = splat(limit)
    i = _ZERO
    while i < n:
        winners = _ZERO
        if i < stayed:
            blank, token = load(state.blank, i), load(state.token, i)
            of_blank, of_token = load(record.of_blank, i), load(record.of_token, i)
            # Costs that tie have no excess, both of them.
            alive = below(blank, inf)
            wins = equal(of_blank, blank) & alive
            token_wins = equal(of_token, blank) & alive
            winners = uint64(wins) | uint64(token_wins) << uint64(TOKEN_WINS)
            near = at_most(subtract(of_blank, blank), limits) & below(of_blank, inf)
            near &= alive & ~wins
            at = _note_lanes(
                record, at, i, near, record.of_blank, state, _NO_FLAG, False
            )
            comes = below(of_token, inf)
            near = at_most(subtract(of_token, blank), limits) & comes & alive
            near &= ~token_wins
            at = _note_lanes(
                record, at, i, near, record.of_token, state, _FROM_TOKEN, False
            )
            # Of records that share a row, the first one's entry has the blank.
            away = uint64(comes & ~alive)
            while away != _ZERO:
                j = i + trailing(away)
                away &= away - _ONE
                first = first_of(rows, phrases, added, scratch, state, j)
                excess = float32(record.of_token[j] - state.blank[first])
                if excess <= limit:
                    at = _note(
                        *(record, at, uint32(j) | _FROM_TOKEN, uint32(first)),
                        *(_IN_PLACE, excess),
                    )
            again = load(record.again, i)
            comes = below(again, inf)
            wins = equal(again, token) & comes
            winners |= uint64(wins) << uint64(REPEAT_WINS)
            near = at_most(subtract(again, token), limits) & comes & ~wins
            at = _note_lanes(
                record, at, i, near, record.again, state, _FROM_TOKEN, True
            )
        record.winners[block] = winners
        block += _ONE
        i += STEP
    cutoff = state.costs[k.CUTOFF]
    for q in range(uint64(counts[MADE])):
        candidate = scratch.candidates[q]
        if not candidate.cost <= cutoff:
            continue
        to = record.found[q]
        reached = state.token[uint64(to)]
        excess = float32(candidate.cost - reached)
        to |= _FROM_TOKEN
        if excess <= limit:
            at = _note(record, at, candidate.source, to, candidate.arc, excess)
            if record.others[q] <= cutoff:
                excess = float32(record.others[q] - reached)
                if excess <= limit:
                    source = candidate.source ^ _FROM_TOKEN
                    at = _note(record, at, source, to, candidate.arc, excess)
    emitted, side = at, _FROM_TOKEN
    if hubs:
        side = _NO_FLAG
        for j in range(n):
            if not state.token[j] < _INF:
                continue
            first = uint64(j)
            if state.record[j] & _SHARED != _NO_FLAG:
                first = first_of(rows, phrases, added, scratch, state, first)
            excess = float32(state.token[j] - state.blank[first])
            if excess <= limit:
                at = _note(
                    record, at, uint32(j) | _FROM_TOKEN, uint32(first), _FALLS, excess
                )
    for q in range(uint64(counts[EPSILONS])):
        one = record.epsilons[q]
        reached = state.token[uint64(one.to)]
        if hubs:
            reached = state.blank[uint64(one.to)]
        excess = float32(one.excess - reached)
        if excess <= limit:
            at = _note(record, at, one.source | side, one.to | side, one.arc, excess)
    if at > uint64(len(record.arcs)):
        return k.GROW_NOTES
    counts[ARCS], counts[EMITTED], counts[BLOCKS] = at, emitted, block
    counts[KIND] = FRAME if state.counts[k.PASSES] == 1 else BEGINNING
    _end_step(record, n)
    return k.OK


@inlined
def note_moves(record, state, n):
    """Note which of `n` entries are alive, before the others are left out."""
    if record is not None:
        counts, kept = record.counts, uint64(record.counts[MOVED])
        for i in range(n):
            record.moved[kept] = uint32(i)
            kept += uint64(state.blank[i] < _INF or state.token[i] < _INF)
        if kept < uint64(counts[MOVED]) + n:
            counts[MOVED], counts[KIND], counts[EMITTED] = kept, MOVE, counts[ARCS]
            _end_step(record, n)


@inlined
def _end_step(record, n):
    """Write down where a step ends."""
    counts = record.counts
    counts[LAST] = int64(n)
    row = record.steps[counts[STEPS]]
    for column in range(LAST + 1):
        row[column] = counts[column]
    counts[STEPS] += 1
