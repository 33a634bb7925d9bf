"""The greedy search in numba: `greedy.reference`, the same bits faster.

The rows of both models are looked up only where a token begins, a few times a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.greedy.options import GreedyOptions
from wfstdec.greedy.reference import Fusion, Progress
from wfstdec.jit import inlined, kernel
from wfstdec.lm import kernels
from wfstdec.lm.automaton import Automaton
from wfstdec.search.acoustics import Pricing, penalised, scaled
from wfstdec.trie.path import TokenPath
from wfstdec.trie.space import NONE, SearchSpace

LABEL, LAST, LM_STATE, BOOST_STATE, FRAMES, DIED, TOKENS = range(7)
"""Where `Channel.counts` has what."""
ACOUSTIC, COST = range(2)
"""Where `Channel.sums` has what."""


class Rule(NamedTuple):
    """What does not change in an utterance, as the kernels take it."""

    blank: int
    lm: Automaton
    phrases: Automaton
    pricing: Pricing
    lm_scale: np.float32
    token_insertion: float


class Channel(NamedTuple):
    """An utterance under way.

    Attributes:
        counts: int64 [7].
        sums: float64 [2].
        tokens: int32 [N, 3], the token, its first frame, one behind its last.
        lm_cost, boost_cost: float32 [V], a row of each model.
        lm_next, boost_next: int32 [V].
    """

    counts: np.ndarray
    sums: np.ndarray
    tokens: np.ndarray
    lm_cost: np.ndarray
    boost_cost: np.ndarray
    lm_next: np.ndarray
    boost_next: np.ndarray


class CpuBackend:
    """A space, as it is."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space

    def start(self, options: GreedyOptions, boosts: CompiledBoosts) -> CpuSearch:
        """Begin an utterance."""
        return CpuSearch(Fusion(self.space, options, boosts))


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(self, fusion: Fusion) -> None:
        self._fusion = fusion
        self._rule = _rule_of(fusion)
        first, num_tokens = fusion.begin(), fusion.space.num_tokens
        begin = [first.label, first.last, first.lm_state, first.boost_state, 0, -1, 0]
        self._channel = Channel(
            counts=np.array(begin, np.int64),
            sums=np.zeros(2),
            tokens=np.empty((0, 3), np.int32),
            lm_cost=np.empty(num_tokens, np.float32),
            boost_cost=np.empty(num_tokens, np.float32),
            lm_next=np.empty(num_tokens, np.int32),
            boost_next=np.empty(num_tokens, np.int32),
        )

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        channel = self._channel
        needed = int(channel.counts[TOKENS]) + len(logprobs)
        if needed > len(channel.tokens):
            longer = np.empty((2 * needed, 3), np.int32)
            longer[: len(channel.tokens)] = channel.tokens
            self._channel = channel = channel._replace(tokens=longer)
        advance(self._rule, channel, logprobs)

    def finish(self) -> TokenPath:
        """End the utterance."""
        counts, sums = self._channel.counts.tolist(), self._channel.sums.tolist()
        progress = Progress(*counts[:TOKENS], *sums)
        return self._fusion.end(progress, self._channel.tokens[: counts[TOKENS]])


def _rule_of(fusion: Fusion) -> Rule:
    options = fusion.options
    return Rule(
        blank=fusion.space.blank,
        lm=fusion.space.automaton,
        phrases=fusion.phrases,
        pricing=fusion.pricing,
        lm_scale=np.float32(options.lm_scale),
        token_insertion=float(options.token_insertion),
    )


@kernel
def advance(rule, channel, logprobs):
    """Pass an utterance through the frames of a chunk."""
    counts, sums, tokens = channel.counts, channel.sums, channel.tokens
    for t in range(len(logprobs)):
        if counts[DIED] >= 0:
            return
        row = logprobs[t]
        frame, label = counts[FRAMES], counts[LABEL]
        of_blank = penalised(rule.pricing, row[rule.blank])
        best = _best(rule, row, of_blank)
        begins = False
        if best == rule.blank:
            label = best
        elif best >= 0 and best != label:
            if best != counts[LAST] or not row[label] > -np.inf:
                label = _choose(rule, channel, row, best)
                begins = True
        if best < 0 or label < 0:
            counts[DIED] = frame
            return
        unscaled = float32(-(of_blank if label == rule.blank else row[label]))
        sums[ACOUSTIC] += np.float64(unscaled)
        sums[COST] += np.float64(scaled(rule.pricing, unscaled))
        if begins:
            tokens[counts[TOKENS], 0], tokens[counts[TOKENS], 1] = label, frame
            counts[TOKENS] += 1
        if label != rule.blank:
            tokens[counts[TOKENS] - 1, 2] = frame + 1
        counts[LABEL], counts[LAST], counts[FRAMES] = label, best, frame + 1


@inlined
def _best(rule, row, of_blank):
    """The most probable token, -1 where none is possible."""
    best, top = -1, float32(-np.inf)
    for v in range(len(row)):
        x = of_blank if v == rule.blank else row[v]
        if x > top:
            best, top = v, x
    return best


@inlined
def _choose(rule, channel, row, best):
    """The token that begins, -1 where none can; the models step by it."""
    counts = channel.counts
    lm_cost, boost_cost = channel.lm_cost, channel.boost_cost
    kernels.row(rule.lm, 0, counts[LM_STATE], lm_cost, channel.lm_next)
    kernels.row(rule.phrases, 0, counts[BOOST_STATE], boost_cost, channel.boost_next)
    least, chosen, paid = float32(np.inf), np.int64(NONE), float32(0)
    for i in range(-1, len(row)):
        v = best if i < 0 else i
        impossible = not row[v] > -np.inf or not lm_cost[v] < np.inf
        if v == rule.blank or v == counts[LABEL] or impossible:
            continue
        extra = float32(float32(rule.lm_scale * lm_cost[v]) + boost_cost[v])
        cost = float32(extra + scaled(rule.pricing, float32(-row[v])))
        if cost < least:
            least, chosen, paid = cost, np.int64(v), extra
    if chosen >= 0:
        counts[LM_STATE] = channel.lm_next[chosen]
        counts[BOOST_STATE] = channel.boost_next[chosen]
        channel.sums[COST] += np.float64(paid) + rule.token_insertion
    return chosen
