"""Arrays of the trie's CPU kernels: records, and tuples of arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.kernels import instalment_size
from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.boost.tables import ListedWords, PhraseRows
from wfstdec.search.acoustics import Pricing, pricing_of
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.trie.added_trie import AddedTrie, credit_cap
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.search_space import SearchSpace
from wfstdec.trie.traceback import most_endings

ENTRY = np.dtype(
    [
        ("cost", "<f4"),
        ("blank_cost", "<f4"),
        ("nonblank_cost", "<f4"),
        ("lookahead_cost", "<f4"),
        ("state", "<i4"),
        ("node", "<i4"),
        ("boost", "<i4"),
        ("blank_trace", "<i4"),
        ("nonblank_trace", "<i4"),
        ("token_end", "<i4"),
        ("spelling", "<u8"),
        ("text", "<u8"),
        ("blank_acoustic", "<f8"),
        ("nonblank_acoustic", "<f8"),
    ]
)
"""An entry of the frontier, with a cost, trace and acoustic cost for each phase;
`token_end` is that of the blank phase, one behind the last frame of the last token."""
CANDIDATE = np.dtype(
    [
        ("cost", "<f4"),
        ("lookahead_cost", "<f4"),
        ("state", "<i4"),
        ("node", "<i4"),
        ("boost", "<i4"),
        ("source", "<i4"),
        ("token", "<i4"),
        ("pron", "<i4"),
        ("spelling", "<u8"),
        ("text", "<u8"),
        ("from_nonblank", "?"),
        ("to_nonblank", "?"),
    ]
)
"""A way into a phase of an entry from a phase of its source: a token begins, or, while
a lattice is noted, none does and `token` is -1."""
NEW_ENTRY = np.dtype(
    [
        ("cost", "<f4"),
        ("blank_cost", "<f4"),
        ("nonblank_cost", "<f4"),
        ("lookahead_cost", "<f4"),
        ("state", "<i4"),
        ("node", "<i4"),
        ("boost", "<i4"),
        ("blank_candidate", "<i4"),
        ("nonblank_candidate", "<i4"),
        ("same_place", "<i4"),
        ("nonblank_least", "<f4"),
        ("waits", "<i4"),
        ("spelling", "<u8"),
        ("text", "<u8"),
    ]
)
"""An entry of the next frontier while it is made: its costs; the best candidate of each
phase, or what stands for one; the last entry before it at the same place or -1; what
the best candidate of its nonblank phase costs alone; whether its own token has still to
be added again."""
NO_CANDIDATE, FROM_BLANK, FROM_NONBLANK = -1, -2, -3
"""In the place of a candidate: none, or the entry itself, from either of its phases."""
TRACE_NODE = np.dtype(
    [
        ("previous", "<i4"),
        ("token", "<i4"),
        ("pron", "<i4"),
        ("start", "<i4"),
        ("previous_end", "<i4"),
    ]
)
"""A token in the trace, as `endings.TraceNode`."""
ENDING = np.dtype(
    [
        ("cost", "<f4"),
        ("trace", "<i4"),
        ("token_end", "<i4"),
        ("pron", "<i4"),
        ("text", "<u8"),
        ("acoustic", "<f8"),
        ("entry", "<i4"),
        ("phase", "<i4"),
        ("graph_cost", "<f4"),
        ("boost_cost", "<f4"),
        ("olabel", "<u4"),
        ("best_of_text", "<i4"),
        ("cost_of_text", "<f4"),
    ]
)
"""A way to end, as `traceback.Ending`; then what a lattice has of it: the position of
the entry, its phase (1: nonblank), costs, and the label of the last word, 0 for none.
Then, in place n, of text number n: the best ending, and what it costs."""
OUTCOME = np.dtype(
    [
        ("base", "<f8"),
        ("first", "<i8"),
        ("count", "<i8"),
        ("frames", "<i8"),
        ("died", "<i8"),
        ("complete", "<i8"),
    ]
)
"""An utterance's end, as `traceback.Outcome`; it has `count` paths from `first`."""
PATH_END = np.dtype(
    [
        ("cost", "<f4"),
        ("pron", "<i4"),
        ("acoustic", "<f8"),
        ("first", "<i8"),
        ("count", "<i8"),
        ("before", "<i8"),
    ]
)
"""End of a path; its tokens are `count` rows from `first`, and the token before these
ends at `before`."""
NOTED = np.dtype(
    [
        ("state", "<u4"),
        ("nextstate", "<u4"),
        ("ilabel", "<u4"),
        ("pron", "<i4"),
        ("excess", "<f4"),
        ("acoustic", "<f4"),
    ]
)
"""An arc that may be part of a lattice: states are twice a place, one more for its
nonblank phase; `pron` is the pronunciation that ends, -1 for none."""
PLACE = np.dtype(
    [
        ("spelling", "<u8"),
        ("cost", "<f4"),
        ("lookahead_cost", "<f4"),
        ("state", "<i4"),
        ("node", "<i4"),
        ("boost", "<i4"),
        ("frame", "<i4"),
        ("nonblank_first", "<i4"),
        ("unused", "<i4"),
    ]
)
"""An entry of some frontier, for a lattice; frames passed, and whether the search goes
on from its nonblank phase."""
CACHED_LOOKAHEAD = np.dtype(
    [
        ("key", "<u8"),
        ("cost", "<f4"),
        ("row", "<i4"),
        ("backoff_row", "<i4"),
        ("unused", "<i4"),
    ]
)
"""The look-ahead in a state (the upper half of the key) at a node (the lower), and the
node's `lookahead.Rows`."""
CACHED_STEP = np.dtype([("key", "<u8"), ("cost", "<f4"), ("nextstate", "<i4")])
"""The cost of a word (the lower half of the key) in a state (the upper half, and the
highest bit), and where it leads."""
CACHE_BITS, STEP_CACHE_BITS = 12, 10
"""The caches have so many look-aheads and steps, as powers of two: what some tens of
frames need, so that they stay in the processor's first caches."""
NUM_RANGES = 256
"""Ranges of cost that many tokens are laid out by."""
OK, GROW_CANDIDATES, GROW_FRONTIER, GROW_TRACE, GROW_NOTED, ASK_MODEL = range(6)
GROW_PATHS, GROW_ROWS = 6, 7
"""Statuses of a kernel: done, which arrays are too small for the next frame or for the
end, or that the language model must be asked before it."""
NEXT_UTTERANCE, NEXT_FRAME, NUM_PATHS, NUM_ROWS = range(4)
"""Positions in how far a kernel has come: what it does next; what it has written."""
FRONTIER, TRACE, FRAMES, DIED, ACTIVE, CANDIDATES, STAMP, SLOT_MASK = range(8)
"""Positions in counts: entries, trace nodes, frames done, the frame that no entry
survived or -1, sums of entries and of candidates; in `Scratch` the last stamp of the
table, and its length in this frame less one."""
NUM_ARCS, NUM_PLACES, FIRST = range(3)
"""Positions in the counts of `Record`: arcs, places, and the first of the frontier."""
NO_LIMIT = 1 << 40


