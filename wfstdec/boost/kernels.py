"""How a credit is paid: in instalments, so that it cannot drive out what is right.

A credit above the beam would at once drop everything else, before what follows could
be heard. So a step of the search pays one instalment at most, and the rest is owed, in
whole quarters of an instalment:

    due = owed * size / 4 + credit    credit: of the words and phrases of this step
    due <= size                       it is paid; below 0 it is charged
    due > size                        as many quarters are owed from here on as leave
                                      no more than an instalment to be paid

A step is made on each arc with a word and each arc on which a token begins; the end
pays what is owed. What an utterance is credited in all is what it was without
instalments. At most `MAX_OWED` quarters are owed; what exceeds them is paid at once.

A boost state of a search is the number of quarters owed and the phrases' state:

    boost = join(owed, state)
    owed, state = owed_of(boost), state_of(boost)
"""

from __future__ import annotations

import math

import numpy as np
from numpy import float32, uint32

from wfstdec.boost.phrases import GRAIN
from wfstdec.errors import BoostError
from wfstdec.jit import inlined

STATE_BITS = 25
"""The bits of the phrases' state; those above it count the quarters owed."""
MAX_OWED = 63
"""No more quarters of an instalment are owed."""
_SIZE_BITS = 18
"""A size has no more: so that a number of quarters is exact in float32."""
_QUARTER = float32(0.25)
_BITS = uint32(STATE_BITS)
_STATE = uint32((1 << STATE_BITS) - 1)
_MOST = float32(MAX_OWED)
_NOTHING_OWED = uint32(0)
_ONE_QUARTER = uint32(1)


def instalment_size(beam: float) -> np.float32:
    """The largest instalment of a search: half of its beam, nats.

    Its quarter is a multiple of `GRAIN`: what phrases are worth is paid exactly.

    Args:
        beam: Nats; may be infinite.
    """
    half = max(min(beam / 2, 2.0**100), 4 * GRAIN)
    _, exponent = math.frexp(half)
    grain = max(2.0 ** (exponent - _SIZE_BITS), 4 * GRAIN)
    return float32(math.floor(half / grain) * grain)


def check_states(num_states: int) -> None:
    """See that phrases leave room for the count of quarters.

    Raises:
        BoostError: They have too many states.
    """
    if num_states > 1 << STATE_BITS:
        raise BoostError(
            f"the boosted phrases have {num_states:,} states, expected at most "
            f"{1 << STATE_BITS:,}: boost fewer or shorter phrases"
        )


@inlined
def owed_of(boost):
    """The quarters owed in a boost state, uint32."""
    return uint32(boost) >> _BITS


@inlined
def state_of(boost):
    """The phrases' state of a boost state, uint32."""
    return uint32(boost) & _STATE


@inlined
def join(owed, state):
    """The boost state of a number of quarters and a state of phrases, uint32."""
    return (uint32(owed) << _BITS) | uint32(state)


@inlined
def pay(owed, credit, size):
    """What a step pays, float32 nats, and how many quarters are owed after it.

    Args:
        owed: Quarters owed before it.
        credit: float32, what the step is credited.
        size: float32, of an instalment.
    """
    quarter = float32(_QUARTER * size)
    due = float32(float32(float32(owed) * quarter) + credit)
    if due <= size:
        return due, _NOTHING_OWED
    left = min(np.ceil(float32(float32(due - size) / quarter)), _MOST)
    paid = float32(due - float32(left * quarter))
    if paid > size and left < _MOST:
        return float32(paid - quarter), uint32(left) + _ONE_QUARTER
    return paid, uint32(left)


@inlined
def most_paid(owed, credit, size):
    """No less than `pay` pays for any credit up to this one, at least 0; float32."""
    due = float32(rest_of_owed(owed, size) + credit)
    excess = float32(due - rest_of_owed(_MOST, size))
    return max(min(due, max(size, excess)), float32(0))


@inlined
def rest_of_owed(owed, size):
    """What so many quarters are, float32 nats."""
    return float32(float32(owed) * float32(_QUARTER * size))


@inlined
def rest_of(boost, size):
    """What is owed in a boost state, float32 nats."""
    return rest_of_owed(owed_of(boost), size)
