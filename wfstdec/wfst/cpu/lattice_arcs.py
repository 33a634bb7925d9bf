"""Arcs of a lattice from the records of a search.

    append_states_and_arcs   a state for each that is alive, and arcs between them
    _write                   labels, costs and packed number of each arc

The first pass stores only the states that an arc joins, and prefetches the second's
reads of the graph. The second handles all arcs together, so that cache misses overlap.

The packed number of an arc follows from its row: the arcs of a state of T o LG are its
epsilon arcs and then, by label, its blank, its repeat, and the arcs of the row without
its token.
"""

from typing import NamedTuple

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, LEADS_TO_EPSILON, REPEAT
from wfstdec.jit import inlined, jit
from wfstdec.jit.records import record
from wfstdec.jit.vectors import LANES, STEP, count_bits, prefetch, trailing
from wfstdec.lattice.arrays import ARC
from wfstdec.text.tokens import ilabel_of
from wfstdec.wfst.cpu.arrays import EPSILON_ARC, FROM_TOKEN
from wfstdec.wfst.cpu.boosts import bonus_at, bonus_of, may_step, step, step_oov
from wfstdec.wfst.cpu.entries import (
    NO_BOOST,
    acoustic_cost,
    epsilons_of,
    state_after_blank,
)
from wfstdec.wfst.cpu.lattice_record import (
    BEGINNING,
    DROPPED,
    FALLS,
    IN_PLACE,
    MOVE,
    REPEAT_WINS,
    TOKEN_WINS,
    forget,
)
from wfstdec.wfst.cpu.rows import ADDED, EPSILONS, NO_BLANK, RECORDS, SHARED, WORD

_BLANK, _REPEATS = IN_PLACE, uint32(IN_PLACE - uint32(1))
_AFTER_TOKEN, _NO_FLAG = SHARED, uint32(0)
"""Flag of a node's record: the state after the token. `SHARED` itself is not needed
here."""
_LABEL, _FIRST_TOKEN = uint32(LABEL_MASK), uint32(ilabel_of(0))
_CARRIES_WORD, _REPEAT = uint32(CARRIES_WORD), uint32(REPEAT)
_LEADS, _NO_LABEL = uint32(LEADS_TO_EPSILON), uint32(0)
_LANES = uint32(0xFFFF)
_ZERO, _ONE = uint64(0), uint64(1)
SIZES = record("i8 nodes arcs lines")
"""Numbers of states, arcs, and lines of `frames`."""


class RowLattice(NamedTuple):
    """States and arcs that may be part of a lattice, frame by frame."""

    # Nodes are states. A place is an entry's position times two, plus one for the state
    # after the token.

    arcs: np.ndarray  # ARC [A], between nodes
    graph_state: np.ndarray  # uint32 [N]
    record: np.ndarray  # uint32 [N], with flags; after a blank any record of the row
    boost: np.ndarray  # uint32 [N]
    number: np.ndarray  # uint32 [N]: scratch
    frames: np.ndarray  # int64 [T, 2]: nodes and arcs so far, after each frame
    progress: np.ndarray  # SIZES [1]
    here: np.ndarray  # uint32 [2 F]: the node of each place
    other: np.ndarray  # uint32 [2 F]: scratch


def new_lattice() -> RowLattice:
    """Make a lattice without capacity."""
    none = np.zeros(0, np.uint32)
    return RowLattice(
        *(np.zeros(0, ARC), none, none, none, none),
        *(np.zeros((0, 2), np.int64), np.zeros(1, SIZES), none, none),
    )


