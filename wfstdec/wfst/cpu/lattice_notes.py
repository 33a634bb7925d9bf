"""Noting candidates for a lattice where they are made entries; see `lattice_kernels`.

Of an emitting arc that wins its state the trace has all there is, so only those that
lose are noted. Epsilon arcs are all noted: within a frame the trace has no order.
"""

from __future__ import annotations

import numpy as np
from numpy import uint32, uint64

from wfstdec.jit import inlined
from wfstdec.wfst.cpu import arrays as k

OF_OVERLAY = uint32(1 << 31)
"""Set in the position of an entry that is one of the overlay's."""
_EPSILON_ARC = uint32(k.EPSILON_ARC)
_FRAME = 1


@inlined
def start_noting(record):
    """Forget what was noted of a frame that is done again."""
    if record is not None:
        record.counts[_FRAME] = record.counts[0]


@inlined
def note(record, node, arc, cost, to):
    """Note a candidate that leads to entry `to`; beyond the room it is only counted."""
    at = uint64(record.counts[_FRAME])
    if at < uint64(len(record.arcs)):
        one = record.arcs[at]
        one.state, one.nextstate = node, to
        one.arc, one.excess = arc, cost
    record.counts[_FRAME] = np.int64(at) + 1


@inlined
def note_loser(record, now, before, came, to):
    """Note the emitting arc that lost entry `to`: what came, or what was there.

    `now`, `before`, `came`: (cost, node, arc) of the entry as it is, as it was before,
    and of the candidate. Records are not passed: there are two kinds of them.
    """
    cost, node, arc = before
    if now[1] == node and now[2] == arc:
        note(record, came[1], came[2], came[0], to)
    else:
        note(record, node, arc, cost, to)


@inlined
def note_displaced(record, now, before, to):
    """Note the emitting arc that entry `to` was made by until an epsilon arc came."""
    cost, node, arc = before
    if not arc & _EPSILON_ARC and (now[1] != node or now[2] != arc):
        note(record, node, arc, cost, to)
