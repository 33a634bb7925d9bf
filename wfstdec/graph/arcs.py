"""Parts of a graph: arcs as records, plain arrays, facts, OOV exits.

FstArrays   input and output of the FST engines: no invariants, no flags
ARC         one arc of a packed graph: 16 bytes, flags in the upper label bits
GraphInfo   topology, marks, costs of words, silence
OovExits    states where OOV words begin, and states after them
"""

from dataclasses import dataclass, field

import numpy as np

from wfstdec.jit.records import record

ARC = record("u4 ilabel olabel nextstate", "f4 cost")
"""Record of an arc, 16 bytes. The upper bits of `ilabel` are flags."""

LABEL_MASK = (1 << 28) - 1
"""The bits of `ilabel` that hold the label: 0 for epsilon, else token + 1."""
REPEAT = 1 << 31  # Flag: the arc repeats the token of the previous frame
LEADS_TO_EPSILON = 1 << 30  # Flag: the arc's next state has epsilon arcs
CARRIES_WORD = 1 << 29  # Flag: `olabel` is not epsilon
NO_ARCS = np.zeros(0, ARC)  # Empty array of arcs


@dataclass(frozen=True, eq=False)
class FstArrays:
    """FST as plain arrays, without invariants beyond matching sizes."""

    start: int  # Start state
    final_cost: np.ndarray  # float32 [S], nats; `inf` for non-final states
    # int64 [S + 1]; state s has the arcs `state_arc_splits[s:s + 2]`
    state_arc_splits: np.ndarray
    ilabel: np.ndarray  # int32 [A]; 0 is epsilon
    olabel: np.ndarray  # int32 [A]; 0 is epsilon
    nextstate: np.ndarray  # int32 [A]
    cost: np.ndarray  # float32 [A], nats

    @property
    def num_states(self) -> int:
        """Number of states, S."""
        return len(self.final_cost)

    @property
    def num_arcs(self) -> int:
        """Number of arcs, A."""
        return len(self.ilabel)

    def arc_state(self) -> np.ndarray:
        """Return the source state of each arc, int64 [A]."""
        return np.repeat(np.arange(self.num_states), np.diff(self.state_arc_splits))


TOPOLOGIES = "normal", "normal-selfless", "compact", "compact-selfless", "minimal"


@dataclass(frozen=True, eq=False)
class GraphInfo:
    """Facts of how a graph was built; unknown by default."""

    topology: str = ""  # Name of the CTC topology, or "" if unknown
    # Whether `REPEAT` distinguishes repeats of a token from new ones
    marks_repeats: bool = False
    # float32 [W], unigram cost of each word, nats, `inf` if unknown; empty without a
    # language model
    word_cost: np.ndarray = field(
        default_factory=lambda: np.zeros(0, np.float32), repr=False
    )
    # Probability of an optional silence, whose costs are on arcs; None if unknown
    silence_prob: float | None = None


NO_STATE = -1  # Number of no state


@dataclass(frozen=True, eq=False, repr=False)
class OovExits:
    """States in which an OOV word may begin, and the states after them."""

    state: np.ndarray  # int32 [C], the states with exits, ascending
    # int32 [C], ilabel of the previous token, with which the word cannot begin, or 0
    last: np.ndarray
    cost: np.ndarray  # float32 [C], cost of `<unk>` in the state, nats
    # int32 [V + 1], state after a word, by the ilabel of its last token; -1 for labels
    # that end no word
    return_state: np.ndarray
    word_cost: float  # Cost of `<unk>` in the language model, nats

    def __len__(self) -> int:
        return len(self.state)

    def __repr__(self) -> str:
        return f"OovExits(in {len(self):,} states, word_cost={self.word_cost:g})"
