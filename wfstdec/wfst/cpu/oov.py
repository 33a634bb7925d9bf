"""OOV words in the CPU search: the overlay's states as records and rows.

    overlay = row_overlay(rows, make_overlay(graph, words))     # once per list
    made, lowest, fits = expand_oov(...)                        # arcs within the beam

A node of the overlay's trie is a record and a row: its token, and the tokens after it.
Its entries advance by blanks and repeats like any others. On `plain` rows each state of
the overlay is a record. Its arcs, and the exits of the graph, are few and are followed
one by one; exits are marked by a flag of records.

Arcs of the overlay are numbered after the arcs of rows. Ties compare packed numbers,
where the overlay comes after the graph: see `recombine.py`.
"""

from typing import NamedTuple

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.errors import GraphError
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.graph.overlay import Overlay
from wfstdec.jit import inlined, part, read_only
from wfstdec.jit.vectors import STEP, has, load, trailing
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.text.tokens import ilabel_of
from wfstdec.wfst.cpu.arrays import FROM_TOKEN, NONE
from wfstdec.wfst.cpu.boosts import (
    LABEL,
    add_graph_and_insertion,
    bonus_of,
    max_insertion_credit,
    step_oov,
    top_bonus,
)
from wfstdec.wfst.cpu.entries import state_after_blank, state_after_token
from wfstdec.wfst.cpu.rows import (
    ADDED,
    EPSILONS,
    EXIT,
    NO_BLANK,
    RECORDS,
    TOKEN_FIRST,
    RowArrays,
)

_NO_FLAG, _FIRST_TOKEN = uint32(0), uint64(ilabel_of(0))
_INF, _MOST = float32(np.inf), float32(NO_CUTOFF)
_ZERO, _ONE = uint64(0), uint64(1)
STATES_PER_NODE = 2
"""States of a trie node in an overlay: after its token, and after a blank."""


class RowOverlay(NamedTuple):
    """An overlay laid out for the CPU search."""

    first_state: np.uint32  # S: the first state of the overlay
    first_arc: np.uint32  # the first arc of the overlay, after those of `path_arcs`
    first_inner_arc: np.uint32  # arcs before this one are exits
    num_entering: np.uint64  # arcs of an exit
    arcs: np.ndarray  # ARC [A']
    bonus: np.ndarray  # float32 [A']
    next: np.ndarray  # uint32 [A']: destination records, with flags
    per_record: np.uint32  # states of a record: 1 where `plain`
    begin: np.ndarray  # uint32 [S' + 1]: the first arc of each state
    first_token_arc: np.ndarray  # uint32 [S']: the first emitting one
    token: np.ndarray  # uint32 [N], of nodes
    repeat_arc: np.ndarray  # uint32 [N], by numbers from `first_arc` on
    top_bonus: np.float32  # the largest bonus, at least 0
    least_cost: np.float32  # the least cost of an arc, at most 0
    exit_state: np.ndarray  # int32 [C], ascending: states with an exit
    slots: np.ndarray  # uint32 [N], of one search: as `RowScratch.slots`


def row_overlay(rows: RowArrays, overlay: Overlay) -> RowOverlay:
    """Lay out an overlay; `with_slots` adds the memory of one search."""
    per_record = 1 if rows.plain else STATES_PER_NODE
    num_nodes = overlay.num_states // per_record
    if num_nodes > RECORDS:
        raise GraphError(
            f"added words of {num_nodes} beginnings, expected at most {RECORDS}"
        )
    arcs, begin = overlay.arcs, overlay.state_arc_splits
    first_arc = uint32(len(rows.path_arcs))
    label = (arcs["ilabel"] & np.uint32(LABEL_MASK)).astype(np.int64)
    emitting = begin[:-1] + overlay.state_num_epsilons
    node = (arcs["nextstate"].astype(np.int64) - overlay.first_state) // per_record
    within = (node.astype(np.uint32) & RECORDS) | ADDED
    if rows.plain:  # plain rows: blanks and repeats are arcs, and no record has a token
        leads = np.append(overlay.state_num_epsilons > 0, False)[np.maximum(node, -1)]
        within |= NO_BLANK | np.where(leads, EPSILONS, uint32(0))
        token = np.full(num_nodes, len(rows.repeat_arc))
    else:  # the first emitting arc of the state after a token is its repeat
        within |= TOKEN_FIRST
        token = label[emitting[::per_record].astype(np.int64)] - ilabel_of(0)
    return RowOverlay(
        first_state=uint32(overlay.first_state),
        first_arc=first_arc,
        first_inner_arc=uint32(first_arc + begin[0]),
        num_entering=uint64(overlay.num_entry_arcs),
        arcs=arcs,
        bonus=overlay.bonus,
        next=read_only(np.where(node >= 0, within, rows.return_state[label])),
        per_record=uint32(per_record),
        begin=begin,
        first_token_arc=read_only(emitting.astype(np.uint32)),
        token=read_only(token.astype(np.uint32)),
        repeat_arc=read_only(emitting[::per_record] + first_arc),
        top_bonus=overlay.top_bonus,
        least_cost=float32(min(0.0, arcs["cost"].min(initial=0.0))),
        exit_state=read_only(overlay.exit_state),
        slots=np.zeros(0, np.uint32),
    )


def with_slots(overlay: RowOverlay) -> RowOverlay:
    """Add the slots of one search."""
    return overlay._replace(slots=np.zeros(len(overlay.token), np.uint32))


class Source(NamedTuple):
    """An entry, the arcs of the overlay that leave it, and the costs before them."""

    entry: np.uint64
    first: np.uint64  # the first arc
    last: np.uint64  # one past the last
    blank: np.float32  # the cost after a blank
    token: np.float32  # the cost after the token
    again: np.uint32  # the token that cannot follow the state after a token


