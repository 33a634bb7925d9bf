"""Arcs as records, and an FST as plain arrays: the words that graphs are written in.

FstArrays   what goes in and out of the FST engines: no invariants, no flags
ARC         one arc of a packed graph: 16 bytes, flags in the upper label bits
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wfstdec.jit.records import record

ARC = record("u4 ilabel olabel nextstate", "f4 cost")
"""Record of an arc, 16 bytes. The upper bits of `ilabel` are flags, see below."""

LABEL_MASK = (1 << 28) - 1
"""The bits of `ilabel` that hold the label: 0 for epsilon, else token + 1."""
REPEAT = 1 << 31
"""Flag: the arc repeats the token of the frame before, it starts none."""
LEADS_TO_EPSILON = 1 << 30
"""Flag: the arc's next state has epsilon arcs."""
CARRIES_WORD = 1 << 29
"""Flag: `olabel` is not epsilon."""
NO_ARCS = np.zeros(0, ARC)
"""None at all."""


@dataclass(frozen=True, eq=False)
class FstArrays:
    """An FST as plain arrays, with no invariants beyond matching sizes.

    Attributes:
        start: The start state.
        final_cost: float32 [S], nats; `inf` where a state is not final.
        state_arc_splits: int64 [S + 1]; the arcs of state s are
            `state_arc_splits[s]:state_arc_splits[s + 1]`.
        ilabel: int32 [A]; 0 is epsilon.
        olabel: int32 [A]; 0 is epsilon.
        nextstate: int32 [A].
        cost: float32 [A], nats.
    """

    start: int
    final_cost: np.ndarray
    state_arc_splits: np.ndarray
    ilabel: np.ndarray
    olabel: np.ndarray
    nextstate: np.ndarray
    cost: np.ndarray

    @property
    def num_states(self) -> int:
        """The number of states, S."""
        return len(self.final_cost)

    @property
    def num_arcs(self) -> int:
        """The number of arcs, A."""
        return len(self.ilabel)

    def arc_state(self) -> np.ndarray:
        """The state that each arc leaves, int64 [A]."""
        return np.repeat(np.arange(self.num_states), np.diff(self.state_arc_splits))
