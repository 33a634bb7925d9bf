"""OOV words on rows of LG: an overlay's words as records and rows of their own.

    overlay = row_overlay(rows, overlay_of(graph, words))       # once for each list
    made, lowest, fits = emit_added(...)                        # arcs that may survive

A node of the overlay's trie is a record and a row: its token, and what follows. So an
entry of it goes on by blanks and repeats as any other. Its arcs are few and followed
one by one, and so are those of the graph's exits, which are found by a flag of records.

An arc of the overlay is numbered on from the arcs of rows. Among ties its packed number
counts, which is behind all of the graph: see `row_recombination.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.errors import GraphError
from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.graph.overlay import Overlay
from wfstdec.jit import inlined, part, read_only
from wfstdec.jit.vectors import STEP, has, load, trailing
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.text.symbols import ilabel_of
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.arc_costs import (
    LABEL,
    add_graph_and_insertion,
    bonus_of,
    max_insertion_credit,
    step_credited,
    top_bonus,
)
from wfstdec.wfst.cpu.row_entries import state_after_blank, state_after_token
from wfstdec.wfst.cpu.rows import ADDED, EXIT, RECORDS, TOKEN_FIRST, RowArrays

_ADDED, _EXIT, _RECORDS = uint32(ADDED), uint32(EXIT), uint32(RECORDS)
_TOKEN_FIRST, _FROM_TOKEN = uint32(TOKEN_FIRST), uint32(k.FROM_TOKEN)
_NONE = uint32(k.NONE)
_NO_FLAG, _FIRST_TOKEN = uint32(0), uint64(ilabel_of(0))
_INF, _MOST = float32(np.inf), float32(NO_CUTOFF)
_ZERO, _ONE = uint64(0), uint64(1)
STATES_PER_NODE = 2
"""A node's states in the packed overlay: after its token, and after a blank."""


class RowOverlay(NamedTuple):
    """An overlay as a search on rows takes it, and where its records stand."""

    first_state: np.uint32  # S: states from here on are the overlay's
    first_arc: np.uint32  # so are arcs from here on, behind those of `said`
    first_inner_arc: np.uint32  # those before are exits
    num_entering: np.uint64  # arcs of an exit
    arcs: np.ndarray  # ARC [A']
    bonus: np.ndarray  # float32 [A']
    next: np.ndarray  # uint32 [A']: the records that arcs lead to, with flags
    begin: np.ndarray  # uint32 [2 N + 1]: the first arc of each state
    token: np.ndarray  # uint32 [N], of nodes
    repeat_arc: np.ndarray  # uint32 [N], by numbers from `first_arc` on
    top_bonus: np.float32  # the largest, at least 0
    least_cost: np.float32  # of an arc, at most 0
    exit_state: np.ndarray  # int32 [C], ascending
    slots: np.ndarray  # uint32 [N], of one search: where a record may stand


def row_overlay(rows: RowArrays, overlay: Overlay) -> RowOverlay:
    """Lay out an overlay for searches on rows; `with_slots` makes it one search's.

    Raises:
        GraphError: It has too many nodes.
    """
    num_nodes = overlay.num_states // STATES_PER_NODE
    if num_nodes > RECORDS:
        raise GraphError(
            f"added words of {num_nodes} beginnings, expected at most {RECORDS}"
        )
    arcs, begin = overlay.arcs, overlay.state_arc_splits
    first_arc = uint32(len(rows.said))
    label = (arcs["ilabel"] & np.uint32(LABEL_MASK)).astype(np.int64)
    node = (arcs["nextstate"].astype(np.int64) - overlay.first_state) // STATES_PER_NODE
    within = (node.astype(np.uint32) & _RECORDS) | _ADDED | _TOKEN_FIRST
    # The first emitting arc of the state after a token repeats that.
    repeat = (begin[:-1] + overlay.state_num_epsilons)[::STATES_PER_NODE]
    token = label[repeat.astype(np.int64)] - ilabel_of(0)
    return RowOverlay(
        first_state=uint32(overlay.first_state),
        first_arc=first_arc,
        first_inner_arc=uint32(first_arc + begin[0]),
        num_entering=uint64(overlay.num_entering),
        arcs=arcs,
        bonus=overlay.bonus,
        next=read_only(np.where(node >= 0, within, rows.returns[label])),
        begin=begin,
        token=read_only(token.astype(np.uint32)),
        repeat_arc=read_only(repeat + first_arc),
        top_bonus=overlay.top_bonus,
        least_cost=float32(min(0.0, arcs["cost"].min(initial=0.0))),
        exit_state=read_only(overlay.call_state),
        slots=np.zeros(0, np.uint32),
    )


def with_slots(overlay: RowOverlay) -> RowOverlay:
    """Give an overlay the slots of one search."""
    return overlay._replace(slots=np.zeros(len(overlay.token), np.uint32))


