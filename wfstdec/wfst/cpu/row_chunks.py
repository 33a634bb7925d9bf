"""An utterance that comes in chunks, on rows of LG.

    search = ChunkedRowSearch(rule, inputs, memory)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a BestPath

Blanks and repeats are not in the trace: what they cost is read from the log-probs when
it is folded. So those since the last fold are kept, `KEPT` bytes of them at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wfstdec.boost.tables import ListedWords
from wfstdec.jit import jit, kernel
from wfstdec.jit.handles import Handle, opened
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.traceback import History
from wfstdec.search.paths.traceback_kernels import Rule
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.row_boosts import RowPhrases
from wfstdec.wfst.cpu.row_frame import advance, restart
from wfstdec.wfst.cpu.row_memory import RowMemory, grown
from wfstdec.wfst.cpu.row_oov import RowOverlay
from wfstdec.wfst.cpu.row_traceback import fold_all, read_best
from wfstdec.wfst.cpu.rows import RowArrays
from wfstdec.wfst.options import SearchParams

KEPT = 1 << 19
"""So many bytes of log-probs are kept at most, or `FIRST_FRAMES`."""
FIRST_FRAMES = 128
"""Room for so many frames at first."""
RowInputs = tuple[
    Handle[RowArrays],
    Handle[SearchParams],
    Handle[ListedWords],
    Handle[RowPhrases] | None,
    Handle[RowOverlay] | None,
]
"""Inputs of a search on rows: the first arguments of kernels.

`RowPhrases` are needed for phrases, and for bonuses above an instalment; a `RowOverlay`
of this search's own for OOV words.
"""
_FLOAT = 4
_NO_ARCS = np.zeros(0, np.int64), np.zeros(0, np.float32)
"""What `History.read` is given where a path ends at its tip."""


@kernel
def pass_chunk(rows, params, words, phrases, added, scratch, state, logprobs, first):
    """`advance`, by handles."""
    return advance(
        *(opened(rows), opened(params), opened(words), opened(phrases)),
        *(opened(added), opened(scratch), opened(state), logprobs, first, None),
    )


@jit
def fold(rows, params, phrases, added, scratch, state, history, said):
    """`fold_all`, by handles."""
    return fold_all(
        *(opened(rows), opened(params), opened(phrases), opened(added)),
        *(opened(scratch), opened(state), history, said),
    )


@jit
def end(rows, params, phrases, added, scratch, state, history, said):
    """`read_best`, by handles."""
    return read_best(
        *(opened(rows), opened(params), opened(phrases), opened(added)),
        *(opened(scratch), opened(state), history, said),
    )


class ChunkedRowSearch:
    """The search of one utterance: `advance` any number of times, then `finish`.

    Args:
        rule: How paths through the graph are read.
        inputs: What it goes by.
        memory: What it borrows.
    """

    def __init__(self, rule: Rule, inputs: RowInputs, memory: RowMemory) -> None:
        self._inputs, self._memory = inputs, memory
        self._state = memory.states.take()
        restart(self._state.value)
        self._history = History(rule)
        num_tokens = len(inputs[0].value.repeat_arc)
        self._kept = np.empty((0, num_tokens), np.float32)
        self._most = max(FIRST_FRAMES, KEPT // (_FLOAT * num_tokens))
        self._first, self._last = 0, 0  # frames: at the last fold, and now

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and the sum of `active` states."""
        names = {"frames": k.FRAMES, "active": k.ACTIVE}
        return {name: int(self._counts[at]) for name, at in names.items()}

    @property
    def _counts(self) -> np.ndarray:
        return self._state.value.counts

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        first = 0
        while first < len(logprobs) and self._counts[k.DIED] < 0:
            if self._last - self._first == self._most:
                self._fold()
            part = logprobs[first : first + self._most - (self._last - self._first)]
            self._search(part)
            first += len(part)

    def finish(self) -> BestPath:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        counts = self._counts
        cost, final, final_cost, said = self._traced_by(end)
        path = BestPath(
            said=self._history.after_settled(*said),
            final_cost=float(final_cost) if final else 0.0,
            search_cost=float(self._state.value.base[0]) + cost,
            reached_final=final,
            num_frames=int(counts[k.FRAMES]),
            died_at_frame=int(counts[k.DIED]),
        )
        self._memory.states.give(self._state)
        return path

    def look(self) -> PathSoFar:
        """How far the search has come; it goes on as if nobody had looked."""
        self._begin()
        at, cost, ended = self._fold()
        history = self._history
        return PathSoFar(
            settled=history.settled,
            said_since=lambda *since: history.read(at, *_NO_ARCS, since),
            num_frames=int(self._counts[k.FRAMES]),
            final_cost=ended - cost,
        )

    def _begin(self) -> None:
        """Make the entries before the first frame, where none has come."""
        if self._counts[k.PHASE] == k.NEW:
            self._search(self._kept[:0])

    def _search(self, part: np.ndarray) -> None:
        """Pass the search through some frames, and keep them."""
        scratches = self._memory.scratches
        scratch = scratches.take(len(self._state.value.record))
        try:
            frame, status = 0, -1
            while status != k.OK:
                status, frame = self._advance(status, scratch, part, frame)
                scratch, self._state = grown(status, scratch, self._state)
        finally:
            scratches.give(scratch)
        kept, passed = self._last - self._first, int(self._counts[k.FRAMES])
        new, self._last = passed - self._last, passed
        if kept + new > len(self._kept):
            room = max(FIRST_FRAMES, 2 * kept, kept + new)
            longer = np.empty((min(room, self._most), self._kept.shape[1]), np.float32)
            longer[:kept] = self._kept[:kept]
            self._kept = longer
        self._kept[kept : kept + new] = part[:new]

    def _advance(
        self, status: int, scratch: Handle[k.RowScratch], part: np.ndarray, frame: int
    ) -> tuple[int, int]:
        """Call the kernel once, after what it found too small has grown."""
        return pass_chunk(*self._inputs, scratch, self._state, part, frame)

    def _fold(self) -> tuple[int, float, float]:
        """Keep of the trace what was said; (best entry, its cost, that of ending)."""
        best, tips, events = self._traced_by(fold)
        self._history.go_on_from(tips, events)
        self._first = self._last
        return best

    def _traced_by(self, trace: Any) -> Any:
        """Call `fold` or `end`."""
        rows, params, _, phrases, added = self._inputs
        scratches = self._memory.scratches
        scratch = scratches.take(len(self._state.value.record))
        try:
            return trace(
                *(rows, params, phrases, added, scratch, self._state),
                *(self._history.state, (self._kept, self._first)),
            )
        finally:
            scratches.give(scratch)
