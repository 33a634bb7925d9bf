"""What the CPU kernels have of an overlay: its arcs, and an utterance's scratch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.graph.overlay import Overlay
from wfstdec.jit import read_only
from wfstdec.wfst.cpu.records import SIDE_ENTRY

CALL_BITS = 1 << 12
"""A set of so many bits tells most states without calls from those with some."""
FIRST_ENTRIES = 512


class AddedArrays(NamedTuple):
    """An overlay, read only, and scratch of one utterance.

    The scratch means nothing between frames; `next` has the entries of the overlay's
    states in the frontier that is made.
    """

    first_state: np.uint32  # S: states from here on are the overlay's
    first_arc: np.uint32  # A: so are arcs
    num_entering: np.uint64
    arcs: np.ndarray  # ARC [A']
    bonus: np.ndarray  # float32 [A']
    begin: np.ndarray  # uint32 [S' + 1]: the first arc of each state
    emit: np.ndarray  # uint32 [S']: the first emitting one
    top_bonus: np.float32  # the largest, at least 0
    least_cost: np.float32  # of an arc, at most 0
    call_state: np.ndarray  # int32 [C]
    call_bits: np.ndarray  # uint64 [CALL_BITS / 64], by the low bits of states
    made: np.ndarray  # SIDE_ENTRY [M]: candidates
    next: np.ndarray  # SIDE_ENTRY [F]
    chain: np.ndarray  # uint32 [F]: the entry before of the same state
    slots: np.ndarray  # uint32 [S']: where the last entry of a state is, if there


def added_arrays(overlay: Overlay) -> AddedArrays:
    """An overlay laid out for searches; `with_scratch` makes it ready for one."""
    at = overlay.call_state.astype(np.uint64) % CALL_BITS
    bits = np.zeros(CALL_BITS // 64, np.uint64)
    np.bitwise_or.at(bits, (at // 64).astype(np.int64), np.uint64(1) << (at % 64))
    begin = overlay.state_arc_splits
    nothing = np.zeros(0, np.uint32)
    return AddedArrays(
        first_state=np.uint32(overlay.first_state),
        first_arc=np.uint32(overlay.first_arc),
        num_entering=np.uint64(overlay.num_entering),
        arcs=overlay.arcs,
        bonus=overlay.bonus,
        begin=begin,
        emit=read_only(begin[:-1] + overlay.state_num_epsilons),
        top_bonus=overlay.top_bonus,
        least_cost=np.float32(min(0.0, overlay.arcs["cost"].min(initial=0.0))),
        call_state=read_only(overlay.call_state),
        call_bits=read_only(bits),
        made=np.empty(0, SIDE_ENTRY),
        next=np.empty(0, SIDE_ENTRY),
        chain=nothing,
        slots=nothing,
    )


def with_scratch(arrays: AddedArrays, entries: int = FIRST_ENTRIES) -> AddedArrays:
    """The same with scratch for so many entries, and four times as many candidates."""
    return arrays._replace(
        made=np.empty(4 * entries + int(arrays.num_entering), SIDE_ENTRY),
        next=np.empty(entries, SIDE_ENTRY),
        chain=np.empty(entries, np.uint32),
        slots=np.zeros(len(arrays.emit), np.uint32),
    )