@part
def emit_added(
    rows,
    params,
    words,
    phrases,
    added,
    scratch,
    state,
    made,
    lowest,
    beam,
    exits,
    record,
):
    """Write the arcs of an overlay that may survive to `scratch.candidates`.

    Args:
        rows: The graph; this and what follows as everywhere.
        params: Options.
        words: Boosted words.
        phrases: `RowPhrases`, or None.
        added: The overlay.
        scratch: Scratch.
        state: Of the utterance.
        made: Candidates so far.
        lowest: Their least cost, and that of what goes on in place.
        beam: How much more than the least a candidate may cost.
        exits: Whether those that lead into it, or those that leave its own states.
        record: `RowNotes`, or None.

    Returns:
        (candidates, least cost, whether there was room).
    """
    n, i = uint64(state.counts[k.ENTRIES]), _ZERO
    flag, fits = _EXIT if exits else _ADDED, True
    while i < n:
        some = uint64(has(load(state.record, i), flag))
        while some != _ZERO:
            at = i + trailing(some)
            some &= some - _ONE
            # Of the dead, and behind the last entry, both costs are infinite.
            blank, token, own = state.blank[at], state.token[at], state.record[at]
            if not min(blank, token) < _INF:
                continue
            if exits:
                # Each state has an exit of its own, with costs of its own.
                for after_token in range(2):
                    if after_token == 0:
                        source, of_state = blank, state_after_blank(rows, added, own)
                    else:
                        source, of_state = token, state_after_token(rows, added, own)
                    if not source < _INF:
                        continue
                    exit = _exit_of(added, of_state)
                    if exit == uint64(len(added.exit_state)):
                        continue
                    first = exit * added.num_entering
                    last = first + added.num_entering
                    of_blank = source if after_token == 0 else _INF
                    of_token = source if after_token == 1 else _INF
                    made, lowest, fits = _follow_row(
                        *(rows, params, words, phrases, added, scratch, state),
                        *(at, first, last, of_blank, of_token, _NONE),
                        *(made, lowest, beam, record),
                    )
                    if not fits:
                        return made, lowest, False
            else:
                # What may follow stands behind the blank, in the state after one.
                if rows.through_epsilon:
                    token = _INF
                    if not blank < _INF:
                        continue  # the token is left, its hub was pruned
                node = uint64(own & _RECORDS)
                first = uint64(added.begin[node + node + _ONE]) + _ONE
                last = uint64(added.begin[node + node + uint64(2)])
                made, lowest, fits = _follow_row(
                    *(rows, params, words, phrases, added, scratch, state),
                    *(at, first, last, blank, token, state.again[at]),
                    *(made, lowest, beam, record),
                )
                if not fits:
                    return made, lowest, False
        i += STEP
    return made, lowest, fits


@inlined
def _exit_of(added, state):
    """The position of a state among those with exits, their number where it is none."""
    begin, end = _ZERO, uint64(len(added.exit_state))
    while begin < end:
        middle = (begin + end) >> _ONE
        if uint32(added.exit_state[middle]) < state:
            begin = middle + _ONE
        else:
            end = middle
    if begin < uint64(len(added.exit_state)):
        if uint32(added.exit_state[begin]) == state:
            return begin
    return uint64(len(added.exit_state))


@inlined
def _follow_row(
    rows,
    params,
    words,
    phrases,
    added,
    scratch,
    state,
    i,
    first,
    last,
    blank,
    token,
    again,
    made,
    lowest,
    beam,
    record,
):
    """Candidates of arcs `first` to `last` of entry `i`, at its costs or one of them.

    `again`: the token that the state after one does not lead on by.

    Returns:
        (candidates, least cost, whether there was room).
    """
    if made + (last - first) > uint64(len(scratch.candidates)):
        return made, lowest, False
    boost, frame = _NO_FLAG, uint32(state.counts[k.FRAMES] + 1)
    if phrases is None:
        credit = top_bonus(params, words)
    else:
        boost, credit = state.boost[i], state.credit[i]
    # More than the token of an arc can cost where the arc survives: every arc counts as
    # the least of the overlay, as if paid all that it can be; slack covers rounding.
    cost, cutoff = min(blank, token), min(float32(lowest + beam), NO_CUTOFF)
    credit = float32(credit + added.top_bonus) + max_insertion_credit(params)
    least_arc = float32(params.lm_scale * added.least_cost)
    slack = float32(abs(cutoff) + cost) + float32(credit - least_arc)
    slack = float32(1e-3) + float32(4e-6) * slack
    limit = float32(float32(cutoff - cost) + float32(credit - least_arc)) + slack
    limit = min(limit, _MOST)
    for a in range(first, last):
        arc = added.arcs[a]
        label = uint64(arc.ilabel & LABEL) - _FIRST_TOKEN
        price = scratch.costs[label]
        if not (price <= limit and arc.cost < np.inf):
            continue
        after_blank = add_graph_and_insertion(params, blank, arc)
        after_token = add_graph_and_insertion(params, token, arc)
        if phrases is None:
            paid = float32(bonus_of(params, words, arc) + added.bonus[a])
        else:
            paid, scratch.goals[made] = step_credited(
                rows, params, words, phrases, arc, boost, added.bonus[a]
            )
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
        candidate = scratch.candidates[made]
        candidate.cost, candidate.record = reached, added.next[a]
        candidate.arc = uint32(uint64(len(rows.arcs)) + a)
        candidate.before = state.token_node[i] if from_token else state.blank_node[i]
        candidate.ended = frame if from_token else state.ended[i]
        candidate.source = uint32(i) | (_FROM_TOKEN if from_token else _NO_FLAG)
        lowest, made = min(lowest, reached), made + _ONE
    return made, lowest, True
