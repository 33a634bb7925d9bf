"""The end of an utterance: from all ways to end it to paths of different texts.

endings = ...                                          # of a backend: `Ending`s
paths = paths_of(endings, trace, options, outcome, has_lexicon=True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import NamedTuple

import numpy as np

from wfstdec.search.log_add import log_add
from wfstdec.search.paths.token_path import SPELLINGS_PER_TEXT, TokenPath
from wfstdec.trie.options import TrieOptions


class TraceNode(NamedTuple):
    """A token in the trace.

    Attributes:
        previous: The token before, a position in the trace; -1 for none.
        token: The token.
        pron: The pronunciation that ended before it, -1 for none.
        start: The frame where it begins.
        previous_end: One behind the last frame of the token before.
    """

    previous: int
    token: int
    pron: int
    start: int
    previous_end: int


class Ending(NamedTuple):
    """A way to end an utterance.

    Attributes:
        cost: Relative to the base of the last frame.
        trace: Its last token, a position in the trace; -1 for none.
        token_end: One behind the last frame of that token.
        pron: The pronunciation that ends with the utterance, -1 for none.
        text: The hash of its text.
        acoustic: The acoustic cost, unscaled.
    """

    cost: np.float32
    trace: int
    token_end: int
    pron: int
    text: int
    acoustic: float


class Outcome(NamedTuple):
    """How a search ended.

    Attributes:
        base: What the costs of endings are relative to.
        complete: Whether endings were accepted: whole words, and `</s>`.
        num_frames: Frames gone through.
        died_at_frame: The frame that no entry survived, or -1.
    """

    base: float
    complete: bool
    num_frames: int
    died_at_frame: int


def start_cost(options: TrieOptions, lookahead_cost: np.float32) -> float:
    """The base before the first frame: the look-ahead of the first entry, scaled."""
    return options.lm_scale * float(charged(lookahead_cost))


def charged(lookahead_cost: np.float32) -> np.float32:
    """A look-ahead as it is given back: 0 where nothing can follow."""
    return lookahead_cost if lookahead_cost < np.inf else np.float32(0)


def paths_of(
    endings: Sequence[Ending],
    trace: Sequence[TraceNode],
    options: TrieOptions,
    outcome: Outcome,
    *,
    has_lexicon: bool,
) -> list[TokenPath]:
    """Paths of different texts, as `best_endings` orders them.

    Args:
        endings: The ways to end.
        trace: What they point to.
        options: For `nbest` and `merge`.
        outcome: Of the search.
        has_lexicon: Whether there is a lexicon.
    """
    best = best_endings(endings, options, has_lexicon=has_lexicon)
    return [path_of(trace_back(trace, one), one, outcome, options) for one in best]


def best_endings(
    endings: Sequence[Ending], options: TrieOptions, *, has_lexicon: bool
) -> list[Ending]:
    """Choose the `nbest` endings, one for each text, best first.

    Of the endings of a text the first of the least stands for it, with "sum" at the
    cost of all of them together. Without a lexicon texts are told apart by their
    tokens, and there may be more of them.
    """
    sums = options.merge == "sum"
    least: dict[int, Ending] = {}
    totals: dict[int, np.float32] = {}
    for number, ending in enumerate(endings):
        if not ending.cost < np.inf:
            continue
        text = ending.text if sums or options.nbest > 1 else number
        if text not in least or ending.cost < least[text].cost:
            least[text] = ending
        if sums:
            totals[text] = log_add(totals.get(text, np.float32(np.inf)), ending.cost)
    if sums:
        least = {text: one._replace(cost=totals[text]) for text, one in least.items()}
    by_cost = sorted(least.values(), key=lambda ending: ending.cost)
    return by_cost[: most_endings(options, has_lexicon=has_lexicon)]


def most_endings(options: TrieOptions, *, has_lexicon: bool) -> int:
    """Number of endings of different texts that give `nbest` paths of other words."""
    spare = 1 if has_lexicon or options.nbest == 1 else SPELLINGS_PER_TEXT
    return spare * options.nbest


def trace_back(trace: Sequence[TraceNode], ending: Ending) -> np.ndarray:
    """The tokens of an ending, first to last.

    Returns:
        int32 [N, 4]: token, start, end, pronunciation that ended before it or -1.
    """
    rows, at, end = [], ending.trace, ending.token_end
    while at >= 0:
        node = trace[at]
        rows.append((node.token, node.start, end, node.pron))
        at, end = node.previous, node.previous_end
    return np.array(rows[::-1], np.int32).reshape(-1, 4)


def path_of(
    tokens: np.ndarray, ending: Ending, outcome: Outcome, options: TrieOptions
) -> TokenPath:
    """The path of an ending.

    Args:
        tokens: What `trace_back` gave, int32 [N, 4].
        ending: For its costs and its last pronunciation.
        outcome: Of the search.
        options: For `merge`.
    """
    return TokenPath(
        rows=tokens,
        last_pron=ending.pron,
        acoustic=math.nan if options.merge == "sum" else ending.acoustic,
        search_cost=outcome.base + float(ending.cost),
        reached_final=outcome.complete,
        num_frames=outcome.num_frames,
        died_at_frame=outcome.died_at_frame,
    )


def said(trace: Sequence[TraceNode], at: int) -> list[tuple]:
    """Chain that tells tokens of a path and their beginnings apart, in order."""
    chain = []
    while at >= 0:
        node = trace[at]
        chain.append((node.token, node.pron, *node[3:]))
        at = node.previous
    return chain[::-1]


def num_settled_of(chains: Sequence[Sequence], ends: Set[int | None]) -> int:
    """How many first tokens all entries have in common, with their ends.

    Args:
        chains: What each has `said`.
        ends: Where the last tokens of all end, `None` for one that may go on.
    """
    count = 0
    while all(len(one) > count and one[count] == chains[0][count] for one in chains):
        count += 1
    ended = all(len(chain) == count for chain in chains) and len(ends) == 1
    return count if count == 0 or (ended and None not in ends) else count - 1
