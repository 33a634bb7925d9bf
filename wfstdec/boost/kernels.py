"""Boosts in each step of a search: credit, instalments, deferred credit.

    worth = word_bonus(tables.words, word)                       # nats
    worth, state = credit(phrases, steps, state_of(boost), label, worth)
    paid, boost = pay(boost, state, worth, size)                 # of an instalment
    cost = cost_at_end(phrases.final_cost, boost, size)

Sums are in the order of `tests/reference/boost_reference.py`: a bonus, minus the cost
of phrases. A credit above the beam would prune everything else. So a step of the search
pays at most one instalment, and defers the rest in quarters of one.

    due = deferred * size / 4 + credit  credit: of the words and phrases of this step
    due <= size                       it is paid; below 0 it is charged
    due > size                        quarters are deferred, to leave at
                                      most one instalment to pay

Each arc with a word and each arc on which a token begins is a step; the end pays the
deferred credit. At most `MAX_DEFERRED` quarters are deferred; the excess is paid at
once. A boost state combines their number and the phrases' state.
"""

import math

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.boost.compiled import find_bonus
from wfstdec.boost.phrases import GRAIN
from wfstdec.errors import BoostError
from wfstdec.jit import inlined, part

STATE_BITS = 25
"""Bits of the phrases' state; higher bits count deferred quarters."""
MAX_DEFERRED = 63  # most deferred quarters of an instalment
_SIZE_BITS = (
    18  # precision of a size, so that multiples of a quarter are exact in float32
)
_QUARTER = float32(0.25)
_BITS = uint32(STATE_BITS)
_STATE = uint32((1 << STATE_BITS) - 1)
_MOST = float32(MAX_DEFERRED)
_NOTHING_DEFERRED = uint32(0)
_ONE_QUARTER = uint32(1)
LOW_BITS, WORD_SHIFT = uint64(63), uint64(6)
"""Mask of a bit's position in a 64-bit word, and shift to the word's position; sets
have labels modulo 64."""
BIT, NO_BITS = uint64(1), uint64(0)
_NEXT = uint64(1)


def max_credit_per_arc(beam: float) -> np.float32:
    """Return the largest instalment of a search: half of its beam, nats."""
    # Its quarter is a multiple of `GRAIN`, so that phrases are paid exactly.
    half = max(min(beam / 2, 2.0**100), 4 * GRAIN)
    _, exponent = math.frexp(half)
    grain = max(2.0 ** (exponent - _SIZE_BITS), 4 * GRAIN)
    return float32(math.floor(half / grain) * grain)


def check_states(num_states: int) -> None:
    """Raise unless phrases leave room for the count of quarters."""
    if num_states > 1 << STATE_BITS:
        raise BoostError(
            f"the boosted phrases have {num_states:,} states, expected at most "
            f"{1 << STATE_BITS:,}: boost fewer or shorter phrases"
        )


@inlined
def deferred_of(boost):
    """Return the deferred quarters of a boost state, uint32."""
    return uint32(boost) >> _BITS


@inlined
def state_of(boost):
    """Return the phrases' state of a boost state, uint32."""
    return uint32(boost) & _STATE


@inlined
def join(deferred, state):
    """Return the boost state of a number of quarters and a state of phrases, uint32."""
    return (uint32(deferred) << _BITS) | uint32(state)


@inlined
def word_bonus(words, word):
    """Return the bonus of a word, float32 nats; 0 without one."""
    return find_bonus(words.keys, words.bonuses, word)


@inlined
def credit(phrases, steps, state, label, bonus):
    """Return the credit of a step, float32 nats, and the next phrase state, uint32."""
    if steps:
        cost, state = step(phrases, state, label)
        bonus = float32(bonus - cost)
    return bonus, state


@inlined
def step(phrases, state, label):
    """Return the cost of a label and next state, with the bits of `lm.kernels.step`."""
    row = phrases.rows[uint64(state)]
    if row.labels >> (uint64(label) & LOW_BITS) & BIT:
        return _step_down(phrases, state, label)
    there = phrases.dense[uint64(row.dense) + uint64(label)]
    return float32(row.dense_cost + there.cost), there.next


@part
def _step_down(phrases, state, label):
    """Do as `step` through all states down to the dense one."""
    rows, arcs = phrases.rows, phrases.arcs
    total, at = float32(0), uint64(state)
    # A state without label bits is dense, and so is the root: this ends.
    while rows[at].labels != NO_BITS:
        begin, last = uint64(rows[at].begin), uint64(rows[at + _NEXT].begin)
        end = last
        while begin < end:
            middle = (begin + end) >> _NEXT
            if arcs[middle].label < label:
                begin = middle + _NEXT
            else:
                end = middle
        if begin < last and arcs[begin].label == label:
            return float32(total + arcs[begin].cost), arcs[begin].next
        total = float32(total + rows[at].backoff_cost)
        at = uint64(rows[at].backoff)
    there = phrases.dense[uint64(rows[at].dense) + uint64(label)]
    return float32(total + there.cost), there.next


@inlined
def pay(boost, state, worth, size):
    """Pay for a step credited `worth`: float32 nats, and the next boost state."""
    deferred = deferred_of(boost)
    if deferred == _NOTHING_DEFERRED and worth <= size:
        return worth, uint32(state)
    quarter = float32(_QUARTER * size)
    due = float32(float32(float32(deferred) * quarter) + worth)
    if due <= size:
        return due, uint32(state)
    left = min(np.ceil(float32(float32(due - size) / quarter)), _MOST)
    paid = float32(due - float32(left * quarter))
    if paid > size and left < _MOST:
        return float32(paid - quarter), join(uint32(left) + _ONE_QUARTER, state)
    return paid, join(uint32(left), state)


@inlined
def most_credited(phrases, boost):
    """Return an upper bound of any label's credit in a boost state, at least 0."""
    return phrases.rows[uint64(state_of(boost))].credit


@inlined
def most_paid(boost, worth, size):
    """Return an upper bound of `pay` for any credit up to `worth`, at least 0."""
    due = float32(rest_of(boost, size) + worth)
    excess = float32(due - float32(_MOST * float32(_QUARTER * size)))
    return max(min(due, max(size, excess)), float32(0))


@inlined
def rest_of(boost, size):
    """Return the deferred credit of a boost state, float32 nats."""
    return float32(float32(deferred_of(boost)) * float32(_QUARTER * size))


@inlined
def cost_at_end(final_cost, boost, size):
    """Return the cost of ending: pays deferred credit, charges incomplete phrases."""
    return float32(final_cost[state_of(boost)] - rest_of(boost, size))


@inlined
def may_boost(words, row):
    """Return whether a row may have a boosted word or a phrase of words."""
    at = uint64(row) & words.row_mask
    return words.hot_rows[at >> WORD_SHIFT] >> (at & LOW_BITS) & BIT != NO_BITS


@inlined
def boost_window(words, first):
    """Return the hot positions among 64 of a row from `first` on, as bits."""
    at = uint64(first) & words.hot_mask
    shift, word = at & LOW_BITS, at >> WORD_SHIFT
    window = words.hot[word] >> shift
    if shift != NO_BITS:
        following = (word + _NEXT) & (words.hot_mask >> WORD_SHIFT)
        window |= words.hot[following] << (uint64(64) - shift)
    return window
