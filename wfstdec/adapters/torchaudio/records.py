"""Records and tuples of arrays that the kernels of flashlight's search work on.

Scores are as there: higher is better, natural log for the network's, log10 for the
language model's, which `lm_weight` scales.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.jit.records import record
from wfstdec.lm.automaton import Automaton
from wfstdec.trie.lexicon_trie import LexiconTrie

BEAM = record("f8 score", "i4 lm node token trace", "? blank", align=True)
"""A hypothesis: its score, the state of the language model, the node of the lexicon,
the token of its last frame, its trace, and whether that token is a blank."""
CANDIDATE = record(
    "f8 score single",
    "i4 lm label node token word parent lm_state",
    "f4 lm_score",
    "? blank",
    align=True,
)
"""A hypothesis one frame on. Where `label` is 0 or more its state is new: what `label`
makes of `lm`, with `lm_state` and `lm_score`. `single` is the score of its best way in,
by `word` and from `parent`; `score` is that of all."""
TRACE = record("i4 previous token word")
"""A frame of a path: the one before, its token, the word that ended there or -1."""

DONE, MORE_CANDIDATES, MORE_TRACE, MORE_ARCS, MISSED = range(5)
"""Outcomes of a frame; all but `DONE` leave everything as it was, for another try."""
BEAM_SIZE, TRACE_SIZE, NUM_STATES, NUM_ARCS, ANSWERED = range(5)
"""Places in `UtteranceState.counts`."""
COUNT, STATUS, NEXT_CUT = range(3)
"""Places in `Scratch.counts`."""
BEST, CUT = range(2)
"""Places in `Scratch.limits`."""
GOES_ON, ENDS = 1, 2
"""Bits of `Rules.arc_kind`: longer words begin with it, words end there."""


class Rules(NamedTuple):
    """Models and options of a search; N nodes, V tokens.

    Attributes:
        trie: The lexicon; that of no words where there is none.
        node_score: float32 [N], the best first word below each node, log10.
        arc_kind: uint8 [N - 1], of the node that each child of the trie is.
        arc_gain: float64 [N - 1], an upper bound of what a word that ends there may add
            to a score, less what was hoped for before; inf where nothing is known.
        label_gain: float64 [L], the same of each label, without a lexicon.
        automaton: The language model over labels from 1, in nats; that of no model
            where `asked`.
        asked: Whether somebody else's model answers, through the arcs of
            `UtteranceState.arc_next`.
        has_lexicon: Whether words are said, or tokens.
        log_add: Whether ways into one hypothesis are summed.
        beam_size: How many hypotheses live on.
        beam_size_token: How many tokens are looked at in a frame.
        beam_threshold: How far below the best hypotheses may be.
        lm_weight: Of the language model's log10.
        word_score: Added for a word.
        unk_score: Added for an unknown word; -inf for none.
        sil_score: Added for a frame of `sil`.
        blank: The token.
        sil: The token.
        unk: The label of unknown words.
    """

    trie: LexiconTrie
    node_score: np.ndarray
    arc_kind: np.ndarray
    arc_gain: np.ndarray
    label_gain: np.ndarray
    automaton: Automaton
    asked: bool
    has_lexicon: bool
    log_add: bool
    beam_size: int
    beam_size_token: int
    beam_threshold: float
    lm_weight: float
    word_score: float
    unk_score: float
    sil_score: float
    blank: int
    sil: int
    unk: int


class Scratch(NamedTuple):
    """Scratch of one frame: C candidates, V tokens.

    Attributes:
        candidates: `CANDIDATE` [C].
        slots: int32 [a power of 2, more than C], -1 or the candidate that is there.
        taken: int32 [C], the slot of each candidate.
        order: int32 [C], candidates, the best first.
        beside: int32 [C], for sorting.
        values: float64 [max(C, V)], for choosing.
        allowed: bool [V], the tokens looked at.
        tokens: int32 [V], those that a hypothesis may go on with.
        counts: int64 [3]; see `COUNT`.
        limits: float64 [2], the best score, and the one that nothing below will live.
    """

    candidates: np.ndarray
    slots: np.ndarray
    taken: np.ndarray
    order: np.ndarray
    beside: np.ndarray
    values: np.ndarray
    allowed: np.ndarray
    tokens: np.ndarray
    counts: np.ndarray
    limits: np.ndarray


class UtteranceState(NamedTuple):
    """Arrays of an utterance: K hypotheses, their trace, the language model's answers.

    A state of the language model here is a history of labels, as flashlight has it, or
    an object of the user's; an arc leads from a state by a label to another.

    Attributes:
        beam: `BEAM` [K], the best first.
        trace: `TRACE`, entry 0 stands before the first frame.
        counts: int64 [5]; see `BEAM_SIZE`.
        lm_state: int32, the automaton's state of each state.
        arc_slots: int32 [a power of 2], the arcs by what they are of.
        arc_of: int32 [., 2], state and label of each arc.
        arc_next: int32, the state; -1 while nobody has answered.
        arc_score: float32, log10.
    """

    beam: np.ndarray
    trace: np.ndarray
    counts: np.ndarray
    lm_state: np.ndarray
    arc_slots: np.ndarray
    arc_of: np.ndarray
    arc_next: np.ndarray
    arc_score: np.ndarray