@part
def expand_oov(search, made, lowest, beam, exits):
    """Write arcs of an overlay that are within the beam to `scratch.candidates`."""
    # `exits`: the arcs that enter the overlay; else those that leave its own states.
    # Returns (number of candidates, lowest cost, whether there was capacity).
    rows, oov, state = search.rows, search.oov, search.state
    n, i = uint64(state.progress[0].entries), _ZERO
    flag, fits = EXIT if exits else ADDED, True
    while i < n:
        some = uint64(has(load(state.record, i), flag))
        while some != _ZERO:
            at = i + trailing(some)
            some &= some - _ONE
            # Dead entries, and the padding, have infinite costs.
            blank, token, own = state.blank[at], state.token[at], state.record[at]
            if not min(blank, token) < _INF:
                continue
            for after_token in range(2 if exits else 1):
                of_blank, of_token, again = blank, token, state.again[at]
                node = uint64(own & RECORDS)
                if exits:
                    # Each state has its own exit and costs.
                    again = NONE
                    if after_token == 0:
                        of_token, of_state = _INF, state_after_blank(rows, oov, own)
                    else:
                        of_blank, of_state = _INF, state_after_token(rows, oov, own)
                    if not min(of_blank, of_token) < _INF:
                        continue
                    exit = _exit_of(oov, of_state)
                    if exit == uint64(len(oov.exit_state)):
                        continue
                    first = exit * oov.num_entering
                    last = first + oov.num_entering
                elif rows.plain:
                    first = uint64(oov.first_token_arc[node])
                    last = uint64(oov.begin[node + _ONE])
                else:
                    # The arcs after the blank in the state after a blank.
                    first = uint64(oov.begin[node + node + _ONE]) + _ONE
                    last = uint64(oov.begin[node + node + uint64(2)])
                if rows.has_hubs and not exits:
                    of_token = _INF
                    if not blank < _INF:
                        continue  # the token is alive, its hub was pruned
                leaving = Source(at, first, last, of_blank, of_token, again)
                made, lowest, fits = _follow_row(search, leaving, made, lowest, beam)
                if not fits:
                    return made, lowest, False
        i += STEP
    return made, lowest, fits


@inlined
def _exit_of(oov, state):
    """Return the position of a state's exit, or the number of exits if it has none."""
    num_exits = uint64(len(oov.exit_state))
    begin, end = _ZERO, num_exits
    while begin < end:
        middle = (begin + end) >> _ONE
        if uint32(oov.exit_state[middle]) < state:
            begin = middle + _ONE
        else:
            end = middle
    if begin < num_exits and uint32(oov.exit_state[begin]) != state:
        return num_exits
    return begin


@inlined
def write_candidate(search, made, i, from_token, frame):
    """Write the source of candidate `made`: entry `i`, after its token or a blank."""
    state, candidate = search.state, search.scratch.candidates[made]
    candidate.before = state.token_node[i] if from_token else state.blank_node[i]
    candidate.ended = frame if from_token else state.ended[i]
    candidate.source = uint32(i) | (FROM_TOKEN if from_token else _NO_FLAG)
    return candidate


@inlined
def _follow_row(search, source, made, lowest, beam):
    # Returns (number of candidates, lowest cost, whether there was capacity).
    i, first, last, blank, token, again = source
    rows, params, words = search.rows, search.params, search.words
    scratch, state = search.scratch, search.state
    phrases, oov, record = search.phrases, search.oov, search.record
    if made + (last - first) > uint64(len(scratch.candidates)):
        return made, lowest, False
    boost, frame = _NO_FLAG, uint32(state.progress[0].frames + 1)
    if phrases is None:
        credit = top_bonus(params, words)
    else:
        boost, credit = state.boost[i], state.credit[i]
    # An arc can survive only if its token costs at most this. The arc counts as the
    # cheapest of the overlay with the largest credit; slack covers rounding.
    cost, cutoff = min(blank, token), min(float32(lowest + beam), NO_CUTOFF)
    credit = float32(credit + oov.top_bonus) + max_insertion_credit(params)
    least_arc = float32(params.lm_scale * oov.least_cost)
    slack = float32(abs(cutoff) + cost) + float32(credit - least_arc)
    slack = float32(1e-3) + float32(4e-6) * slack
    limit = float32(float32(cutoff - cost) + float32(credit - least_arc)) + slack
    limit = min(limit, _MOST)
    for a in range(first, last):
        arc = oov.arcs[a]
        label = uint64(arc.ilabel & LABEL) - _FIRST_TOKEN
        price = scratch.costs[label]
        if not (price <= limit and arc.cost < np.inf):
            continue
        after_blank = add_graph_and_insertion(params, blank, arc)
        after_token = add_graph_and_insertion(params, token, arc)
        if phrases is None:
            paid = float32(bonus_of(params, words, arc) + oov.bonus[a])
        else:
            paid, scratch.goals[made] = step_oov(search, arc, boost, oov.bonus[a])
        after_blank = float32(float32(after_blank - paid) + price)
        after_token = float32(float32(after_token - paid) + price)
        # Within an overlay the state after a token comes before that after a blank.
        from_token = uint32(label) != again and after_token <= after_blank
        reached = after_token if from_token else after_blank
        if not reached <= min(float32(lowest + beam), NO_CUTOFF):
            continue
        if record is not None:
            other = after_blank if from_token else after_token
            if uint32(label) == again:
                other = _INF
            record.others[made] = other
        candidate = write_candidate(search, made, i, from_token, frame)
        candidate.cost, candidate.record = reached, oov.next[a]
        candidate.arc = uint32(uint64(len(rows.arcs)) + a)
        lowest, made = min(lowest, reached), made + _ONE
    return made, lowest, True
