"""Whole utterances, a few in one call of a kernel: no Python between them.

    GroupSearch(memory, inputs, None).decode(utterances, pace)    # their BestPaths

At narrow beams a search takes a third of a millisecond, and starting it, ending it and
reading its path a fifth of that, under the GIL. Results are those of one search for
each. Where a trace becomes too long to be kept as it is, that search is made: it folds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy import int64, uint32

from wfstdec.jit import inlined, kernel
from wfstdec.search.interrupts import Pace, check, pass_through
from wfstdec.search.paths.label_path import BestPath, PathTokens
from wfstdec.search.paths.traceback import read_paths
from wfstdec.search.paths.traceback_kernels import Rule
from wfstdec.wfst.cpu import arrays as k
from wfstdec.wfst.cpu.frame import advance, restart
from wfstdec.wfst.cpu.search import LONG_TRACE, CpuSearch
from wfstdec.wfst.final import best_end

STEPS_PER_FRAME = 2
"""Room for the arcs of paths at first: epsilon arcs are more."""
GROW_STEPS = -1
"""What the kernel returns besides what `advance` does: no room for a path."""
STEP = np.dtype([("arc", "<u4"), ("acoustic", "<f4")])
"""An arc of a path and its unscaled acoustic cost."""
END = np.dtype(
    [
        ("search_cost", "<f8"),
        ("final_cost", "<f8"),
        ("first", "<i8"),
        ("count", "<i8"),
        ("frames", "<i8"),
        ("died", "<i8"),
        ("final", "<i8"),
    ]
)
"""How an utterance ended; where its path stands among the steps, the last one first."""
_NO_NODE = uint32(k.NONE)
_NOTHING = np.zeros((0, 0), np.float32)
"""Fills what is given up to `k.GROUP`: a kernel is compiled for one length."""


@kernel
def search_group(
    graph,
    params,
    words,
    phrases,
    scratch,
    utterance,
    at_end,
    utterances,
    ends,
    steps,
    at,
):
    """Search utterances one after the other, from a frame of one of them on.

    `at_end`: what `best_end` takes of boosts. `at`: int64 [3], the utterance and the
    frame to begin with, or to go on with when something has grown; steps so far.

    Returns:
        OK, or what must grow.
    """
    for i in range(at[0], len(ends)):
        if at[1] == 0:
            restart(utterance)
        chunk, first = utterances[i], at[1]
        status, frame = advance(
            graph, params, words, phrases, None, scratch, utterance, chunk, first, None
        )
        at[0], at[1] = i, frame
        if status != k.OK:
            return status
        if not _end(graph, params, utterance, at_end, ends[i], steps, at[2]):
            return GROW_STEPS
        at[0], at[1], at[2] = i + 1, 0, at[2] + ends[i].count
    return k.OK


@inlined
def _end(graph, params, utterance, at_end, end, steps, first):
    """Write the path of an utterance from `first` on; whether there was room."""
    counts = utterance.counts
    entries = utterance.frontier[: counts[k.FRONTIER]]
    survived = counts[k.DIED] < 0
    best, cost, final = best_end(
        entries, graph.final_cost, params.lm_scale, survived, at_end
    )
    length, node = first, entries[best].node
    while utterance.trace[node].arc != _NO_NODE:
        if length == len(steps):
            return False
        steps[length].arc = utterance.trace[node].arc
        steps[length].acoustic = utterance.trace[node].acoustic
        length += 1
        node = utterance.trace[node].previous
    end.search_cost = utterance.base[0] + np.float64(cost)
    end.final_cost = 0.0
    if final:
        end.final_cost = np.float64(graph.final_cost[entries[best].state])
    end.first, end.count = first, length - first
    end.frames, end.died = counts[k.FRAMES], counts[k.DIED]
    end.final = int64(final)
    return True


class GroupSearch(CpuSearch):
    """The searches of a few whole utterances, without added words."""

    def decode(self, utterances: Sequence[np.ndarray], pace: Pace) -> list[BestPath]:
        """Find the best paths; log-probs float32 [T, V], C order, at most `k.GROUP`."""
        scratches = self._memory.scratches[self._boosted]
        scratch = scratches.take(0)

        def search(*given: np.ndarray) -> int:
            boosts = self._boosts_at_end()
            return search_group(*self._inputs, scratch, self._utterance, boosts, *given)

        def grow(status: int, frames_left: int) -> bool:
            nonlocal scratch
            # A trace that is long is folded rather than made longer: the utterance then
            # goes on by itself, as a session does.
            if status != k.GROW_TRACE:
                scratch = self._grow(status, scratch, frames_left)
                return True
            short = len(self._utterance.trace) < LONG_TRACE
            if short:
                self._lengthen_trace(len(scratch.next))
            return short

        def alone(rest: np.ndarray) -> BestPath:
            return self._finish_alone(rest, pace)

        rule = self._memory.rule
        try:
            paths = decode_whole(utterances, search, grow, rule, pace, alone=alone)
        finally:
            scratches.give(scratch)
        self._memory.states[self._boosted].give(self._utterance)
        return paths

    def _finish_alone(self, rest: np.ndarray, pace: Pace) -> BestPath:
        """Go on with an utterance as a search of its own, which folds its trace."""
        pass_through(self, rest, pace)
        path = self.finish()
        self._restart()
        return path


def decode_whole(
    utterances: Sequence[np.ndarray],
    search: Callable[..., int],
    grow: Callable[[int, int], bool],
    rule: Rule,
    pace: Pace,
    *,
    alone: Callable[[np.ndarray], BestPath] | None = None,
) -> list[BestPath]:
    """Decode a few whole utterances with one search after the other.

    Args:
        utterances: At most `k.GROUP`.
        search: Calls a kernel with what is done in one call: `GROUP` utterances, and
            `ends`, `steps` and `at` of `search_group`; gives its status.
        grow: Makes room, given a status and how many frames are to go; False where
            the utterance is to go on by itself.
        rule: How paths are read.
        pace: How much is done in one call.
        alone: Goes on with the rest of an utterance by itself.
    """
    assert len(utterances) <= k.GROUP
    # Always as many arrays: a kernel is compiled for a number of them.
    given = (*utterances, *[_NOTHING] * (k.GROUP - len(utterances)))
    ends, at = np.zeros(len(utterances), END), np.zeros(3, np.int64)
    steps = np.empty(STEPS_PER_FRAME * sum(map(len, utterances)) + 1, STEP)
    by_itself: dict[int, BestPath] = {}
    while True:
        now, behind, cut = _stretch(given, len(ends), at, pace.frames)
        before, began = at.tolist(), time.perf_counter()
        status = search(now, ends[:behind], steps, at)
        if status == k.OK:
            _note(pace, now, before, behind, time.perf_counter() - began)
            if cut:  # no end yet: the next call goes on
                last = behind - 1
                at[:] = last, cut, at[2] - ends[last]["count"]
            elif behind == len(ends):
                break
            # Ctrl-C is heard between calls, which take so long as `pace` says.
            check()
        elif status == GROW_STEPS:
            steps = k.longer(steps, 2 * len(steps))
        elif not grow(status, len(given[at[0]]) - int(at[1])):
            assert alone is not None
            i, frame, _ = at.tolist()
            by_itself[i] = alone(utterances[i][frame:])
            at[:2] = i + 1, 0
    first, count = map(np.ascontiguousarray, (ends["first"], ends["count"]))
    said = read_paths(rule, steps, first, count)
    return [
        by_itself[i] if i in by_itself else _path(said[i], ends[i])
        for i in range(len(utterances))
    ]


def _stretch(
    given: tuple[np.ndarray, ...], num: int, at: np.ndarray, frames: int
) -> tuple[tuple[np.ndarray, ...], int, int]:
    """Part of a kernel's work that one call does, from `at` on.

    Args:
        given: The utterances.
        num: How many they are.
        at: Where it begins.
        frames: So many at most.

    Returns:
        The utterances, how many of them, and the frames of the last one if it is cut.
    """
    i, frame, _ = at.tolist()
    left = frame + frames
    while i < num and len(given[i]) <= left:
        left -= len(given[i])
        i += 1
    if i == num or not left:
        return given, i, 0
    return (*given[:i], given[i][:left], *given[i + 1 :]), i + 1, left


def _note(
    pace: Pace,
    given: tuple[np.ndarray, ...],
    before: list[int],
    behind: int,
    seconds: float,
) -> None:
    """Let the pace know of a call."""
    first, frame, _ = before
    pace.note(sum(map(len, given[first:behind])) - frame, seconds)


def _path(said: PathTokens, end: np.void) -> BestPath:
    search_cost, final_cost, _, _, frames, died, final = end.tolist()
    return BestPath(said, final_cost, search_cost, bool(final), frames, died)
