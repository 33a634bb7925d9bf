"""Arrays of the trie's CPU kernels: records, and tuples of arrays."""

import math
from typing import NamedTuple

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.kernels import max_credit_per_arc
from wfstdec.boost.tables import ListedWords, PhraseRows
from wfstdec.jit.records import record
from wfstdec.jit.sorting import STACK
from wfstdec.jit.vectors import LANES
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.search.logprobs import Pricing, pricing_of
from wfstdec.trie.options import TrieOptions, most_endings
from wfstdec.trie.search_space import OovTrie, SearchSpace, credit_cap

ENTRY = record(
    "f4 cost blank_cost nonblank_cost lookahead_cost",
    "i4 state node boost blank_trace nonblank_trace token_end",
    "u8 spelling text",
    "f8 blank_acoustic nonblank_acoustic",
)
"""Entry of the frontier, with a cost, trace and acoustic cost for each phase;
`token_end` is that of the blank phase, one after the last frame of the last token."""
CANDIDATE = record(
    "f4 cost lookahead_cost",
    "i4 state node boost source token pron",
    "u8 spelling text",
    "? from_nonblank to_nonblank",
)
"""Transition from a phase of the source to a phase of an entry: a token begins, or,
while a lattice is recorded, none does and `token` is -1."""
NEW_ENTRY = record(
    "f4 cost blank_cost nonblank_cost lookahead_cost nonblank_least",
    "i4 state node boost blank_candidate nonblank_candidate previous_same waits",
    "u8 spelling text",
)
"""Entry of the next frontier: costs; the cost of the best candidate of its nonblank
phase alone; the best candidate of each phase, or its substitute; the previous entry at
the same node, or -1; whether the repeat of its last token is still to be added."""
NO_CANDIDATE, FROM_BLANK, FROM_NONBLANK = -1, -2, -3
"""In place of a candidate: none, or the entry itself, from either of its phases."""
TRACE_NODE = record("i4 previous token pron start previous_end")
"""Token in the trace, as `trie_reference.TraceNode`."""
ENDING = record(
    "f4 cost",
    "i4 trace token_end pron",
    "u8 text",
    "f8 acoustic",
    "i4 entry phase",
    "f4 graph_cost boost_cost",
    "u4 olabel",
    "i4 best_of_text",
    "f4 cost_of_text",
)
"""One way to end; for lattices also the position of the entry, its phase (1: nonblank),
costs, and the label of the last word, 0 for none. In place n, of text number n: the
best ending and its cost."""
OUTCOME = record("f8 base", "i8 first count frames died complete")
"""End of an utterance, as in `Path`; there are `count` paths from `first`."""
PATH_END = record("f4 cost", "i4 pron", "f8 acoustic", "i8 first count before")
"""End of a path; its tokens are `count` rows from `first`; the token before them ends
at `before`."""
LATTICE_ARC = record("u4 state nextstate ilabel", "i4 pron", "f4 excess acoustic")
"""Arc that may be part of a lattice: states are twice an entry, plus one for its
nonblank phase; `pron` is the pronunciation that ends, -1 for none."""
LATTICE_ENTRY = record(
    "u8 spelling",
    "f4 cost lookahead_cost",
    "i4 state node boost frame nonblank_first unused",
)
"""Entry of some frontier, for a lattice; frames passed, and whether the search
continues from its nonblank phase."""
CACHED_LOOKAHEAD = record("u8 key", "f4 cost", "i4 row backoff_row unused")
"""Look-ahead in a state (upper half of the key) at a node (lower half), and the node's
`lookahead.Rows`."""
CACHED_STEP = record("u8 key", "f4 cost", "i4 nextstate")
"""Cost of a word (lower half of the key) in a state (upper half, and the highest bit),
and its next state."""
WORD_END = record("f4 cost credit bonus", "i4 state boost pron", "i8 label")
"""Word that ends at a node: its cost; credit from phrases of words, and bonus of a
list; the next states of the language model and of phrases; its pronunciation, and the
label by which the text grows."""
CACHE_BITS, STEP_CACHE_BITS = 12, 10
"""Sizes of the caches of look-aheads and steps, as powers of two: enough for tens of
frames, small enough for the processor's first caches."""
NUM_RANGES = 256
"""Ranges of cost for bucket sort of many tokens."""
OK, GROW_CANDIDATES, GROW_FRONTIER, GROW_TRACE, GROW_LATTICE, ASK_MODEL = range(6)
GROW_PATHS, GROW_ROWS = 6, 7
"""Status of a kernel: done, the array that is too small for the next frame or the end,
or a query of the language model is needed first."""
NEXT_UTTERANCE, NEXT_FRAME, NUM_PATHS, NUM_ROWS = range(4)
"""Positions in a kernel's progress: its next step; the paths and rows written."""
FRONTIER, TRACE, FRAMES, DIED, ACTIVE, CANDIDATES, STAMP, SLOT_MASK = range(8)
"""Positions in counts: entries, trace nodes, frames done, the frame that no entry
survived or -1, sums of entries and of candidates; in `Scratch` the last stamp of the
table, and its length in this frame minus one."""
NUM_ARCS, NUM_ENTRIES, FIRST = range(3)
"""Positions in the counts of `Record`: arcs, entries, and the first of the frontier."""
NO_LIMIT = 1 << 40
FIRST_ENTRIES = 1024
"""Initial capacity of a frontier, at most."""