class SearchParams(NamedTuple):
    """`TrieOptions` as the kernels take them."""

    beam: np.float32
    beam_size: int
    token_top_k: int
    sums: bool
    by_text: bool  # whether entries have texts of their own
    nbest: int
    most_paths: int  # of an utterance, for so many texts
    pricing: Pricing
    lm_scale: np.float32
    word_insertion: np.float32
    token_insertion: np.float32
    begin_credit: np.float32  # the most by which a token lowers the cost, boosts apart
    inside_credit: np.float32  # the same where no word ends
    word_credit: np.float32  # the same where one ends whose cost is known
    end_credit: np.float32  # the same but for what the language model costs
    boosted: bool
    credit_cap: np.float32  # see `added_trie.py`
    num_labels: int  # word ids that phrases know are below it
    has_words: bool  # whether words are boosted
    instalment: np.float32  # see `boost/kernels.py`


class Search(NamedTuple):
    """Tables and options that an utterance is searched with; nothing in it changes."""

    space: SearchSpace
    params: SearchParams
    words: ListedWords  # the rows are nodes
    phrases: PhraseRows
    added: AddedTrie
    beside: bool  # whether there are nodes beside the lexicon's trie
    first_added: int  # the first node of the second trie
    first_open: int  # the first node behind it
    first: np.ndarray  # ENTRY [1], before the first frame
    first_base: float  # what its cost is relative to


