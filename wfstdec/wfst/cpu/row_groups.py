"""Whole utterances on rows of LG, a few in one call: the search of most of them.

    search = RowSearch(rows, rule, 4096)
    search.decode(utterances, params, pace)       # their BestPaths

Lattices are recorded an utterance at a time (`row_recording.py`). Nodes of
the trace that nobody comes from are dropped when there is no room; what is left is
about one for each token said, so that no utterance is too long.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
from numpy import int64, uint32, uint64

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.tables import NO_PHRASES, BoostTables, ListedWords, PhraseRows
from wfstdec.graph.overlay import Overlay
from wfstdec.jit import inlined, kernel
from wfstdec.jit.handles import Handle, opened
from wfstdec.jit.pool import Once
from wfstdec.jit.records import record
from wfstdec.search.acoustics import penalised
from wfstdec.search.interrupts import Pace, check
from wfstdec.search.paths.label_path import BestPath, PathTokens
from wfstdec.search.paths.traceback import read_paths
from wfstdec.search.paths.traceback_kernels import Rule
from wfstdec.search.scheduling import filled_up, stretch
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.row_boosts import FIRST_TOKEN, RowPhrases, row_phrases
from wfstdec.wfst.cpu.row_chunks import ChunkedRowSearch, RowInputs
from wfstdec.wfst.cpu.row_entries import arc_at, spread, token_at
from wfstdec.wfst.cpu.row_frame import advance, restart
from wfstdec.wfst.cpu.row_memory import RowMemory, grown
from wfstdec.wfst.cpu.row_oov import RowOverlay, row_overlay, with_slots
from wfstdec.wfst.cpu.row_recording import RecordingRowSearch
from wfstdec.wfst.cpu.row_traceback import end_of
from wfstdec.wfst.cpu.rows import ADDED, RECORDS, RowArrays, words_by_row
from wfstdec.wfst.options import SearchParams, WfstOptions

STEPS_PER_FRAME = 2
"""Room for the arcs of paths at first: epsilon arcs are more."""
GROW_STEPS = -1
"""Status of the kernel beside those of `advance`: no room for a path."""
STEP = record("u4 arc", "f4 acoustic")
"""An arc of a path and its unscaled acoustic cost."""
END = record("f8 search_cost final_cost", "i8 first count frames died final")
"""End of an utterance, and where its path stands in the steps, the last one first."""
_NONE = uint32(k.NONE)
_ZERO = uint64(0)
_EPSILON_ARC, _FROM_TOKEN = uint32(k.EPSILON_ARC), uint32(k.FROM_TOKEN)
_ADDED, _RECORDS = uint32(ADDED), uint32(RECORDS)
_handle_of = functools.lru_cache(maxsize=64)(Handle[SearchParams])
"""The handle of options."""


@kernel
def search_rows(
    rows, params, words, phrases, added, scratch, state, utterances, ends, steps, at
):
    """Search utterances one after the other, from a frame of one of them on.

    `rows` to `state`: handles, or None. `at`: int64 [3], the utterance and the frame to
    begin with, or to go on with when something has grown; steps so far.

    Returns:
        OK, or what must grow.
    """
    rows, params, words = opened(rows), opened(params), opened(words)
    phrases, added = opened(phrases), opened(added)
    scratch, state = opened(scratch), opened(state)
    for i in range(at[0], len(ends)):
        if at[1] == 0:
            restart(state)
        status, frame = advance(
            *(rows, params, words, phrases, added, scratch, state),
            *(utterances[i], at[1], None),
        )
        at[0], at[1] = i, frame
        if status != k.OK:
            return status
        if not _end(
            *(rows, params, phrases, added, scratch, state),
            *(utterances[i], ends[i], steps, at[2]),
        ):
            return GROW_STEPS
        at[0], at[1], at[2] = i + 1, 0, at[2] + ends[i].count
    return k.OK


@inlined
def _end(rows, params, phrases, added, scratch, state, logprobs, end, steps, first):
    """Write the path of an utterance from `first` on; whether there was room.

    Blanks and repeats are put back between the nodes. Nothing is changed: where only
    some frames were searched, the others follow.
    """
    counts = state.counts
    entries = scratch.ends[: spread(rows, phrases, added, scratch, state)]
    best, cost, final = end_of(rows, params, phrases, added, scratch, state, entries)
    flagged, node, frame = (
        entries[best].arc,
        entries[best].node,
        int64(counts[k.FRAMES]),
    )
    behind = frame + 1  # from this frame on they are blanks
    if flagged & _FROM_TOKEN == uint32(0):
        behind = int64(state.ended[uint64(flagged)])
    length = first
    while True:
        one = state.nodes[uint64(node)]
        label, repeat = _repeated(rows, added, state, node)
        while frame > int64(one.frame):
            if length == len(steps):
                return False
            step = steps[length]
            if frame >= behind:
                blank = logprobs[frame - 1, rows.blank]
                step.arc = rows.blank_arc
                step.acoustic = -penalised(params.pricing, blank)
            else:
                step.arc = repeat
                step.acoustic = -logprobs[frame - 1, label]
            length, frame = length + 1, frame - 1
        if one.arc == _NONE:
            break
        if length == len(steps):
            return False
        step = steps[length]
        if one.arc & _EPSILON_ARC:
            step.arc = rows.epsilon_arc[uint64(one.arc & ~_EPSILON_ARC)]
            step.acoustic, behind = np.float32(0), int64(one.ended)
        else:
            step.arc = arc_at(rows, added, one.arc)
            step.acoustic = -logprobs[frame - 1, label]
            frame, behind = frame - 1, int64(one.ended)
        length, node = length + 1, one.before
    end.search_cost = state.base[0] + np.float64(cost)
    end.final_cost = 0.0
    if final:
        end.final_cost = np.float64(rows.final_cost[entries[best].state])
    end.first, end.count = first, length - first
    end.frames, end.died = counts[k.FRAMES], counts[k.DIED]
    end.final = int64(final)
    return True


@inlined
def _repeated(rows, added, state, node):
    """The token of a node, that of the last token arc, and an arc that repeats it.

    Token 0 where there is none.
    """
    one = state.nodes[uint64(node)]
    while one.arc & _EPSILON_ARC and one.arc != _NONE:
        one = state.nodes[uint64(one.before)]
    if one.arc == _NONE:
        return _ZERO, rows.repeat_arc[_ZERO]
    token = token_at(rows, added, one.arc)
    if added is not None:
        if one.arc >= uint32(len(rows.arcs)):
            a = uint64(one.arc) - uint64(len(rows.arcs))
            if added.next[a] & _ADDED:  # the graph may have no word with this token
                return token, added.repeat_arc[uint64(added.next[a] & _RECORDS)]
    return token, rows.repeat_arc[token]


class RowSearch:
    """Searches of whole utterances on rows.

    Args:
        rows: The graph.
        rule: How paths through it are read.
        first_capacity: Entries that the arrays hold at first; they grow.
    """

    def __init__(self, rows: RowArrays, rule: Rule, first_capacity: int) -> None:
        self._rows, self._rule, self._handle = rows, rule, Handle(rows)
        self._memory = RowMemory(rows, first_capacity)
        self._words = Once(self._list)
        self._phrases = Once(self._lay_out)
        self._no_phrases = self._on_rows(NO_PHRASES)
        self._overlays: Once[Overlay, RowOverlay] = Once(partial(row_overlay, rows))

    @cached_property
    def _tables(self) -> BoostTables:
        return BoostTables(*words_by_row(self._rows), first_token=FIRST_TOKEN)

    def _list(self, boosts: CompiledBoosts) -> Handle[ListedWords]:
        return Handle(self._tables.words(boosts))

    def _lay_out(self, boosts: CompiledBoosts) -> Handle[RowPhrases]:
        return self._on_rows(self._tables.phrases(boosts))

    def _on_rows(self, phrases: PhraseRows) -> Handle[RowPhrases]:
        return Handle(row_phrases(phrases, len(self._rows.repeat_arc)))

    def inputs_of(
        self, params: SearchParams, boosts: CompiledBoosts, overlay: Overlay | None
    ) -> RowInputs:
        """Inputs of a search; boosts are laid out once, and kept while they live.

        Raises:
            BoostError: Phrases have too many states.
            GraphError: OOV words have too many nodes.
        """
        phrases, added, top_bonus = None, None, boosts.words.top_bonus
        if overlay is not None:
            added = Handle(with_slots(self._overlays.of(overlay)))
            top_bonus = top_bonus + overlay.top_bonus
        if boosts.phrases is not None:
            phrases = self._phrases.of(boosts)
        elif top_bonus > params.instalment:
            phrases = self._no_phrases
        options = _handle_of(params)
        return self._handle, options, self._words.of(boosts), phrases, added

    def start(self, inputs: RowInputs) -> ChunkedRowSearch:
        """Begin an utterance that comes in chunks."""
        return ChunkedRowSearch(self._rule_of(inputs), inputs, self._memory)

    def start_recording(
        self, inputs: RowInputs, splits: np.ndarray, options: WfstOptions
    ) -> RecordingRowSearch:
        """Begin an utterance, whole or in chunks, for a lattice."""
        return RecordingRowSearch(
            self._rule_of(inputs), inputs, self._memory, splits, options
        )

    def _rule_of(self, inputs: RowInputs) -> Rule:
        """How paths of a search are read."""
        added = inputs[-1]
        return (
            self._rule if added is None else self._rule._replace(added=added.value.arcs)
        )

    def decode(
        self,
        utterances: Sequence[np.ndarray],
        inputs: RowInputs,
        pace: Pace,
    ) -> list[BestPath]:
        """Decode utterances, at most `GROUP`; log-probs float32 [T, V], C order."""
        state = self._memory.states.take()
        scratch = self._memory.scratches.take(len(state.value.record))
        given = filled_up(utterances)
        ends, at = np.zeros(len(utterances), END), np.zeros(3, np.int64)
        steps = np.empty(STEPS_PER_FRAME * sum(map(len, utterances)) + 1, STEP)
        while True:
            now, behind, cut, frames = stretch(given, len(ends), at, pace.frames)
            began = time.perf_counter()
            status = search_rows(*inputs, scratch, state, now, ends[:behind], steps, at)
            if status == k.OK:
                pace.note(frames, time.perf_counter() - began)
                if cut:  # no end yet: the next call goes on
                    last = behind - 1
                    at[:] = last, cut, at[2] - ends[last]["count"]
                elif behind == len(ends):
                    break
                # Ctrl-C is heard between calls, which take so long as `pace` says.
                check()
            elif status == GROW_STEPS:
                steps = k.twice(steps)
            else:
                scratch, state = grown(status, scratch, state)
        self._memory.scratches.give(scratch)
        self._memory.states.give(state)
        first, count = map(np.ascontiguousarray, (ends["first"], ends["count"]))
        said = read_paths(self._rule_of(inputs), steps, first, count)
        return [_path(*one) for one in zip(said, ends, strict=True)]


def _path(said: PathTokens, end: np.void) -> BestPath:
    search_cost, final_cost, _, _, frames, died, final = end.tolist()
    return BestPath(said, final_cost, search_cost, bool(final), frames, died)
