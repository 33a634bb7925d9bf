"""How far a search over tokens has come, and the words that this makes.

    reader = PartialReader(builder)
    partial = reader.read(search.look())

Settled is the longest common beginning of the tokens of all entries: tokens with their
frames, and the pronunciations that end before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

import numpy as np

from wfstdec.boost.oov import OovWords
from wfstdec.search.hypothesis import Word
from wfstdec.search.sessions import Partial
from wfstdec.trie.hypotheses import HypothesisBuilder
from wfstdec.trie.traceback import TraceNode


class TokensSoFar(NamedTuple):
    """How far the best path of a search has come.

    Attributes:
        num_settled: So many of its first tokens can no longer change, nor can their
            frames.
        since: Given how many tokens to leave out at the beginning: the others, int32
            [N, 4], token, first frame, one behind the last, pronunciation that ended
            before it or -1.
        pron: The pronunciation that would end now, -1 for none.
        num_frames: Frames gone through.
        final_cost: What ending here costs more than going on, nats; `inf` where it
            cannot end.
        added: The added words of the utterance.
    """

    num_settled: int
    since: Callable[[int], np.ndarray]
    pron: int
    num_frames: int
    final_cost: float
    added: OovWords | None = None


class SettledTokens:
    """Tokens that have left the trace, in an array that grows."""

    def __init__(self) -> None:
        self._rows = np.zeros((0, 4), np.int32)
        self._count = 0
        self.num_whole = 0

    def add(self, nodes: np.ndarray, end: int) -> None:
        """Add trace nodes, in order, and where the last token ends, -1 if not known."""
        first, self._count = self._count, self._count + len(nodes)
        if self._count > len(self._rows):
            longer = np.zeros((2 * self._count, 4), np.int32)
            longer[:first] = self._rows[:first]
            self._rows = longer
        new = self._rows[first : self._count]
        new[:, 0], new[:, 1] = nodes["token"], nodes["start"]
        new[:-1, 2], new[:, 3] = nodes["previous_end"][1:], nodes["pron"]
        if first and len(nodes):
            self._rows[first - 1, 2] = nodes["previous_end"][0]
        self.num_whole = self._count
        if self._count and end >= 0:
            self._rows[self._count - 1, 2] = end
        elif self._count:
            self.num_whole -= 1

    def followed_by(self, rows: np.ndarray, end: int, since: int = 0) -> np.ndarray:
        """All tokens of a path but the first ones, int32 [N, 4].

        Args:
            rows: Those of its trace.
            end: Where the token before these ends.
            since: How many to leave out.
        """
        if self._count == 0:
            return rows
        if since >= self._count:
            return rows[since - self._count :]
        before = self._rows[since : self._count].copy()
        before[-1, 2] = end
        return np.concatenate([before, rows])


def said(trace: Sequence[TraceNode], at: int) -> list[tuple]:
    """What tells the tokens of a path and their beginnings apart, in order."""
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


class PartialReader:
    """Reads one session; settled words are read once.

    Args:
        builder: Of the decoder.
    """

    def __init__(self, builder: HypothesisBuilder) -> None:
        self._builder = builder
        self._words: list[Word] = []
        self._tokens = 0  # before the first word that is not among them

    def read(self, tokens: TokensSoFar) -> Partial:
        """The words of a search, as of now."""
        rows = tokens.since(self._tokens)
        whole = tokens.num_settled - self._tokens
        words, taken = self._builder.settled_words(rows[:whole], tokens.added)
        self._words += words
        self._tokens += taken
        rest = rows[taken:]
        begun = self._builder.words_of(rest, tokens.pron, tokens.added)
        spoken = self._builder.are_spoken(rest)
        end = int(rest[spoken, 2][-1]) if spoken.any() else 0
        if not end and self._words:
            end = self._words[-1].end_frame
        return Partial(
            words=(*self._words, *begun),
            num_settled=len(self._words),
            num_timed=len(self._words),
            num_frames=tokens.num_frames,
            silent_frames=tokens.num_frames - end,
            final_cost=tokens.final_cost,
        )
