"""Lattice arrays: states and arcs on paths near the best.

    state    a search state after a frame: (frame, graph state, boost state)
    arc      an arc of the graph between two of them, with its costs
    excess   extra cost of a path through an arc over the best path to its destination

Every state except the start has an incoming arc of excess 0. So the total of a path is
that of the best one plus all excess on it; the best path has none:

    total(path) = search_cost + sum(excess of its arcs) + final_excess of its last state

In lattices of searches without a graph the label of a word is at its end: on the arc of
the token after it, or on the arc to the end. Its tokens are those since the previous
word, without separators, and need no matching with pronunciations. Repeats of a token
are marked.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from wfstdec.errors import LatticeError
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, REPEAT, GraphInfo
from wfstdec.jit import jit
from wfstdec.jit.records import record
from wfstdec.text.tokens import EPSILON, TokenTable, ilabel_of, token_of
from wfstdec.text.vocabulary import Vocabulary

STATE = record(
    "i4 frame",
    "u4 graph_state boost_state",
    "f4 final_cost final_boost_cost final_excess",
)
"""State: frames passed; its state in the search (for a graph, the graph state); the
final cost before `lm_scale`, boosts paid or refunded at the end, and the extra cost of
ending here over the best end, `inf` if no path may end."""
ARC = record(
    "u4 state nextstate ilabel olabel arc",
    "f4 graph_cost acoustic_cost insertion_cost boost_cost excess",
)
"""Arc: labels and flags as on graph arcs; the graph's arc number, or for a trie a
number by destination; costs, those of graph and acoustics before scales."""
REPEATED, WORD = REPEAT, CARRIES_WORD
"""Flags of ilabels: the token continues; `olabel` is a word."""
OPEN = 0xFFFFFFFF
"""Placeholder label of open words until it is known."""
NO_GRAPH = GraphInfo(marks_repeats=True)
"""Properties of all searches without a graph."""


@dataclass(frozen=True)
class LatticeScales:
    """Scales of a lattice's costs; as in `WfstOptions`."""

    acoustic_scale: float = 1.0  # multiplies acoustic costs
    lm_scale: float = 1.0  # multiplies graph costs, of arcs and ends
    word_insertion: float = 0.0  # insertion cost per word
    token_insertion: float = 0.0  # insertion cost per token, in the trie decoder

    def insertion_costs(self, words: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the insertion costs of words and tokens on arcs, float32 [A]."""
        of_word, of_token = map(np.float32, (self.word_insertion, self.token_insertion))
        token = np.where(tokens, of_token, np.float32(0))
        return np.where(words, token + of_word, token)


@dataclass(frozen=True, eq=False)
class Lattice:
    """Near-best paths of an utterance or segment; costs in nats, lower is better.

    States are sorted by (frame, graph state, boost state), arcs by (state, arc),
    identically for every backend. State 0 is the start.
    """

    states: np.ndarray  # `STATE` [S]
    arcs: np.ndarray  # `ARC` [A]
    # tokens and words by label: those of the graph
    vocabulary: Vocabulary = field(repr=False)
    scales: LatticeScales  # included in excess
    lattice_beam: float  # largest extra cost of a path over the best
    # total of the best path in the search; for a segment, from its first state on
    search_cost: float
    # whether ends are final states of the graph; otherwise they are all states at the
    # end of the search, or the last state of a segment
    reached_final: bool
    num_frames: int  # frames of the paths
    died_at_frame: int | None = None  # the frame that no path survived, or None
    frame_shift_s: float = 0.02  # seconds per frame
    # properties of the graph; without one, of the search
    info: GraphInfo = field(default_factory=GraphInfo, repr=False)
    # whether a label is at its word's end, as without a graph; otherwise it may be
    # anywhere within the word, or after it
    labels_at_word_end: bool = False
    # whether words are tokens, by their ilabels
    words_are_tokens: bool = False

    def __repr__(self) -> str:
        ended = "" if self.reached_final else ", reached_final=False"
        return (
            f"Lattice({self.num_states:,} states, {self.num_arcs:,} arcs, "
            f"{self.num_frames} frames, lattice_beam={self.lattice_beam:g}, "
            f"search_cost={self.search_cost:g}{ended})"
        )

    @property
    def num_states(self) -> int:
        """S."""
        return len(self.states)

    @property
    def first_frame(self) -> int:
        """First frame: above 0 for a later segment of a session."""
        return int(self.states["frame"][0])

    @property
    def num_arcs(self) -> int:
        """A."""
        return len(self.arcs)

    @property
    def tokens(self) -> TokenTable:
        """The token table of the acoustic model."""
        return self.vocabulary.tokens

    @property
    def words(self) -> tuple[str, ...]:
        """The words by id; id 0 is `<eps>`."""
        return self.vocabulary.words

    @cached_property
    def is_epsilon(self) -> np.ndarray:
        """Mask of arcs that take no frame, bool [A]."""
        return self.arcs["ilabel"] & LABEL_MASK == EPSILON

    @cached_property
    def order(self) -> np.ndarray:
        """All states, each before the destinations of its arcs, int64 [S]."""
        depth = np.zeros(self.num_states, np.int64)
        epsilons = self.arcs[self.is_epsilon]
        state, nextstate = epsilons["state"], epsilons["nextstate"]
        for _ in range(self.num_states + 1):
            deeper = depth.copy()
            np.maximum.at(deeper, nextstate, depth[state] + 1)
            if (deeper == depth).all():
                return np.lexsort((depth, self.states["frame"]))
            depth = deeper
        raise LatticeError("epsilon arcs lead in a circle, expected none that do")

    @cached_property
    def arcs_into(self) -> tuple[np.ndarray, np.ndarray]:
        """The arcs into each state, best first; splits int64 [S + 1], arcs int64 [A].

        Ties go as in the search: emitting arcs before epsilon arcs, then the lower arc,
        then the lower boost state of the source.
        """
        arcs = self.arcs
        boost = self.states["boost_state"][arcs["state"]]
        keys = (boost, arcs["arc"], self.is_epsilon, arcs["excess"], arcs["nextstate"])
        order = np.lexsort(keys)
        into = arcs["nextstate"][order]
        return np.searchsorted(into, np.arange(self.num_states + 1)), order

    @cached_property
    def best_end(self) -> int:
        """End state of the best path: least excess, ties to the lower."""
        return int(np.argmin(self.states["final_excess"]))

    def best_arcs(self) -> np.ndarray:
        """Return the arcs of the best path, positions in `arcs`, int64."""
        splits, into = self.arcs_into
        found, state = [], self.best_end
        while state:
            found.append(int(into[splits[state]]))
            state = int(self.arcs["state"][found[-1]])
        return np.array(found[::-1], np.int64)

    def word_ids(self, arcs: np.ndarray) -> tuple[int, ...]:
        """Return the word ids on some arcs, given by position, in order."""
        olabel = self.arcs["olabel"][arcs]
        return tuple(olabel[olabel != EPSILON].tolist())

    def text(self, word_ids: tuple[int, ...]) -> str:
        """Return words, joined by spaces."""
        return " ".join(self.words[word] for word in word_ids)

    def arc_costs(self) -> np.ndarray:
        """Return the cost of each arc, scaled and added up, float64 [A]."""
        arcs, scales = self.arcs, self.scales
        total = scales.lm_scale * arcs["graph_cost"].astype(np.float64)
        total += arcs["insertion_cost"]
        total += arcs["boost_cost"]
        return total + scales.acoustic_scale * arcs["acoustic_cost"].astype(np.float64)

    def final_costs(self) -> np.ndarray:
        """Return the scaled cost of ending in each state, float64 [S], or `inf`."""
        total = np.full(self.num_states, np.inf)
        may_end = self.states["final_excess"] < np.inf
        ends = self.states[may_end]
        graph = self.scales.lm_scale * ends["final_cost"].astype(np.float64)
        total[may_end] = graph + ends["final_boost_cost"]
        return total


def check_lattice(lattice: Lattice) -> None:
    """Check that a lattice is valid, as after reading a file."""
    states, arcs, num_states = lattice.states, lattice.arcs, lattice.num_states
    _need(states.dtype == STATE and arcs.dtype == ARC, "arrays of other kinds")
    _need(states.ndim == arcs.ndim == 1 and num_states > 0, "no states")
    ends = np.maximum(arcs["state"], arcs["nextstate"])
    _need(not len(arcs) or ends.max() < num_states, "arcs to states that are not there")
    # Tokens take a frame, epsilon arcs none, so no cycle has a token.
    step = states["frame"][arcs["nextstate"]] - states["frame"][arcs["state"]]
    _need((step == ~lattice.is_epsilon).all(), "arcs that do not lead a frame on")
    vocabulary = lattice.vocabulary
    label = arcs["ilabel"] & LABEL_MASK
    _need((label <= len(vocabulary.tokens)).all(), "labels that are no tokens")
    olabel = arcs["olabel"]
    _need((olabel < len(vocabulary.words)).all(), "labels that are no words")
    flagged = (arcs["ilabel"] & CARRIES_WORD) != 0
    _need((flagged == (olabel != EPSILON)).all(), "flags that are not as labels")
    _need((states["final_excess"] >= 0).all(), "no ends")
    named = "graph_cost", "acoustic_cost", "insertion_cost", "boost_cost"
    costs = [states["final_cost"][states["final_excess"] < np.inf]]
    costs += [arcs[name] for name in named]
    _need(np.isfinite(np.concatenate(costs)).all(), "costs that are not finite")
    scales = lattice.search_cost, lattice.frame_shift_s, *vars(lattice.scales).values()
    _need(np.isfinite(scales).all(), "scales that are not finite")
    frames = lattice.first_frame, lattice.num_frames, lattice.died_at_frame or 0
    # A segment's states have frames of the whole utterance.
    in_range = min(frames) >= 0 and states["frame"].max() <= frames[0] + frames[1]
    _need(in_range, "frames that are out of range")
    _need(lattice.lattice_beam >= 0, "a beam below 0")
    # Excess is rounded when recorded, but the best path's is exactly 0.
    _need(states["final_excess"].min() == 0, "no best end")
    _need((arcs["excess"] >= 0).all(), "arcs of negative excess")
    splits, into = lattice.arcs_into
    _need((np.diff(splits)[1:] > 0).all(), "states that nothing leads to")
    # Arcs into a state are sorted by excess: the first one is on the best path to it.
    _need((arcs["excess"][into[splits[1:-1]]] == 0).all(), "no best path")
    # Raises if there is a cycle of epsilon arcs.
    assert len(lattice.order) == num_states


def _need(good: bool | np.bool_, otherwise: str) -> None:
    if not good:
        raise LatticeError(
            f"{otherwise}, expected what a search recorded: the lattice is damaged, "
            "decode again"
        )


@jit
def pass_back(arcs, extra, limit):
    """Fill in the extra cost of states; arcs above the limit get infinite excess."""
    # `extra`: float32 [N], given for the last states. `arcs`: in order of frames, so
    # that backwards all outgoing arcs of a state precede its incoming ones.
    for a in range(len(arcs) - 1, -1, -1):
        one = arcs[a]
        through = np.float32(one.excess + extra[one.nextstate])
        if through <= limit and through < np.inf:
            extra[one.state] = min(extra[one.state], through)
        else:
            one.excess = np.float32(np.inf)


def starts_token(ilabel: np.ndarray, tokens: TokenTable) -> np.ndarray:
    """Return the mask of ilabels at which a non-blank token begins, bool [A]."""
    label, repeats = ilabel & LABEL_MASK, ilabel & REPEATED != 0
    return (label != EPSILON) & (label != ilabel_of(tokens.blank)) & ~repeats


def tokens_of(ilabel: np.ndarray) -> np.ndarray:
    """Return the tokens of ilabels, without flags, int32."""
    return token_of((ilabel & LABEL_MASK).astype(np.int32))
