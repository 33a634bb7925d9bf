"""From the ways to end an utterance to paths of different texts, best first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wfstdec.trie.options import TrieOptions
from wfstdec.trie.path import TokenPath

SPELLINGS = 8
"""Without a lexicon so many times `nbest` token sequences are handed over: some of them
spell one text, by other pieces or with one separator more."""


class Node(NamedTuple):
    """A token in the trace.

    Attributes:
        previous: The token before, a position in the trace; -1 for none.
        token: The token.
        said: The pronunciation that ended before it, -1 for none.
        start: The frame where it begins.
        end: One behind the last frame of the token before.
    """

    previous: int
    token: int
    said: int
    start: int
    end: int


class End(NamedTuple):
    """A way to end an utterance.

    Attributes:
        cost: Relative to the base of the last frame.
        trace: Its last token.
        end: One behind the last frame of that.
        said: The pronunciation that ends with the utterance, -1 for none.
        text: The hash of its text.
        acoustic: Unscaled.
    """

    cost: np.float32
    trace: int
    end: int
    said: int
    text: int
    acoustic: float


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


def start_cost(options: TrieOptions, ahead: np.float32) -> float:
    """The base before the first frame: what is paid in advance there."""
    return options.lm_scale * float(ahead)


def paths_of(
    ends: Sequence[End],
    trace: Sequence[Node],
    options: TrieOptions,
    state: State,
    *,
    lexical: bool,
) -> list[TokenPath]:
    """Paths of different texts, as `best_ends` has them.

    Args:
        ends: The ways to end.
        trace: What they point to.
        options: For `nbest` and `merge`.
        state: Of the search.
        lexical: Whether there is a lexicon.
    """
    best = best_ends(ends, options, lexical=lexical)
    return [path_of(walk_back(trace, end), end, state, options) for end in best]


def best_ends(ends: Sequence[End], options: TrieOptions, *, lexical: bool) -> list[End]:
    """One end for each text, the first of the least or of their sum: the `nbest`.

    Without a lexicon texts are told apart by their tokens, and there may be more.
    """
    sums = options.merge == "sum"
    least: dict[int, End] = {}
    totals: dict[int, np.float32] = {}
    for number, end in enumerate(ends):
        if not end.cost < np.inf:
            continue
        text = end.text if sums or options.nbest > 1 else number
        if text not in least or end.cost < least[text].cost:
            least[text] = end
        totals[text] = add(totals.get(text, np.float32(np.inf)), end.cost)
    if sums:
        least = {text: end._replace(cost=totals[text]) for text, end in least.items()}
    spare = 1 if lexical or options.nbest == 1 else SPELLINGS
    return sorted(least.values(), key=lambda end: end.cost)[: spare * options.nbest]


def add(a: np.float32, b: np.float32) -> np.float32:
    """-ln(exp(-a) + exp(-b)), by way of float64."""
    low, high = (float(a), float(b)) if a < b else (float(b), float(a))
    if high == math.inf:
        return np.float32(low)
    return np.float32(low - math.log1p(math.exp(low - high)))


def walk_back(trace: Sequence[Node], end: End) -> np.ndarray:
    """The tokens on the way to an end: int32 [N, 4], token, start, end, said before."""
    rows, at, behind = [], end.trace, end.end
    while at >= 0:
        node = trace[at]
        rows.append((node.token, node.start, behind, node.said))
        at, behind = node.previous, node.end
    return np.array(rows[::-1], np.int32).reshape(-1, 4)


def path_of(
    read: np.ndarray, end: End, state: State, options: TrieOptions
) -> TokenPath:
    """The path of an end.

    Args:
        read: What `walk_back` gave.
        end: For its costs, and what was said last.
        state: Of the search.
        options: For `merge`.
    """
    (before,) = np.nonzero(read[:, 3] >= 0)
    said = read[before, 3]
    if end.said >= 0:
        said, before = np.append(said, end.said), np.append(before, len(read))
    return TokenPath(
        token=read[:, 0],
        start=read[:, 1],
        end=read[:, 2],
        said=said.astype(np.int32),
        said_end=before.astype(np.int32),
        acoustic=math.nan if options.merge == "sum" else end.acoustic,
        search_cost=state.base + float(end.cost),
        complete=state.complete,
        num_frames=state.num_frames,
        died_at_frame=state.died_at_frame,
    )
