"""Boosts in rows of scores, with the end of a text as one of the columns.

    rows = RowStates(row, state, mode, ends_phrase, silent, ends)
    credit_rows(automaton, rows, scores, out, is_last, end_score)

What searches over texts token by token share: ours for attention models, and the
processors for other people's. One kernel, written for V in the tens of thousands.
Most rows are in the root, where a list of phrases touches a few columns; in others all
tokens pay back alike but for the arcs on the way to the root. So rows are not filled in
and added up: that took 28 ms for 40 rows of 51,865 columns, most of it new pages.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from wfstdec.jit import kernel
from wfstdec.lm.kernels import step

EndRule = Literal["closed", "compensated", "none"]
"""What becomes of phrases at the end, which competes with them."""
OPEN, CLOSING, CLOSED = 0, 1, 2
"""Phrases go on; pay back with the next token, whatever it is; are over."""


class RowStates(NamedTuple):
    """States of phrases, of rows.

    Attributes:
        row: int64 [N], which row of the scores each is.
        state: int32 [N], of the automaton.
        mode: int8 [N], `OPEN`, `CLOSING` or `CLOSED`.
        ends_phrase: bool [N], the last token ended a phrase.
        silent: int64 [M], sorted: columns that say nothing, ends among them.
        ends: int64 [E], columns of ends.
    """

    row: np.ndarray
    state: np.ndarray
    mode: np.ndarray
    ends_phrase: np.ndarray
    silent: np.ndarray
    ends: np.ndarray


@kernel
def credit_rows(automaton, rows, scores, out, is_last, end_score):
    """Write scores [N, V] with the boosts to `out`, which has the scores already.

    `automaton`: of the phrases, float32 costs. `scores`: float32 [N, V]. `out`: float32
    [N, V]. `end_score`: float32, of the rule `compensated`; below 0 there is no such
    rule.
    """
    final_cost, backoff = automaton.final_cost, automaton.backoff_state
    none = np.float32(0)
    for each in range(len(rows.row)):
        if rows.mode[each] == CLOSED:
            continue
        i = rows.row[each]
        state = np.int64(rows.state[each])
        paid = final_cost[state]
        if rows.mode[each] == CLOSING:  # a shift of all, which changes no order
            for label in range(scores.shape[1]):
                out[i, label] = scores[i, label] - paid
            continue
        depth, root, to_root = 0, state, none
        while backoff[root] >= 0:
            to_root += automaton.backoff_cost[root]
            root = np.int64(backoff[root])
            depth += 1
        # Labels without an arc lead to the root, where nothing is paid ahead.
        elsewhere = to_root + automaton.model_default_cost[0]
        if elsewhere != none:
            for label in range(scores.shape[1]):
                out[i, label] = scores[i, label] - elsewhere
            at_mark = paid if is_last else none
            for label in rows.silent:
                out[i, label] = scores[i, label] - at_mark
        # Arcs of longer histories go over those of shorter ones.
        most = none
        for level in range(depth, -1, -1):
            at, total = state, none
            for _ in range(level):
                total += automaton.backoff_cost[at]
                at = np.int64(backoff[at])
            begin = np.int64(automaton.state_arc_splits[at])
            end = np.int64(automaton.state_arc_splits[at + 1])
            for arc in range(begin, end):
                label = np.int64(automaton.arc_label[arc])
                cost = total + automaton.arc_cost[arc]
                if end_score >= 0:  # of the step, whichever arc has it
                    most = max(most, -step(automaton, 0, state, label)[0])
                if is_last:
                    cost += final_cost[automaton.arc_next[arc]]
                out[i, label] = scores[i, label] - cost
        at_end = -paid
        if end_score >= 0:
            at_end += most
            if rows.ends_phrase[each]:
                at_end += end_score
        for label in rows.ends:
            out[i, label] = scores[i, label] + at_end