@jit
def append_states_and_arcs(search, lattice, chunk):
    """Append the states marked alive, and their arcs; drop the records."""
    # `chunk`: log-probs, float32 [T, V], the frames before them, and the frames before
    # the records. `lattice` has capacity.
    rows, state, record = search.rows, search.state, search.record
    here, other, steps = lattice.here, lattice.other, record.steps
    num_nodes, first_line = lattice.progress[0].nodes, lattice.progress[0].lines
    for s in range(record.progress[0].steps):
        here, other = other, here  # `other` has the places before this step
        kind = steps[s].kind
        if kind == MOVE:
            first = steps[s - 1].moved if s > 0 else int64(0)
            for i in range(steps[s].moved - first):
                before = int64(record.moved[first + i])
                here[2 * i], here[2 * i + 1] = other[2 * before], other[2 * before + 1]
            continue
        first = steps[s - 1].arcs if s > 0 else int64(0)
        block = uint64(steps[s - 1].blocks) if s > 0 else _ZERO
        blocks = uint64(steps[s].blocks) - block
        for b in range(blocks):
            live = uint64(record.alive[block + b])
            while live != _ZERO:
                lane = trailing(live)
                live &= live - _ONE
                i = b * STEP + (lane & (STEP - _ONE))
                here[i + i + lane // STEP] = num_nodes
                num_nodes += 1
        if kind == BEGINNING:
            n = uint64(here[0 if rows.has_hubs else 1])
            boost, own = NO_BOOST, rows.start & ~_AFTER_TOKEN
            if search.phrases is not None:
                boost = search.phrases.start
            if not rows.has_hubs:
                own |= _AFTER_TOKEN
            lattice.record[n], lattice.boost[n] = own, boost
            lattice.graph_state[n] = uint32(0)
        for b in range(blocks):
            winners = record.winners[block + b] & winners_of(record.alive[block + b])
            while winners != _ZERO:
                bit = trailing(winners)
                winners &= winners - _ONE
                i = b * STEP + (bit & (STEP - _ONE))
                # Three groups of bits: blank to blank, token to blank, token to token.
                source = i + i + uint64(bit >= uint64(TOKEN_WINS))
                to = i + i + uint64(bit >= uint64(REPEAT_WINS))
                _stay(search, lattice, other[source], here[to], to & _ONE == _ONE)
        for a in range(first, steps[s].arcs):
            one = record.arcs[a]
            if one.arc == DROPPED:
                continue
            to = here[place_of(one.to)]
            if one.arc == _BLANK:
                source = other[place_of(one.source)]
                repeats = one.to & FROM_TOKEN != _NO_FLAG
                _stay(search, lattice, source, to, repeats).excess = one.excess
            elif a < steps[s].emitted:
                source = other[place_of(one.source)]
                _take_token(search, lattice, source, to, one)
            elif one.arc == FALLS:
                source = here[place_of(one.source)]
                own = lattice.record[uint64(source)] & ~_AFTER_TOKEN
                boost = lattice.boost[uint64(source)]
                reached = state_after_blank(rows, search.oov, own)
                n = uint64(to)
                lattice.record[n], lattice.graph_state[n] = own, reached
                lattice.boost[n] = boost
                _add(lattice, source, to, one.arc).excess = one.excess
            else:
                source = here[place_of(one.source)]
                _take_epsilon(search, lattice, source, to, one)
        line = lattice.frames[lattice.progress[0].lines]
        line[0], line[1] = num_nodes, lattice.progress[0].arcs
        lattice.progress[0].lines += 1
    if record.progress[0].steps & 1:
        for i in range(2 * state.progress[0].entries):
            other[i] = here[i]  # `other` is `lattice.here`
    lattice.progress[0].nodes = num_nodes
    forget(record)
    # The start has no frame.
    first_arc = lattice.frames[first_line - 1, 1] if first_line > 0 else int64(0)
    row = chunk[2] - chunk[1] - int64(first_line == 0)
    for line in range(first_line, lattice.progress[0].lines):
        for a in range(first_arc, lattice.frames[line, 1]):
            if a + 8 < lattice.progress[0].arcs:
                ahead = uint64(lattice.arcs[a + 8].arc)
                if ahead < uint64(len(rows.arcs)):
                    prefetch(rows.path_arcs, uint64(rows.arc[ahead]))
            _write(search, lattice, lattice.arcs[a], chunk[0], row)
        first_arc, row = lattice.frames[line, 1], row + 1


@inlined
def place_of(state):
    """Return the place of a recorded state."""
    i = uint64(state & ~FROM_TOKEN)
    return i + i + uint64(state & FROM_TOKEN != _NO_FLAG)


@inlined
def winners_of(live):
    """Return bits of `LatticeRecord.winners` of live states."""
    of_blank, of_token = uint64(live & _LANES), uint64(live) >> uint64(LANES)
    both = of_blank | of_blank << uint64(TOKEN_WINS)
    return both | of_token << uint64(REPEAT_WINS)


@inlined
def _add(lattice, source, to, arc):
    """Add an arc between two nodes; `_write` completes it."""
    one = lattice.arcs[lattice.progress[0].arcs]
    lattice.progress[0].arcs += 1
    one.state, one.nextstate, one.arc = source, to, arc
    one.excess = one.boost_cost = float32(0)
    return one


@inlined
def _stay(search, lattice, source, to, repeats):
    n, m, rows = uint64(source), uint64(to), search.rows
    own, reached = lattice.record[n], lattice.graph_state[n]
    if own & _AFTER_TOKEN != _NO_FLAG and not repeats:
        own &= ~_AFTER_TOKEN
        reached = state_after_blank(rows, search.oov, own)
        prefetch(rows.state_arc_splits, uint64(reached))
    lattice.record[m], lattice.graph_state[m] = own, reached
    lattice.boost[m] = lattice.boost[n]
    return _add(lattice, source, to, _REPEATS if repeats else _BLANK)


@inlined
def _take_token(search, lattice, source, to, noted):
    rows, oov = search.rows, search.oov
    n, a = uint64(to), uint64(noted.arc)
    boost, paid = lattice.boost[uint64(source)], float32(0)
    one = _add(lattice, source, to, noted.arc)
    one.excess = noted.excess
    if oov is not None and a >= uint64(len(rows.arcs)):
        a -= uint64(len(rows.arcs))
        taken = oov.arcs[a]
        if search.phrases is not None:
            paid, boost = step_oov(search, taken, boost, oov.bonus[a])
            one.boost_cost = float32(float32(0) - paid)
        lattice.record[n] = oov.next[a] | _AFTER_TOKEN
        lattice.graph_state[n], lattice.boost[n] = taken.nextstate, boost
        return
    flagged, position = rows.arcs[a].next, rows.arc[a]
    if search.phrases is not None:
        label, has_word = uint32(rows.tokens[a]) + _FIRST_TOKEN, flagged & WORD
        if rows.plain:
            if rows.silent[a]:  # a blank or a repeat does not step phrases
                label = _NO_LABEL
        if may_step(search, boost, label, a, has_word != _NO_FLAG):
            paid, boost = step(search, boost, label, a, position, has_word != _NO_FLAG)
            one.boost_cost = float32(float32(0) - paid)
    lattice.record[n] = (flagged & ~WORD) | _AFTER_TOKEN
    lattice.boost[n] = boost
    of_graph = rows.path_arcs[uint64(position)].nextstate
    lattice.graph_state[n] = of_graph
    # Read when its own arcs are written.
    prefetch(rows.records, uint64(flagged & RECORDS))
    prefetch(rows.state_of_row, uint64(flagged & RECORDS))
    prefetch(rows.state_arc_splits, uint64(of_graph))


@inlined
def _take_epsilon(search, lattice, source, to, noted):
    """Add a recorded epsilon arc within a frame, other than to a hub."""
    rows, oov = search.rows, search.oov
    n, e = uint64(to), uint64(noted.arc & ~EPSILON_ARC)
    boost = lattice.boost[uint64(source)]
    one = _add(lattice, source, to, noted.arc)
    one.excess = noted.excess
    if oov is not None and e >= uint64(len(rows.epsilons)):  # of an overlay
        taken = e - uint64(len(rows.epsilons))
        lattice.record[n] = oov.next[taken] | _AFTER_TOKEN
        lattice.boost[n] = boost
        lattice.graph_state[n] = oov.arcs[taken].nextstate
        return
    position, place = uint64(len(rows.arcs)) + e, rows.epsilon_arc[e]
    flagged = rows.epsilons[e].next
    if search.phrases is not None:
        has_word = flagged & WORD != _NO_FLAG
        if has_word and may_step(search, boost, _NO_LABEL, position, True):
            paid, boost = step(search, boost, _NO_LABEL, position, place, has_word)
            one.boost_cost = float32(float32(0) - paid)
    own = flagged & ~WORD & ~_AFTER_TOKEN
    if not rows.has_hubs:
        own |= _AFTER_TOKEN
    lattice.record[n], lattice.boost[n] = own, boost
    lattice.graph_state[n] = rows.path_arcs[uint64(place)].nextstate


@inlined
def _write(search, lattice, one, logprobs, row):
    rows, params, words = search.rows, search.params, search.words
    oov, splits = search.oov, rows.state_arc_splits
    own = lattice.record[uint64(one.state)]
    of_graph = lattice.graph_state[uint64(one.state)]
    arc, from_token = one.arc, own & _AFTER_TOKEN != _NO_FLAG
    one.graph_cost = one.acoustic_cost = one.insertion_cost = float32(0)
    one.olabel = _NO_LABEL
    if arc == _BLANK or arc == _REPEATS:
        label, leads = rows.blank_label, own & EPSILONS != _NO_FLAG
        flags = _NO_FLAG
        if arc == _REPEATS:
            label, flags = _own_label(rows, oov, own), _REPEAT
            leads = leads or rows.has_hubs
        else:
            leads = leads and rows.has_hubs
        token = int64(label - _FIRST_TOKEN)
        one.acoustic_cost = acoustic_cost(rows, params, logprobs, row, token)
        if leads:
            flags |= _LEADS
        one.ilabel = label | flags
        one.arc = _arc_in_place(search, own, of_graph, from_token, label)
        return
    if arc == FALLS:
        one.ilabel = _LEADS if own & EPSILONS != _NO_FLAG else _NO_LABEL
        one.arc = splits[uint64(min(of_graph, uint32(len(splits) - 1)))]
        if oov is not None and own & ADDED != _NO_FLAG:
            node = uint64(own & RECORDS)
            one.arc += oov.begin[node + node]
        return
    a, paid = uint64(arc), float32(0)
    if oov is not None:
        if a >= uint64(len(rows.arcs)) and arc & EPSILON_ARC == _NO_FLAG:
            a -= uint64(len(rows.arcs))
            taken = oov.arcs[a]
            one.ilabel, one.olabel = taken.ilabel, taken.olabel
            one.graph_cost = taken.cost
            if taken.ilabel & _CARRIES_WORD:
                one.insertion_cost = params.word_insertion
            if search.phrases is None:
                paid = float32(bonus_of(params, words, taken) + oov.bonus[a])
                one.boost_cost = float32(float32(0) - paid)
            label = int64((taken.ilabel & _LABEL) - _FIRST_TOKEN)
            one.acoustic_cost = acoustic_cost(rows, params, logprobs, row, label)
            of_state = uint32(a)
            if not rows.plain:
                of_state = _arc_of_overlay(oov, own, from_token, a)
            one.arc = splits[len(splits) - 1] + of_state
            return
        e = uint64(arc & ~EPSILON_ARC)
        if arc & EPSILON_ARC != _NO_FLAG and e >= uint64(len(rows.epsilons)):
            e -= uint64(len(rows.epsilons))
            one.ilabel = oov.arcs[e].ilabel
            one.arc = splits[len(splits) - 1] + uint32(e)
            return
    position = a
    if arc & EPSILON_ARC != _NO_FLAG:
        e = uint64(arc & ~EPSILON_ARC)
        position = uint64(len(rows.arcs)) + e
        place = rows.epsilon_arc[e]
        first = rows.epsilon_arc[uint64(rows.records[uint64(own & RECORDS)].epsilon)]
        one.arc = splits[uint64(of_graph)] + (place - first)
    else:
        place = rows.arc[a]
    taken = rows.path_arcs[uint64(place)]
    one.ilabel, one.olabel, one.graph_cost = taken.ilabel, taken.olabel, taken.cost
    if taken.ilabel & _CARRIES_WORD:
        one.insertion_cost = params.word_insertion
        if search.phrases is None and params.has_words:
            paid = bonus_at(rows, words, position, place)
            one.boost_cost = float32(float32(0) - paid)
    if arc & EPSILON_ARC == _NO_FLAG:
        label = taken.ilabel & _LABEL
        token = int64(label - _FIRST_TOKEN)
        one.acoustic_cost = acoustic_cost(rows, params, logprobs, row, token)
        # Arcs with the same token keep the order of the row.
        row_of_it = rows.records[uint64(own & RECORDS)]
        among = place - uint32(row_of_it.first) - _num_below(rows, row_of_it, label)
        before = _rank_of_label(rows, oov, own, from_token, label)
        one.arc = splits[uint64(of_graph)] + before + among


@inlined
def _own_label(rows, oov, record):
    if oov is not None and record & ADDED != _NO_FLAG:
        return oov.token[uint64(record & RECORDS)] + _FIRST_TOKEN
    token = uint32(rows.records[uint64(record & RECORDS)].token)
    return token + _FIRST_TOKEN if token < uint32(len(rows.repeat_arc)) else _NO_LABEL


@inlined
def _num_below(rows, one, label):
    if rows.by_token:
        below_it = (_ONE << uint64(label - _FIRST_TOKEN)) - _ONE
        return uint32(count_bits(one.labels & below_it))
    low, high = uint32(one.first), uint32(one.first) + uint32(one.length)
    while low < high:
        middle = (low + high) >> uint32(1)
        if rows.path_arcs[uint64(middle)].ilabel & _LABEL < label:
            low = middle + uint32(1)
        else:
            high = middle
    return low - uint32(one.first)


@inlined
def _rank_of_label(rows, oov, record, from_token, label):
    """Return the number of a state's arcs before those of a label."""
    # Order: its epsilon arcs, its blank, its repeat, its row's arcs without its token.
    one, place = rows.records[uint64(record & RECORDS)], uint32(0)
    own = _own_label(rows, oov, record) if from_token else _NO_LABEL
    if rows.has_hubs and from_token:
        return uint32(1) + uint32(own < label and own != _NO_LABEL)
    if from_token or rows.has_hubs:
        first, last = epsilons_of(rows, None, record)
        place = uint32(last - first)
    if rows.blank_label < label and record & NO_BLANK == _NO_FLAG:
        place += uint32(1)
    place += _num_below(rows, one, label)
    if own != _NO_LABEL and own < label:
        behind = own + uint32(1)
        place += uint32(1)
        place -= _num_below(rows, one, behind) - _num_below(rows, one, own)
    return place


@inlined
def _arc_in_place(search, record, of_graph, from_token, label):
    rows, oov, splits = search.rows, search.oov, search.rows.state_arc_splits
    if oov is not None and record & ADDED != _NO_FLAG:
        node = uint64(record & RECORDS)
        at = oov.begin[node + node + uint64(not from_token)]
        while oov.arcs[uint64(at)].ilabel & _LABEL != label:
            at += uint32(1)
        return splits[len(splits) - 1] + at
    place = _rank_of_label(rows, oov, record, from_token, label)
    return splits[uint64(of_graph)] + place


@inlined
def _arc_of_overlay(oov, record, from_token, a):
    """Return the arc of an overlay state like arc `a` of the state after a blank."""
    # Arcs that enter the overlay keep their recorded number.
    if record & ADDED == _NO_FLAG or not from_token:
        return uint32(a)
    # After a token, arcs with the same token are omitted.
    node = uint64(record & RECORDS)
    label = oov.token[node] + _FIRST_TOKEN
    at = uint32(oov.begin[node + node]) + uint32(2)
    for before in range(uint64(oov.begin[node + node + _ONE]) + _ONE, a):
        at += uint32(oov.arcs[before].ilabel & _LABEL != label)
    return at
