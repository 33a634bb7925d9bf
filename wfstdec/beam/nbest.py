"""From the trace of a beam search to paths of different texts, best first.

The trace is a list of nodes; each leads to the one before:

    a token      where it began, what was said before it
    a merging    two ways met in one entry: `previous` is the better one, `other` costs
                 `cost` more

A path is read from its end to the beginning. Where it passes a merging, the other way
is put into a queue at its cost; what comes out of the queue first is the next best.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from wfstdec.beam.network import Network
from wfstdec.beam.options import BeamOptions
from wfstdec.beam.path import BeamPath

TRIES = 1000
"""For each text that is wanted, no more paths are looked at: others of equal text."""

_log = logging.getLogger("wfstdec.beam")


class Node(NamedTuple):
    """A node of the trace; positions in the trace are -1 before the first token.

    Attributes:
        previous: The node before.
        token: The token that begins; -1 at a merging.
        said: The pronunciation that ended before it, -1 for none.
        start: The frame where it begins.
        end: One behind the last frame of the token before; at a merging, of the last
            token of `other` where it is over, else 0.
        merges: Whether this is a merging.
        other: The other way that led here.
        cost: How much more that one costs.
        acoustic: How much more it costs acoustically, unscaled.
    """

    previous: int
    token: int = -1
    said: int = -1
    start: int = 0
    end: int = 0
    merges: bool = False
    other: int = -1
    cost: float = 0.0
    acoustic: float = 0.0


class State(NamedTuple):
    """Where a search ended.

    Attributes:
        base: What costs are relative to.
        complete: Whether ends were accepted.
        num_frames: Of the utterance.
        died_at_frame: Where it died, or -1.
    """

    base: float
    complete: bool
    num_frames: int
    died_at_frame: int


class End(NamedTuple):
    """A way to end an utterance.

    Attributes:
        cost: Relative to the base of the last frame.
        text: The hash of its text.
        trace: Its last node.
        end: One behind the last frame of its last token.
        said: The pronunciation that ends with the utterance, -1 for none.
        acoustic: Unscaled.
    """

    cost: np.float32
    text: int
    trace: int
    end: int
    said: int
    acoustic: float


class Way(NamedTuple):
    """A path that is read as far as `at`, from its end; the first in a queue is least.

    Attributes:
        cost: Of the whole path.
        number: Decides where costs are equal.
        at: The next node to read.
        end: One behind the last frame of the token that is read next.
        read: (token, start, end, said before it), the last token first.
        acoustic: Of the whole path.
        said: The pronunciation that ends with the utterance.
    """

    cost: float
    number: int = 0
    at: int = -1
    end: int = 0
    read: tuple[tuple[int, int, int, int], ...] = ()
    acoustic: float = 0.0
    said: int = -1


def paths_of(
    ends: Sequence[End],
    trace: Sequence[Node],
    network: Network,
    options: BeamOptions,
    state: State,
) -> list[BeamPath]:
    """At most `options.nbest` paths of different texts, at least one, best first.

    Args:
        ends: The ways to end; the first of equal ones wins.
        trace: What they point to.
        network: For the words of pronunciations.
        options: For `nbest` and `merge`.
        state: Of the search.
    """
    sums = options.merge == "sum"
    paths: dict[tuple[int, ...], BeamPath] = {}
    for way in _ways(added_up(ends) if sums else ends, trace, TRIES * options.nbest):
        read = np.array(way.read[::-1], np.int32).reshape(-1, 4)
        path = path_of(read, way, state)
        if sums:
            path = path._replace(acoustic=math.nan)
        text = path.token
        if network.lexical:
            text = network.trie.said_word[path.said]
        paths.setdefault(tuple(text.tolist()), path)
        if len(paths) == options.nbest:
            return list(paths.values())
    if options.nbest > 1:
        _log.debug("%d different texts, asked for %d", len(paths), options.nbest)
    return list(paths.values())


def added_up(ends: Sequence[End]) -> list[End]:
    """One end for each text, of the sum of its probabilities: least cost first."""
    totals: dict[int, np.float32] = {}
    least: dict[int, End] = {}
    for end in ends:
        totals[end.text] = add(totals.get(end.text, np.float32(np.inf)), end.cost)
        if end.text not in least or end.cost < least[end.text].cost:
            least[end.text] = end
    summed = [end._replace(cost=totals[text]) for text, end in least.items()]
    return sorted(summed, key=lambda end: end.cost)


def add(a: np.float32, b: np.float32) -> np.float32:
    """-ln(exp(-a) + exp(-b)), by way of float64."""
    low, high = (float(a), float(b)) if a < b else (float(b), float(a))
    if high == math.inf:
        return np.float32(low)
    return np.float32(low - math.log1p(math.exp(low - high)))


def _ways(ends: Sequence[End], trace: Sequence[Node], tries: int) -> Iterator[Way]:
    """Paths in the order of their costs, at most `tries`."""
    queue = [
        Way(float(e.cost), i, e.trace, e.end, (), e.acoustic, e.said)
        for i, e in enumerate(ends)
        if e.cost < np.inf
    ]
    heapq.heapify(queue)
    numbers = count(len(ends))
    for _ in range(tries):
        if not queue:
            return
        way = heapq.heappop(queue)
        at, end, read = way.at, way.end, way.read
        while at >= 0:
            node = trace[at]
            if node.merges:
                other = way._replace(
                    cost=way.cost + node.cost,
                    number=next(numbers),
                    at=node.other,
                    end=node.end or end,
                    read=read,
                    acoustic=way.acoustic + node.acoustic,
                )
                heapq.heappush(queue, other)
            else:
                read = (*read, (node.token, node.start, end, node.said))
                end = node.end
            at = node.previous
        yield way._replace(read=read)


def path_of(read: np.ndarray, way: Way, state: State) -> BeamPath:
    """The path of a way.

    Args:
        read: int32 [N, 4]: token, start, end, the pronunciation said before it or -1.
        way: For its costs, and what was said at the end.
        state: Of the search.
    """
    (before,) = np.nonzero(read[:, 3] >= 0)
    said = read[before, 3]
    if way.said >= 0:
        said, before = np.append(said, way.said), np.append(before, len(read))
    return BeamPath(
        token=read[:, 0],
        start=read[:, 1],
        end=read[:, 2],
        said=said.astype(np.int32),
        said_end=before.astype(np.int32),
        acoustic=way.acoustic,
        search_cost=state.base + way.cost,
        complete=state.complete,
        num_frames=state.num_frames,
        died_at_frame=state.died_at_frame,
    )
