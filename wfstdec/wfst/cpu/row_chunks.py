"""An utterance that comes in chunks, on rows of LG.

    search = ChunkedRowSearch(rule, inputs, memory)
    search.advance(logprobs)                      # float32 [T, V], any number of times
    search.finish()                               # a BestPath

Blanks and repeats are not in the trace: what they cost is read from the log-probs when
it is folded. So the frames since the last fold are kept, `KEPT` of them at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wfstdec.boost.tables import ListedWords
from wfstdec.search.paths.label_path import BestPath
from wfstdec.search.paths.so_far import PathSoFar
from wfstdec.search.paths.traceback import History
from wfstdec.search.paths.traceback_kernels import Rule
from wfstdec.wfst.cpu import row_arrays as k
from wfstdec.wfst.cpu.row_boosts import RowPhrases
from wfstdec.wfst.cpu.row_frame import IN_OTHER_SCRATCH, advance, restart
from wfstdec.wfst.cpu.row_memory import RowMemory, grown
from wfstdec.wfst.cpu.row_oov import RowOverlay
from wfstdec.wfst.cpu.row_traceback import fold_all, fold_best
from wfstdec.wfst.cpu.rows import RowArrays
from wfstdec.wfst.options import SearchParams

KEPT = 128
"""So many frames are kept at most: half a megabyte with 1,025 tokens."""
RowInputs = tuple[
    RowArrays, SearchParams, ListedWords, RowPhrases | None, RowOverlay | None
]
"""Inputs of a search on rows: the first arguments of kernels.

`RowPhrases` are needed for phrases, and for bonuses above an instalment; a `RowOverlay`
of this search's own for OOV words.
"""
_NO_ARCS = np.zeros(0, np.int64), np.zeros(0, np.float32)
"""What `History.read` is given where a path ends at its tip."""


class ChunkedRowSearch:
    """The search of one utterance: `advance` any number of times, then `finish`.

    Args:
        rule: How paths through the graph are read.
        inputs: What it goes by.
        memory: What it borrows.
    """

    def __init__(self, rule: Rule, inputs: RowInputs, memory: RowMemory) -> None:
        self._rule, self._inputs, self._memory = rule, inputs, memory
        self._state = memory.states.take()
        restart(self._state)
        self._history = History(rule)
        self._kept = np.empty((0, len(inputs[0].repeat_arc)), np.float32)
        self._first, self._last = 0, 0  # frames: at the last fold, and now

    @property
    def counts(self) -> dict[str, int]:
        """Work done so far: `frames`, and the sum of `active` states."""
        names = {"frames": k.FRAMES, "active": k.ACTIVE}
        return {name: int(self._state.counts[at]) for name, at in names.items()}

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        first = 0
        while True:
            part = logprobs[first : first + KEPT - (self._last - self._first)]
            self._search(part)
            first += len(part)
            if first >= len(logprobs) or self._state.counts[k.DIED] >= 0:
                return
            self._fold()

    def finish(self) -> BestPath:
        """End the utterance; the search cannot be used afterwards."""
        self._begin()
        counts = self._state.counts
        cost, final, final_cost, tip, events = self._folded_by(fold_best)
        self._history.go_on_from(tip, events)
        path = BestPath(
            said=self._history.read(0, *_NO_ARCS),
            final_cost=float(final_cost) if final else 0.0,
            search_cost=float(self._state.base[0]) + cost,
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
            num_frames=int(self._state.counts[k.FRAMES]),
            final_cost=ended - cost,
        )

    def _begin(self) -> None:
        """Make the entries before the first frame, where none has come."""
        if self._state.counts[k.PHASE] == k.NEW:
            self._search(self._kept[:0])

    def _search(self, part: np.ndarray) -> None:
        """Pass the search through some frames, and keep them."""
        scratch = self._memory.scratches.take(len(self._state.record))
        try:
            frame, status = IN_OTHER_SCRATCH, -1
            while status != k.OK:
                status, frame = advance(
                    *(*self._inputs, scratch, self._state, part, frame)
                )
                scratch, self._state = grown(status, scratch, self._state)
        finally:
            self._memory.scratches.give(scratch)
        kept = self._last - self._first
        self._last = int(self._state.counts[k.FRAMES])
        if self._last - self._first > len(self._kept):
            longer = np.empty((KEPT, self._kept.shape[1]), np.float32)
            longer[:kept] = self._kept[:kept]
            self._kept = longer
        new = self._last - self._first - kept
        self._kept[kept : kept + new] = part[:new]

    def _fold(self) -> tuple[int, float, float]:
        """Keep of the trace what was said; (best entry, its cost, that of ending)."""
        best, tips, events = self._folded_by(fold_all)
        self._history.go_on_from(tips, events)
        self._first = self._last
        return best

    def _folded_by(self, fold: Any) -> Any:
        """Call `fold_all` or `fold_best`."""
        rule, events, tips = self._history.state
        rows, params, _, phrases, added = self._inputs
        scratch = self._memory.scratches.take(len(self._state.record))
        try:
            said = self._kept, self._first
            return fold(
                *(rows, rule, params, phrases, added),
                *(scratch, self._state, said, tips, events),
            )
        finally:
            self._memory.scratches.give(scratch)