class SearchParams(NamedTuple):
    """`TrieOptions` for the kernels."""

    beam: np.float32
    beam_size: int
    token_top_k: int
    sums: bool
    by_text: bool  # whether each entry belongs to one text
    nbest: int
    most_paths: int  # of an utterance, for `nbest` texts
    pricing: Pricing
    lm_scale: np.float32
    word_insertion: np.float32
    token_insertion: np.float32
    begin_credit: np.float32  # most by which a token lowers the cost, without boosts
    inside_credit: np.float32  # the same where no word ends
    word_credit: np.float32  # the same at a word end of known cost
    end_credit: np.float32  # the same without the cost of the language model
    boosted: bool
    credit_cap: np.float32  # see `search_space.py`
    num_labels: int  # word ids in phrases are below it
    has_words: bool  # whether words are boosted
    instalment: np.float32  # see `boost/kernels.py`


class Search(NamedTuple):
    """Tables and options of a search; read-only."""

    space: SearchSpace
    params: SearchParams
    words: ListedWords  # the rows are nodes
    phrases: PhraseRows
    oov: OovTrie
    has_oov: bool  # whether there are nodes of OOV or open words
    first_oov: int  # the first node of the second trie
    first_open: int  # the first node after it
    first: np.ndarray  # ENTRY [1], before the first frame
    first_base: float  # base of its cost


class UtteranceState(NamedTuple):
    """State of an utterance between frames."""

    frontier: np.ndarray  # ENTRY [beam_size]
    trace: np.ndarray  # TRACE_NODE [N]
    counts: np.ndarray  # int64 [8]
    base: np.ndarray  # float64 [1]: sum of the subtracted best costs


class EndedStates(NamedTuple):
    """Concatenated states of ended utterances."""

    frontier: np.ndarray  # ENTRY [F], each in order
    trace: np.ndarray  # TRACE_NODE [N]
    splits: np.ndarray  # int64 [B + 1, 2]
    counts: np.ndarray  # int64 [B, 8]
    base: np.ndarray  # float64 [B]


class Record(NamedTuple):
    """Arcs and entries kept by a recording search."""

    arcs: np.ndarray  # LATTICE_ARC [A], in order of frames
    entries: np.ndarray  # LATTICE_ENTRY [N]
    counts: np.ndarray  # int64 [3]
    limit: np.float32  # the beam of the lattice
    extra: np.ndarray  # float32 [2 N], scratch: the extra cost of each state
    number: np.ndarray  # int32 [N], scratch: the new number of each entry


class Scratch(NamedTuple):
    """Scratch of one thread; only the caches stay valid from frame to frame."""

    candidates: np.ndarray  # CANDIDATE [C], tokens that begin
    endings: np.ndarray  # ENDING [C], ways to end an utterance
    new_entries: np.ndarray  # NEW_ENTRY [C + beam_size], the frontier's own first
    keys: np.ndarray  # uint64 [max(C + beam_size, V)], for sorting
    again_costs: np.ndarray  # float32 [beam_size], each entry with its token repeated
    slots: np.ndarray  # int64 [2 ** n > 2 (C + beam_size)], hash table: stamp and entry
    stack: np.ndarray  # int64 [STACK]
    counts: np.ndarray  # int64 [8]
    sources: np.ndarray  # ENTRY [beam_size], the frontier that a frame started from
    unscaled: np.ndarray  # float32 [V], the acoustic costs of a frame
    costs: np.ndarray  # float32 [V], the same, scaled; followed by sixteen inf
    found_tokens: np.ndarray  # int32 [V], tokens that may begin, unordered
    found_costs: np.ndarray  # float32 [V], their unscaled costs
    range_ends: np.ndarray  # int32 [NUM_RANGES], where ranges of these costs end
    next_tokens: np.ndarray  # int32 [V], tokens that may begin, the least cost first
    next_costs: np.ndarray  # float32 [V], the costs of these by token, inf for others
    ranked_costs: np.ndarray  # float32 [V], the costs of `next_tokens`
    ranked_bits: np.ndarray  # uint64 [V + 1], the first n of these as bits modulo 64
    inside_tokens: np.ndarray  # int32 [V + 1], tokens after which no word ends
    inside_nodes: np.ndarray  # int32 [V + 1], their destination nodes
    lookahead_cache: np.ndarray  # CACHED_LOOKAHEAD [2 ** CACHE_BITS], by hashed key
    step_cache: np.ndarray  # CACHED_STEP [2 ** STEP_CACHE_BITS], likewise
    word_ends: np.ndarray  # WORD_END [most words of a node], of one node


