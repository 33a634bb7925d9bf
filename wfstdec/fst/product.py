"""T o LG as rows of LG and states, without arcs; see `graph/product.py`.

A state is (c, s): c is the ilabel of the previous token, 0 at the start, or `_BLANK`
after a blank, which in `compact` is a hub; s is a state of LG.

    normal     (c, s) -blank-> (blank, s)   (c, s) -i-> (i, s') for i other than c
               (c, s) -epsilon-> (c, s'), but not after a blank
    compact    (i, s) -epsilon-> (blank, s)   (blank, s) -i-> (i, s')
               (blank, s) -epsilon-> (blank, s')

States are numbered breadth first, as in `compose_topology`.
"""

import logging
from typing import NamedTuple

import numpy as np

from wfstdec.errors import ArpaError
from wfstdec.fst.arrays import LabelSpace
from wfstdec.fst.operations import trimmed
from wfstdec.graph.arcs import ARC, NO_STATE, FstArrays, OovExits
from wfstdec.graph.product import AFTER_BLANK, IN_TOKEN, NO_BLANK, TO_HUB, Product
from wfstdec.jit import inlined, jit
from wfstdec.jit.arrays import longer
from wfstdec.text.tokens import EPSILON

_log = logging.getLogger("wfstdec.build")
PRODUCTS = "normal", "compact"  # topologies whose graphs are products
_BLANK, _OUTSIDE = -1, -2


class _Lg(NamedTuple):
    """LG with the arcs of each state sorted: tokens, the class, then epsilons."""

    splits: np.ndarray  # int64 [S + 1]
    classes: np.ndarray  # int64 [S], first arcs of the class
    epsilons: np.ndarray  # int64 [S]
    label: np.ndarray  # int32 [A]
    nextstate: np.ndarray  # int32 [A]
    has_blank: np.ndarray  # bool [S], whether (blank, s) leads anywhere


class _States(NamedTuple):
    """States by number, and as a linked list for each state of LG."""

    token: np.ndarray  # int32 [N], c
    state: np.ndarray  # int32 [N], s
    first: np.ndarray  # int32 [S], the last one of each s; -1 for none
    before: np.ndarray  # int32 [N], previous one of the same s


