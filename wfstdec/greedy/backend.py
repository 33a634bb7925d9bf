"""The greedy search on the CPU, in numba.

backend = CpuBackend(searched)
search = backend.start(options, boosts)       # one utterance
search.advance(logprobs)                      # float32 [T, V], any number of times
search.finish()                               # a TokenPath

The rows of both models are looked up only where a token begins, a few times a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy import float32

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.greedy.options import GreedyOptions, Searched
from wfstdec.jit import inlined, kernel
from wfstdec.jit.records import record
from wfstdec.lm.automaton import NULL_AUTOMATON, Automaton
from wfstdec.lm.kernels import row as row_of
from wfstdec.search.logprobs import Pricing, penalised, pricing_of, scaled
from wfstdec.search.paths.tokens import (
    NO_PRON,
    PartialPath,
    TokenPath,
    TokenRows,
    partial_tokens,
)
from wfstdec.search.threads import (
    CallBudget,
    HostBackend,
    check,
    filled_up,
    stretch,
)

PROGRESS = record(
    "i8 label last lm_state boost_state frames died_at_frame tokens lm_row boost_row",
    "f8 acoustic cost",
)
"""How far a search has come: the label and the most probable token of the last frame,
the states of both models, frames passed, where it died or -1, tokens begun, the states
whose rows are filled in or -1, and costs: the unscaled acoustic one and the total."""
NO_TOKEN = -1
"""No token can begin."""


class Search(NamedTuple):
    """Tables and options that an utterance is searched with; nothing in it changes."""

    blank: int
    lm: Automaton
    phrases: Automaton
    pricing: Pricing
    lm_scale: np.float32
    token_insertion: float


class UtteranceState(NamedTuple):
    """An utterance under way."""

    progress: np.ndarray  # PROGRESS [1]
    tokens: np.ndarray  # int32 [N, 3], the token, its first frame, one behind its last
    lm_cost: np.ndarray  # float32 [V], a row of the model
    boost_cost: np.ndarray
    lm_next: np.ndarray  # int32 [V]
    boost_next: np.ndarray


def _new_state(
    searched: Searched, boosts: CompiledBoosts, count: int, tokens: int
) -> UtteranceState:
    """The state of `count` utterances that have not begun, with room for tokens."""
    progress, phrases = np.zeros(count, PROGRESS), boosts.phrases
    progress["label"] = progress["last"] = searched.blank
    progress["lm_state"] = searched.lm.model_start[0]
    progress["boost_state"] = 0 if phrases is None else phrases.start
    for name in ("died_at_frame", "lm_row", "boost_row"):
        progress[name] = -1
    costs = np.empty((2, searched.num_tokens), np.float32)
    states = np.empty((2, searched.num_tokens), np.int32)
    return UtteranceState(progress, np.empty((tokens, 3), np.int32), *costs, *states)


def _laid_out(
    searched: Searched, options: GreedyOptions, boosts: CompiledBoosts
) -> Search:
    phrases = boosts.phrases
    return Search(
        blank=searched.blank,
        lm=searched.lm,
        phrases=NULL_AUTOMATON if phrases is None else phrases.automaton,
        pricing=pricing_of(options),
        lm_scale=np.float32(options.lm_scale),
        token_insertion=float(options.token_insertion),
    )


def _paths(search: Search, state: UtteranceState) -> list[TokenPath]:
    """The paths of utterances that are over; their tokens lie in a row."""
    now = state.progress
    last = search.lm.final_cost[now["lm_state"]]
    complete = (now["died_at_frame"] < 0) & (last < np.inf)
    end = search.lm_scale * np.where(complete, last, np.float32(0))
    refund = search.phrases.final_cost[now["boost_state"]].astype(np.float64)
    splits = np.cumsum([0, *now["tokens"].tolist()])
    rows = np.full((int(splits[-1]), 4), NO_PRON, np.int32)
    rows[:, :3] = state.tokens[: len(rows)]
    columns = now["acoustic"], now["cost"] + end + refund, complete, now["frames"]
    return [
        TokenPath(rows[first:behind], NO_PRON, *numbers)
        for (first, behind), *numbers in zip(
            pairwise(splits.tolist()),
            *(column.tolist() for column in (*columns, now["died_at_frame"])),
            strict=True,
        )
    ]


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self, searched: Searched, options: GreedyOptions, boosts: CompiledBoosts
    ) -> None:
        self._search = _laid_out(searched, options, boosts)
        self._utterance = _new_state(searched, boosts, 1, 0)

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        utterance = self._utterance
        needed = int(utterance.progress["tokens"][0]) + len(logprobs)
        if needed > len(utterance.tokens):
            tokens = np.empty((2 * needed, 3), np.int32)
            tokens[: len(utterance.tokens)] = utterance.tokens
            self._utterance = utterance = utterance._replace(tokens=tokens)
        advance(self._search, utterance, logprobs)

    def finish(self) -> TokenPath:
        """End the utterance."""
        [path] = _paths(self._search, self._utterance)
        return path

    def look(self) -> PartialPath[TokenRows]:
        """How far the search has come; only the last token may go on."""
        progress, end = self._utterance.progress[0], self.finish()
        goes_on = len(end.rows) and progress["label"] != self._search.blank
        cost = end.search_cost - float(progress["cost"])
        return partial_tokens(
            end.rows,
            len(end.rows) - bool(goes_on),
            num_frames=end.num_frames,
            final_cost=cost if end.reached_final else math.inf,
        )


class CpuBackend(HostBackend):
    """A greedy search's model and tokens, searched by kernels."""

    can = frozenset()
    search: type[Any] = CpuSearch

    def __init__(self, searched: Searched) -> None:
        super().__init__(searched.num_tokens, searched)
        self.searched = searched

    def start(
        self, options: GreedyOptions, boosts: CompiledBoosts, *, record: bool = False
    ) -> Any:
        """Begin an utterance."""
        assert not record
        return self.search(self.searched, options, boosts)

    def decode_group(
        self,
        utterances: Sequence[np.ndarray],
        options: GreedyOptions,
        boosts: CompiledBoosts,
        pace: CallBudget,
        names: Sequence[int] = (),
    ) -> list[TokenPath]:
        """Decode whole utterances with the same boosts, as `HostBackend`."""
        search, num = _laid_out(self.searched, options, boosts), len(utterances)
        state = _new_state(self.searched, boosts, num, sum(map(len, utterances)))
        given, at, behind, cut = filled_up(utterances), np.zeros(3, np.int64), 0, 0
        while behind < num or cut:
            now, behind, cut, frames = stretch(given, num, at, pace.frames)
            began = time.perf_counter()
            advance_group(search, state, now, behind, at)
            pace.note(frames, time.perf_counter() - began)
            if cut:  # not ended: the next call continues
                at[:] = behind - 1, cut, at[2] - state.progress["tokens"][behind - 1]
            check()
        return _paths(search, state)