def new_state(capacity: int, entries: int) -> UtteranceState:
    """Return the state of an utterance that has not begun."""
    return UtteranceState(
        frontier=np.zeros(min(entries, FIRST_ENTRIES), ENTRY),
        trace=np.empty(capacity, TRACE_NODE),
        counts=np.zeros(8, np.int64),
        base=np.zeros(1),
    )


def new_scratch(
    num_tokens: int, entries: int, candidates: int, most_words: int
) -> Scratch:
    """Return scratch for numbers of tokens, entries, candidates, words of a node."""
    return Scratch(
        candidates=np.empty(candidates, CANDIDATE),
        endings=np.empty(candidates, ENDING),
        new_entries=np.empty(candidates + entries, NEW_ENTRY),
        keys=np.empty(max(candidates + entries, num_tokens), np.uint64),
        again_costs=np.empty(entries, np.float32),
        slots=np.zeros(1 << (2 * (candidates + entries)).bit_length(), np.int64),
        stack=np.empty(STACK, np.int64),
        counts=np.zeros(8, np.int64),
        sources=np.empty(entries, ENTRY),
        unscaled=np.zeros(num_tokens, np.float32),
        costs=np.full(num_tokens + LANES, np.inf, np.float32),
        found_tokens=np.zeros(num_tokens + 1, np.int32),
        found_costs=np.zeros(num_tokens + 1, np.float32),
        range_ends=np.zeros(NUM_RANGES, np.int32),
        next_tokens=np.zeros(num_tokens, np.int32),
        next_costs=np.full(num_tokens, np.inf, np.float32),
        ranked_costs=np.zeros(num_tokens, np.float32),
        ranked_bits=np.zeros(num_tokens + 1, np.uint64),
        inside_tokens=np.empty(num_tokens + 1, np.int32),
        inside_nodes=np.empty(num_tokens + 1, np.int32),
        lookahead_cache=np.zeros(1 << CACHE_BITS, CACHED_LOOKAHEAD),
        step_cache=np.zeros(1 << STEP_CACHE_BITS, CACHED_STEP),
        word_ends=np.empty(most_words, WORD_END),
    )


def search_params(
    options: TrieOptions, space: SearchSpace, boosts: CompiledBoosts
) -> SearchParams:
    """Return the options for the kernels."""
    top_k, phrases, num_labels = options.token_top_k, boosts.phrases, NO_LIMIT
    if phrases is not None and phrases.unit == "word":
        num_labels = phrases.num_labels
    inside = max(0.0, -options.token_insertion)
    begin = inside + max(0.0, -options.word_insertion)
    end, word = begin, begin if np.isfinite(space.max_word_gain) else math.inf
    if options.lm_scale > 0:
        begin += options.lm_scale * float(space.max_word_gain)
    return SearchParams(
        beam=min(np.float32(options.beam), NO_CUTOFF),
        beam_size=options.beam_size,
        token_top_k=NO_LIMIT if top_k is None else top_k,
        sums=options.merge == "sum",
        by_text=options.merge == "sum" or options.nbest > 1,
        nbest=options.nbest,
        most_paths=most_endings(options, has_lexicon=space.has_lexicon),
        pricing=pricing_of(options),
        lm_scale=np.float32(options.lm_scale),
        word_insertion=np.float32(options.word_insertion),
        token_insertion=np.float32(options.token_insertion),
        begin_credit=np.float32(begin),
        inside_credit=np.float32(inside),
        word_credit=np.float32(word),
        end_credit=np.float32(end),
        boosted=bool(boosts),
        credit_cap=credit_cap(space, options.lm_scale),
        num_labels=num_labels,
        has_words=bool(boosts.words),
        instalment=max_credit_per_arc(options.beam),
    )