class UtteranceState(NamedTuple):
    """State of an utterance between frames."""

    frontier: np.ndarray  # ENTRY [beam_size]
    trace: np.ndarray  # TRACE_NODE [N]
    counts: np.ndarray  # int64 [8]
    base: np.ndarray  # float64 [1]: what re-basing took off


class Record(NamedTuple):
    """Arcs and entries that a recording search notes.

    Attributes:
        arcs: NOTED [A], in the order of frames.
        places: PLACE [N], likewise; those of the frontier in its order.
        counts: int64 [3].
        limit: float32, the beam of the lattice.
        extra: float32 [2 N], scratch: the extra cost of each state.
        number: int32 [N], scratch: the new number of each place.
    """

    arcs: np.ndarray
    places: np.ndarray
    counts: np.ndarray
    limit: np.float32
    extra: np.ndarray
    number: np.ndarray


class Scratch(NamedTuple):
    """Scratch of one thread; only the caches stay valid from frame to frame.

    Attributes:
        candidates: CANDIDATE [C], tokens that begin.
        endings: ENDING [C], ways to end an utterance.
        new_entries: NEW_ENTRY [C + beam_size], the frontier's own first.
        keys: uint64 [max(C + beam_size, V)], what is sorted.
        again_costs: float32 [beam_size], of each entry by its last token again.
        slots: int64 [2 ** n >= 2 C], a hash table: stamp and entry.
        stack: int64 [ordering.STACK].
        counts: int64 [8].
        sources: ENTRY [beam_size], the frontier that a frame started from.
        unscaled, costs: float32 [V], the acoustic costs of a frame; the second has
            sixteen more behind its end, all inf.
        found_tokens: int32 [V], tokens that may begin, in no order.
        found_costs: float32 [V], their unscaled costs.
        range_ends: int32 [NUM_RANGES], where ranges of these costs end.
        next_tokens: int32 [V], tokens that may begin, the least cost first.
        next_costs: float32 [V], the costs of these by token, inf for others.
        ranked_costs: float32 [V], the costs of `next_tokens`.
        ranked_bits: uint64 [V + 1], the first so many of these as bits modulo 64.
        inside_tokens, inside_nodes: int32 [V + 1], tokens that may follow at a node
            without the end of a word, and where they lead.
        lookahead_cache: CACHED_LOOKAHEAD [2 ** CACHE_BITS], by the hash of the key.
        step_cache: CACHED_STEP [2 ** STEP_CACHE_BITS], likewise.
        word_costs, word_states: float32, int32 [most words of a node], of the words
            that end at a node: costs and the next states of the language model.
        word_credits, word_boosts: float32, int32 [most words of a node], of the same:
            bonuses and what phrases of words credit; the next states of these.
        word_bonuses: float32 [most words of a node], of the same: those of a list that
            adds them.
        word_prons, word_labels: int32, int64 [most words of a node], of the same:
            pronunciations, and what the text grows by.
    """

    candidates: np.ndarray
    endings: np.ndarray
    new_entries: np.ndarray
    keys: np.ndarray
    again_costs: np.ndarray
    slots: np.ndarray
    stack: np.ndarray
    counts: np.ndarray
    sources: np.ndarray
    unscaled: np.ndarray
    costs: np.ndarray
    found_tokens: np.ndarray
    found_costs: np.ndarray
    range_ends: np.ndarray
    next_tokens: np.ndarray
    next_costs: np.ndarray
    ranked_costs: np.ndarray
    ranked_bits: np.ndarray
    inside_tokens: np.ndarray
    inside_nodes: np.ndarray
    lookahead_cache: np.ndarray
    step_cache: np.ndarray
    word_costs: np.ndarray
    word_states: np.ndarray
    word_credits: np.ndarray
    word_boosts: np.ndarray
    word_bonuses: np.ndarray
    word_prons: np.ndarray
    word_labels: np.ndarray


def search_params(
    options: TrieOptions, space: SearchSpace, boosts: CompiledBoosts
) -> SearchParams:
    """The options as the kernels take them."""
    top_k = options.token_top_k
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
        num_labels=_num_words(boosts.phrases),
        has_words=bool(boosts.words),
        instalment=instalment_size(options.beam),
    )


def _num_words(phrases: PhraseBoosts | None) -> int:
    """Phrases know the word ids below it."""
    if phrases is None or phrases.unit != "word":
        return NO_LIMIT
    return phrases.num_labels