@kernel
def advance_group(search, state, utterances, num, at):
    """Pass utterances through their frames, one after another.

    `at`: int64 [3], the utterance and frame to begin or resume at, and the tokens of
    those before it.
    """
    for i in range(at[0], num):
        one = UtteranceState(
            *(state.progress[i : i + 1], state.tokens[at[2] :]),
            *(state.lm_cost, state.boost_cost, state.lm_next, state.boost_next),
        )
        _advance(search, one, utterances[i], at[1])
        at[0], at[1], at[2] = i + 1, 0, at[2] + state.progress[i].tokens


@kernel
def advance(search, utterance, logprobs):
    """Pass an utterance through the frames of a chunk."""
    _advance(search, utterance, logprobs, 0)


@inlined
def _advance(search, utterance, logprobs, first):
    """Pass an utterance through frames, from the first one on."""
    now, tokens = utterance.progress[0], utterance.tokens
    for t in range(first, len(logprobs)):
        if now.died_at_frame >= 0:
            return
        row = logprobs[t]
        frame, label = now.frames, now.label
        of_blank = penalised(search.pricing, row[search.blank])
        best = _best(search, row, of_blank)
        begins = False
        if best == search.blank:
            label = best
        elif best >= 0 and best != label:
            # The best token of the frame before, in whose place the models chose
            # another, begins nothing: the chosen one goes on, if it can.
            if best != now.last or not row[label] > -np.inf:
                label = _choose(search, utterance, row, best)
                begins = True
        if best < 0 or label < 0:
            now.died_at_frame = frame
            return
        unscaled = float32(-(of_blank if label == search.blank else row[label]))
        now.acoustic += np.float64(unscaled)
        now.cost += np.float64(scaled(search.pricing, unscaled))
        if begins:
            tokens[now.tokens, 0], tokens[now.tokens, 1] = label, frame
            now.tokens += 1
        if label != search.blank:
            tokens[now.tokens - 1, 2] = frame + 1
        now.label, now.last, now.frames = label, best, frame + 1


@inlined
def _best(search, row, of_blank):
    """The most probable token, -1 where none is possible."""
    best, top = np.int64(-1), float32(-np.inf)
    for v in range(len(row)):
        x = of_blank if v == search.blank else row[v]
        if x > top:
            best, top = np.int64(v), x
    return best


@inlined
def _choose(search, utterance, row, best):
    """The token that begins, -1 where none can; the models step by it."""
    now = utterance.progress[0]
    lm_cost, boost_cost = utterance.lm_cost, utterance.boost_cost
    # A row costs a walk over all histories: kept as long as the state stays.
    if now.lm_row != now.lm_state:
        now.lm_row = now.lm_state
        row_of(search.lm, 0, now.lm_row, lm_cost, utterance.lm_next)
    if now.boost_row != now.boost_state:
        now.boost_row = now.boost_state
        row_of(search.phrases, 0, now.boost_row, boost_cost, utterance.boost_next)
    least, chosen, paid = float32(np.inf), np.int64(NO_TOKEN), float32(0)
    # The best token first, so that it wins ties; it comes again in its place, where it
    # changes nothing.
    for i in range(-1, len(row)):
        v = best if i < 0 else i
        impossible = not row[v] > -np.inf or not lm_cost[v] < np.inf
        if v == search.blank or v == now.label or impossible:
            continue
        extra = float32(float32(search.lm_scale * lm_cost[v]) + boost_cost[v])
        cost = float32(extra + scaled(search.pricing, float32(-row[v])))
        if cost < least:
            least, chosen, paid = cost, np.int64(v), extra
    if chosen >= 0:
        now.lm_state = utterance.lm_next[chosen]
        now.boost_state = utterance.boost_next[chosen]
        now.cost += np.float64(paid) + search.token_insertion
    return chosen
