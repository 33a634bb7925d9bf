"""Arcs of a lattice from the notes of a search on rows: labels, costs, packed numbers.

    unroll      a state of the lattice for each that is alive, and arcs between them
    _write      what is on each of these arcs, once all states are known

First only what leads where is told; what is read of the graph meanwhile is asked for
early. Labels and costs follow for all arcs together, so that cache misses overlap.

The packed number of an arc is told from its row: the arcs of a state of T o LG are its
epsilon arcs, and by label its blank, its repeat, and the row's arcs without its token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int64, uint32, uint64

from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, LEADS_TO_EPSILON, REPEAT
from wfstdec.jit import inlined, jit
from wfstdec.jit.intrinsics import count_bits, prefetch
from wfstdec.jit.vectors import LANES, STEP, trailing
from wfstdec.lattice.arrays import ARC
from wfstdec.search.acoustics import penalised
from wfstdec.text.symbols import ilabel_of
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu import row_notes as notes
from wfstdec.wfst.cpu.arc_costs import bonus_of, step_credited
from wfstdec.wfst.cpu.row_boosts import bonus_at, may_step, step
from wfstdec.wfst.cpu.row_entries import (
    NO_BOOST,
    state_after_blank,
)
from wfstdec.wfst.cpu.rows import ADDED, EPSILONS, NO_BLANK, RECORDS, SHARED, WORD

_FROM_TOKEN, _EPSILON_ARC = uint32(k.FROM_TOKEN), uint32(k.EPSILON_ARC)
_BLANK, _FALLS = uint32(notes.IN_PLACE), uint32(notes.FALLS)
_REPEATS, _DROPPED = uint32(notes.IN_PLACE - 1), uint32(notes.DROPPED)
_RECORDS, _WORD, _NO_BLANK = uint32(RECORDS), uint32(WORD), uint32(NO_BLANK)
_ADDED, _EPSILONS, _NO_FLAG = uint32(ADDED), uint32(EPSILONS), uint32(0)
_AFTER_TOKEN = uint32(SHARED)
"""Flag of the record of a node: it is the state after the token. What the flag says of
records is not asked here."""
_LABEL, _FIRST_TOKEN = uint32(LABEL_MASK), uint32(ilabel_of(0))
_CARRIES_WORD, _REPEAT = uint32(CARRIES_WORD), uint32(REPEAT)
_LEADS, _NO_LABEL = uint32(LEADS_TO_EPSILON), uint32(0)
_LANES = uint32(0xFFFF)
_ZERO, _ONE = uint64(0), uint64(1)
NODES, ARCS, LINES = range(3)
"""Positions in `RowLattice.counts`: states, arcs, and lines of `frames`."""


class RowLattice(NamedTuple):
    """States and arcs that may be part of a lattice, a frame after the other.

    States are nodes, by number. Places are of entries, two for each: that after a
    blank, that after the token.
    """

    arcs: np.ndarray  # ARC [A], between nodes
    graph_state: np.ndarray  # uint32 [N]
    record: np.ndarray  # uint32 [N], with flags; after a blank any of the row
    boost: np.ndarray  # uint32 [N]
    extra: np.ndarray  # float32 [N]: scratch
    number: np.ndarray  # uint32 [N], the same
    frames: np.ndarray  # int64 [T, 2]: nodes and arcs so far, behind each frame
    counts: np.ndarray  # int64 [3]
    here: np.ndarray  # uint32 [2 F]: the node of each place
    other: np.ndarray  # uint32 [2 F]: scratch


def new_lattice() -> RowLattice:
    """Make a lattice without room."""
    none = np.zeros(0, np.uint32)
    return RowLattice(
        *(np.zeros(0, ARC), none, none, none, np.zeros(0, np.float32), none),
        *(np.zeros((0, 2), np.int64), np.zeros(3, np.int64), none, none),
    )


@jit
def unroll(
    rows, params, words, phrases, added, splits, state, record, said, lattice, frame
):
    """Append the states that are marked alive, and their arcs; forget the notes.

    Args:
        rows: The graph; this and what follows as everywhere.
        params: Options.
        words: Boosted words.
        phrases: `RowPhrases`, or None.
        added: A `RowOverlay`, or None.
        splits: uint32 [S + 1], the first arc of each state of the packed graph.
        state: Of the utterance.
        record: `RowNotes`.
        said: Log-probs, float32 [T, V], and the frames before them.
        lattice: A `RowLattice`, with room.
        frame: Frames before the notes.
    """
    here, other, steps = lattice.here, lattice.other, record.steps
    num_nodes, first_line = lattice.counts[NODES], lattice.counts[LINES]
    for s in range(record.counts[notes.STEPS]):
        here, other = other, here  # `other` has the places before this step
        kind = steps[s, notes.KIND]
        if kind == notes.MOVE:
            first = steps[s - 1, notes.MOVED] if s > 0 else int64(0)
            for i in range(steps[s, notes.MOVED] - first):
                before = int64(record.moved[first + i])
                here[2 * i], here[2 * i + 1] = other[2 * before], other[2 * before + 1]
            continue
        first = steps[s - 1, notes.ARCS] if s > 0 else int64(0)
        block = uint64(steps[s - 1, notes.BLOCKS]) if s > 0 else _ZERO
        blocks = uint64(steps[s, notes.BLOCKS]) - block
        for b in range(blocks):
            live = uint64(record.alive[block + b])
            while live != _ZERO:
                lane = trailing(live)
                live &= live - _ONE
                i = b * STEP + (lane & (STEP - _ONE))
                here[i + i + lane // STEP] = num_nodes
                num_nodes += 1
        if kind == notes.BEGINNING:
            n = uint64(here[0 if rows.through_epsilon else 1])
            boost, own = NO_BOOST, rows.start & ~_AFTER_TOKEN
            if phrases is not None:
                boost = phrases.start
            if not rows.through_epsilon:
                own |= _AFTER_TOKEN
            lattice.record[n], lattice.boost[n] = own, boost
            lattice.graph_state[n] = uint32(0)
        for b in range(blocks):
            winners = record.winners[block + b] & winners_of(record.alive[block + b])
            while winners != _ZERO:
                bit = trailing(winners)
                winners &= winners - _ONE
                i = b * STEP + (bit & (STEP - _ONE))
                # Bits are of three kinds: from blank to blank, from token to blank,
                # from token to token.
                source = i + i + uint64(bit >= uint64(notes.TOKEN_WINS))
                to = i + i + uint64(bit >= uint64(notes.REPEAT_WINS))
                _stay(
                    *(rows, added, splits, lattice, other[source], here[to]),
                    *(to & _ONE == _ONE, float32(0)),
                )
        for a in range(first, steps[s, notes.ARCS]):
            one = record.arcs[a]
            if one.arc == _DROPPED:
                continue
            to = here[place_of(one.to)]
            if one.arc == _BLANK:
                source = other[place_of(one.source)]
                repeats = one.to & _FROM_TOKEN != _NO_FLAG
                _stay(rows, added, splits, lattice, source, to, repeats, one.excess)
            elif a < steps[s, notes.EMITTED]:
                source = other[place_of(one.source)]
                _take_token(
                    *(rows, params, words, phrases, added, splits, lattice),
                    *(source, to, one.arc, one.excess),
                )
            elif one.arc == _FALLS:
                source = here[place_of(one.source)]
                own = lattice.record[uint64(source)] & ~_AFTER_TOKEN
                boost = lattice.boost[uint64(source)]
                reached = state_after_blank(rows, added, own)
                n = uint64(to)
                lattice.record[n], lattice.graph_state[n] = own, reached
                lattice.boost[n] = boost
                _add(lattice, source, to, one.arc, one.excess)
            else:
                source = here[place_of(one.source)]
                _take_epsilon(
                    *(rows, params, words, phrases, lattice),
                    *(source, to, one.arc, one.excess),
                )
        line = lattice.frames[lattice.counts[LINES]]
        line[0], line[1] = num_nodes, lattice.counts[ARCS]
        lattice.counts[LINES] += 1
    if record.counts[notes.STEPS] & 1:
        for i in range(2 * state.counts[k.ENTRIES]):
            other[i] = here[i]  # `other` is `lattice.here`
    lattice.counts[NODES] = num_nodes
    record.counts[:] = 0
    # The beginning has no frame.
    first_arc = lattice.frames[first_line - 1, 1] if first_line > 0 else int64(0)
    row = frame - said[1] - int64(first_line == 0)
    for line in range(first_line, lattice.counts[LINES]):
        for a in range(first_arc, lattice.frames[line, 1]):
            if a + 8 < lattice.counts[ARCS]:
                ahead = uint64(lattice.arcs[a + 8].arc)
                if ahead < uint64(len(rows.arcs)):
                    prefetch(rows.said, uint64(rows.arc[ahead]))
            _write(
                *(rows, params, words, phrases, added, splits),
                *(lattice, lattice.arcs[a], said[0], row),
            )
        first_arc, row = lattice.frames[line, 1], row + 1


@inlined
def place_of(state):
    """The place of a state of a note."""
    i = uint64(state & ~_FROM_TOKEN)
    return i + i + uint64(state & _FROM_TOKEN != _NO_FLAG)


@inlined
def winners_of(live):
    """Bits of `RowNotes.winners`, those of states that are alive."""
    of_blank, of_token = uint64(live & _LANES), uint64(live) >> uint64(LANES)
    both = of_blank | of_blank << uint64(notes.TOKEN_WINS)
    return both | of_token << uint64(notes.REPEAT_WINS)


@inlined
def _add(lattice, source, to, arc, excess):
    """Add an arc between two nodes, of which it is told later what is on it."""
    one = lattice.arcs[lattice.counts[ARCS]]
    lattice.counts[ARCS] += 1
    one.state, one.nextstate, one.arc, one.excess = source, to, arc, excess
    one.boost_cost = float32(0)
    return one


@inlined
def _stay(rows, added, splits, lattice, source, to, repeats, excess):
    """Add a blank or a repeat between two nodes."""
    n, m = uint64(source), uint64(to)
    own, reached = lattice.record[n], lattice.graph_state[n]
    if own & _AFTER_TOKEN != _NO_FLAG and not repeats:
        own &= ~_AFTER_TOKEN
        reached = state_after_blank(rows, added, own)
        prefetch(splits, uint64(reached))
    lattice.record[m], lattice.graph_state[m] = own, reached
    lattice.boost[m] = lattice.boost[n]
    _add(lattice, source, to, _REPEATS if repeats else _BLANK, excess)


@inlined
def _take_token(
    rows, params, words, phrases, added, splits, lattice, source, to, arc, excess
):
    """Add a token arc between two nodes."""
    n, a = uint64(to), uint64(arc)
    boost, paid = lattice.boost[uint64(source)], float32(0)
    one = _add(lattice, source, to, arc, excess)
    if added is not None:
        if a >= uint64(len(rows.arcs)):
            a -= uint64(len(rows.arcs))
            taken = added.arcs[a]
            if phrases is not None:
                paid, boost = step_credited(
                    rows, params, words, phrases, taken, boost, added.bonus[a]
                )
                one.boost_cost = float32(float32(0) - paid)
            lattice.record[n] = added.next[a] | _AFTER_TOKEN
            lattice.graph_state[n], lattice.boost[n] = taken.nextstate, boost
            return
    flagged, position = rows.arcs[a].next, rows.arc[a]
    if phrases is not None:
        label, has_word = uint32(rows.tokens[a]) + _FIRST_TOKEN, flagged & _WORD
        if may_step(words, phrases, boost, label, a, has_word != _NO_FLAG):
            paid, boost = step(
                *(rows, params, words, phrases, boost),
                *(label, a, position, has_word != _NO_FLAG),
            )
            one.boost_cost = float32(float32(0) - paid)
    lattice.record[n] = (flagged & ~_WORD) | _AFTER_TOKEN
    lattice.boost[n] = boost
    of_graph = rows.said[uint64(position)].nextstate
    lattice.graph_state[n] = of_graph
    # What its own arcs are told by.
    prefetch(rows.records, uint64(flagged & _RECORDS))
    prefetch(rows.state_of_row, uint64(flagged & _RECORDS))
    prefetch(splits, uint64(of_graph))


@inlined
def _take_epsilon(rows, params, words, phrases, lattice, source, to, arc, excess):
    """Add an epsilon arc of the graph between two nodes of a frame."""
    n, e = uint64(to), uint64(arc & ~_EPSILON_ARC)
    position, place = uint64(len(rows.arcs)) + e, rows.epsilon_arc[e]
    boost, flagged = lattice.boost[uint64(source)], rows.epsilons[e].next
    one = _add(lattice, source, to, arc, excess)
    if phrases is not None:
        has_word = flagged & _WORD != _NO_FLAG
        if has_word and may_step(words, phrases, boost, _NO_LABEL, position, True):
            paid, boost = step(
                *(rows, params, words, phrases, boost),
                *(_NO_LABEL, position, place, has_word),
            )
            one.boost_cost = float32(float32(0) - paid)
    own = flagged & ~_WORD & ~_AFTER_TOKEN
    if not rows.through_epsilon:
        own |= _AFTER_TOKEN
    lattice.record[n], lattice.boost[n] = own, boost
    lattice.graph_state[n] = rows.said[uint64(place)].nextstate


@inlined
def _write(rows, params, words, phrases, added, splits, lattice, one, logprobs, row):
    """Write the labels, the costs and the packed number of an arc."""
    own = lattice.record[uint64(one.state)]
    of_graph = lattice.graph_state[uint64(one.state)]
    arc, from_token = one.arc, own & _AFTER_TOKEN != _NO_FLAG
    one.graph_cost = one.acoustic_cost = one.insertion_cost = float32(0)
    one.olabel = _NO_LABEL
    if arc == _BLANK or arc == _REPEATS:
        label, leads = rows.blank_label, own & _EPSILONS != _NO_FLAG
        flags = _NO_FLAG
        if arc == _REPEATS:
            label, flags = _own_label(rows, added, own), _REPEAT
            leads = leads or rows.through_epsilon
            one.acoustic_cost = -logprobs[row, int64(label - _FIRST_TOKEN)]
        else:
            leads = leads and rows.through_epsilon
            logprob = logprobs[row, int64(rows.blank)]
            one.acoustic_cost = -penalised(params.pricing, logprob)
        if leads:
            flags |= _LEADS
        one.ilabel = label | flags
        one.arc = _arc_in_place(rows, splits, added, own, of_graph, from_token, label)
        return
    if arc == _FALLS:
        one.ilabel = _LEADS if own & _EPSILONS != _NO_FLAG else _NO_LABEL
        one.arc = splits[uint64(min(of_graph, uint32(len(splits) - 1)))]
        if added is not None:
            if own & _ADDED != _NO_FLAG:
                node = uint64(own & _RECORDS)
                one.arc += added.begin[node + node]
        return
    a, paid = uint64(arc), float32(0)
    if added is not None:
        if a >= uint64(len(rows.arcs)) and arc & _EPSILON_ARC == _NO_FLAG:
            a -= uint64(len(rows.arcs))
            taken = added.arcs[a]
            one.ilabel, one.olabel = taken.ilabel, taken.olabel
            one.graph_cost = taken.cost
            if taken.ilabel & _CARRIES_WORD:
                one.insertion_cost = params.word_insertion
            if phrases is None:
                paid = float32(bonus_of(params, words, taken) + added.bonus[a])
                one.boost_cost = float32(float32(0) - paid)
            label = int64((taken.ilabel & _LABEL) - _FIRST_TOKEN)
            one.acoustic_cost = -logprobs[row, label]
            of_state = _arc_of_overlay(added, own, from_token, a)
            one.arc = splits[len(splits) - 1] + of_state
            return
    position = a
    if arc & _EPSILON_ARC != _NO_FLAG:
        e = uint64(arc & ~_EPSILON_ARC)
        position = uint64(len(rows.arcs)) + e
        place = rows.epsilon_arc[e]
        first = rows.epsilon_arc[uint64(rows.records[uint64(own & _RECORDS)].epsilon)]
        one.arc = splits[uint64(of_graph)] + (place - first)
    else:
        place = rows.arc[a]
    taken = rows.said[uint64(place)]
    one.ilabel, one.olabel, one.graph_cost = taken.ilabel, taken.olabel, taken.cost
    if taken.ilabel & _CARRIES_WORD:
        one.insertion_cost = params.word_insertion
        if phrases is None:
            if params.has_words:
                paid = bonus_at(rows, words, position, place)
                one.boost_cost = float32(float32(0) - paid)
    if arc & _EPSILON_ARC == _NO_FLAG:
        label = taken.ilabel & _LABEL
        one.acoustic_cost = -logprobs[row, int64(label - _FIRST_TOKEN)]
        one.arc = _token_arc(rows, splits, added, own, of_graph, from_token, a, label)


@inlined
def _own_label(rows, added, record):
    """The label of the token of a record, or of none."""
    if added is not None:
        if record & _ADDED != _NO_FLAG:
            return added.token[uint64(record & _RECORDS)] + _FIRST_TOKEN
    token = uint32(rows.records[uint64(record & _RECORDS)].token)
    return token + _FIRST_TOKEN if token < uint32(len(rows.repeat_arc)) else _NO_LABEL


@inlined
def _num_below(rows, one, label):
    """The number of arcs in the row of a record whose labels are below one."""
    if rows.by_token:
        below_it = (_ONE << uint64(label - _FIRST_TOKEN)) - _ONE
        return uint32(count_bits(one.labels & below_it))
    low, high = uint32(one.first), uint32(one.first) + uint32(one.length)
    while low < high:
        middle = (low + high) >> uint32(1)
        if rows.said[uint64(middle)].ilabel & _LABEL < label:
            low = middle + uint32(1)
        else:
            high = middle
    return low - uint32(one.first)


@inlined
def _rank_of_label(rows, added, record, from_token, label):
    """Count the arcs of a state before those of a label; a repeat is the last.

    Those are its epsilon arcs, its blank, its repeat, and its row's without the token.
    """
    one, place = rows.records[uint64(record & _RECORDS)], uint32(0)
    own = _own_label(rows, added, record) if from_token else _NO_LABEL
    if rows.through_epsilon and from_token:
        return uint32(1) + uint32(own < label and own != _NO_LABEL)
    if from_token or rows.through_epsilon:
        place = uint32(one.epsilons)
    if rows.blank_label < label and record & _NO_BLANK == _NO_FLAG:
        place += uint32(1)
    place += _num_below(rows, one, label)
    if own != _NO_LABEL and own < label:
        behind = own + uint32(1)
        place += uint32(1)
        place -= _num_below(rows, one, behind) - _num_below(rows, one, own)
    return place


@inlined
def _token_arc(rows, splits, added, record, of_graph, from_token, a, label):
    """The packed number of token arc `a`."""
    one = rows.records[uint64(record & _RECORDS)]
    place = _rank_of_label(rows, added, record, from_token, label)
    # Of arcs with the same token it is in the place that it has in the row.
    place += rows.arc[a] - uint32(one.first) - _num_below(rows, one, label)
    return splits[uint64(of_graph)] + place


@inlined
def _arc_in_place(rows, splits, added, record, of_graph, from_token, label):
    """The packed number of a blank or a repeat, by its label."""
    if added is not None:
        if record & _ADDED != _NO_FLAG:
            node = uint64(record & _RECORDS)
            at = added.begin[node + node + uint64(not from_token)]
            while added.arcs[uint64(at)].ilabel & _LABEL != label:
                at += uint32(1)
            return splits[len(splits) - 1] + at
    place = _rank_of_label(rows, added, record, from_token, label)
    return splits[uint64(of_graph)] + place


@inlined
def _arc_of_overlay(added, record, from_token, a):
    """The arc of a state of an overlay that is arc `a` of the state after a blank.

    Arcs that lead into the overlay have the number that they are noted by.
    """
    if record & _ADDED == _NO_FLAG or not from_token:
        return uint32(a)
    # Behind a token those of the same token are left out.
    node = uint64(record & _RECORDS)
    label = added.token[node] + _FIRST_TOKEN
    at = uint32(added.begin[node + node]) + uint32(2)
    for before in range(uint64(added.begin[node + node + _ONE]) + _ONE, a):
        at += uint32(added.arcs[before].ilabel & _LABEL != label)
    return at