def product_of_lg(
    name: str, lg: FstArrays, labels: LabelSpace, oov_cost: float
) -> tuple[Product, np.ndarray, OovExits | None]:
    """Build T o LG with unsorted, unflagged arcs; final costs; OOV exits."""
    lg, has_hubs = trimmed(lg), name == "compact"
    if lg.num_states == 0:
        raise ArpaError("no word of the lexicon can occur, expected at least one")
    # Epsilons pass T after the symbols.
    behind = labels.disambig(labels.num_disambig)
    label, source = np.where(lg.ilabel == EPSILON, behind, lg.ilabel), lg.arc_state()
    order = np.argsort(source * (behind + 1) + label, kind="stable")
    splits, kind = lg.state_arc_splits, np.sign(label - labels.class_token)
    classes = splits[:-1] + np.bincount(source[kind < 0], minlength=lg.num_states)
    epsilons = classes + np.bincount(source[kind == 0], minlength=lg.num_states)
    has_blank = (epsilons > splits[:-1]) | np.isfinite(lg.final_cost) | has_hubs
    label, nextstate = label[order].astype(np.int32), lg.nextstate[order]
    sorted_lg = _Lg(splits, classes, epsilons, label, nextstate, has_blank)
    states = _reach(sorted_lg, lg.start, labels.units(), has_hubs)
    kept = states.token != _OUTSIDE
    token, of_lg, number = states.token[kept], states.state[kept], np.cumsum(kept) - 1
    in_token = np.where(has_blank[of_lg], TO_HUB if has_hubs else IN_TOKEN, NO_BLANK)
    kind = np.where(token == _BLANK, AFTER_BLANK, in_token).astype(np.uint8)
    has_row = (kind == AFTER_BLANK) | (kind == NO_BLANK)
    row, row_of = np.cumsum(has_row) - 1, np.zeros(lg.num_states, np.int64)
    row_of[of_lg[kind == AFTER_BLANK]] = row[kind == AFTER_BLANK]

    def arcs_from(
        leaving: np.ndarray, first: np.ndarray, end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the source states of arcs of LG, ascending, and the arcs."""
        leaving = np.flatnonzero(leaving)
        counts = (end - first)[of_lg[leaving]]
        skipped = np.repeat(np.cumsum(counts) - counts - first[of_lg[leaving]], counts)
        return np.repeat(leaving, counts), np.arange(len(skipped)) - skipped

    def records(arc: np.ndarray, ilabel: np.ndarray, to: np.ndarray) -> np.ndarray:
        rows = np.zeros(len(arc), ARC)
        reached = _find_all(states, nextstate[arc], to)
        rows["ilabel"], rows["nextstate"] = ilabel, number[reached]
        rows["olabel"], rows["cost"] = lg.olabel[order[arc]], lg.cost[order[arc]]
        return rows

    is_hub = kind == AFTER_BLANK
    state, arc = arcs_from(is_hub, splits[:-1], classes)
    arcs = records(arc, label[arc], label[arc])
    lengths = np.bincount(row[state], minlength=int(has_row.sum()))
    state, arc = arcs_from(is_hub == has_hubs, epsilons, splits[1:])
    product = Product(
        kind=kind,
        token=np.maximum(token, 0),
        row=np.where(has_row, row, row_of[of_lg]).astype(np.int32),
        num_epsilons=np.bincount(state, minlength=len(kind)).astype(np.uint32),
        epsilons=records(arc, np.zeros(len(arc)), token[state]),
        row_splits=np.append(0, np.cumsum(lengths)).astype(np.uint32),
        arcs=arcs,
        blank=labels.blank,
    )
    final_cost = lg.final_cost[of_lg]
    final_cost[kind == TO_HUB] = np.inf
    state, arc = arcs_from(is_hub | (not has_hubs), classes, epsilons)
    outside = np.unique(nextstate[arc])
    if len(outside) != 1:
        # Several states outside would each have their own returns.
        if len(outside):
            _log.warning("%d states after exits, expected one: no exits", len(outside))
        return product, final_cost, None
    units, return_state = labels.units(), np.full(len(labels.tokens) + 1, NO_STATE)
    reached = _find_all(states, np.full(len(units), outside[0]), units)
    return_state[units] = number[reached]
    exits = OovExits(
        state.astype(np.int32),
        product.token[state],
        lg.cost[order[arc]] + np.float32(0.0),
        return_state.astype(np.int32),
        oov_cost,
    )
    return product, final_cost, exits


@inlined
def _find(states, s, token):
    n = states.first[s]
    while n >= 0 and states.token[n] != token:
        n = states.before[n]
    return n


@jit
def _find_all(states, s, token):
    numbers = np.empty(len(s), np.int64)
    for i in range(len(s)):
        numbers[i] = _find(states, s[i], token[i])
    return numbers


@inlined
def _enter(states, count, token, s):
    """Number (token, s) if it is new; return the number of states."""
    if _find(states, s, token) < 0:
        states.token[count], states.state[count] = token, s
        states.before[count], states.first[s] = states.first[s], count
        count += 1
    return count


@jit
def _reach(lg, start, units, has_hubs):
    size, num_lg = 4 * len(lg.classes), len(lg.classes)
    token, state = np.empty(size, np.int32), np.empty(size, np.int32)
    first, before = np.full(num_lg, -1, np.int32), np.empty(size, np.int32)
    states = _States(token, state, first, before)
    followed = np.full(num_lg, _OUTSIDE, np.int32)  # label left out, if any
    n, count = 0, _enter(states, 0, _BLANK if has_hubs else 0, start)
    while n < count:
        c, s = states.token[n], states.state[n]
        most = count + len(units) + lg.splits[s + 1] - lg.splits[s] + 1
        if most > len(states.token):
            token, state = longer(states.token, most), longer(states.state, most)
            states = _States(token, state, first, longer(states.before, most))
        if c == _OUTSIDE:
            for unit in units:
                count = _enter(states, count, unit, s)
        elif c == _BLANK or not has_hubs:
            if c != _BLANK and lg.has_blank[s]:
                count = _enter(states, count, _BLANK, s)
            # Arcs of s lead to the same states from any (c, s). After the first one,
            # only its excluded label is new, for the second.
            left_out, is_first = followed[s], followed[s] == _OUTSIDE
            followed[s] = c if is_first else _BLANK
            for a in range(lg.splits[s], lg.classes[s]):
                label = lg.label[a]
                if label != c and (is_first or label == left_out):
                    count = _enter(states, count, label, lg.nextstate[a])
            for a in range(lg.classes[s], lg.epsilons[s]):
                count = _enter(states, count, _OUTSIDE, lg.nextstate[a])
            if c != _BLANK or has_hubs:
                for a in range(lg.epsilons[s], lg.splits[s + 1]):
                    count = _enter(states, count, c, lg.nextstate[a])
        else:
            count = _enter(states, count, _BLANK, s)
        n += 1
    token, state, before = states.token, states.state, states.before
    return _States(token[:count], state[:count], first, before[:count])
