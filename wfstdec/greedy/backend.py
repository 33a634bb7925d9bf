"""The greedy search on the CPU, in numba.

backend = CpuBackend(searched)
search = backend.start(options, boosts)       # one utterance
search.advance(logprobs)                      # float32 [T, V], any number of times
search.finish()                               # a TokenPath

The rows of both models are looked up only where a token begins, a few times a second.
"""

from __future__ import annotations

import math
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
from wfstdec.search.threads import HostBackend

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


class CpuSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self, searched: Searched, options: GreedyOptions, boosts: CompiledBoosts
    ) -> None:
        phrases = boosts.phrases
        self._search = Search(
            blank=searched.blank,
            lm=searched.lm,
            phrases=NULL_AUTOMATON if phrases is None else phrases.automaton,
            pricing=pricing_of(options),
            lm_scale=np.float32(options.lm_scale),
            token_insertion=float(options.token_insertion),
        )
        progress = np.zeros(1, PROGRESS)
        progress["label"] = progress["last"] = searched.blank
        progress["lm_state"] = searched.lm.model_start[0]
        progress["boost_state"] = 0 if phrases is None else phrases.start
        for name in ("died_at_frame", "lm_row", "boost_row"):
            progress[name] = -1
        costs = np.empty((2, searched.num_tokens), np.float32)
        states = np.empty((2, searched.num_tokens), np.int32)
        tokens = np.empty((0, 3), np.int32)
        self._utterance = UtteranceState(progress, tokens, *costs, *states)

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V], C order."""
        utterance = self._utterance
        needed = int(utterance.progress["tokens"][0]) + len(logprobs)
        if needed > len(utterance.tokens):
            longer = np.empty((2 * needed, 3), np.int32)
            longer[: len(utterance.tokens)] = utterance.tokens
            self._utterance = utterance = utterance._replace(tokens=longer)
        advance(self._search, utterance, logprobs)

    def finish(self) -> TokenPath:
        """End the utterance."""
        search, progress = self._search, self._utterance.progress[0]
        last = search.lm.final_cost[progress["lm_state"]]
        refund = search.phrases.final_cost[progress["boost_state"]]
        complete = bool(progress["died_at_frame"] < 0 and last < np.inf)
        end = float(np.float32(search.lm_scale * last)) if complete else 0.0
        num_tokens = int(progress["tokens"])
        rows = np.full((num_tokens, 4), NO_PRON, np.int32)
        rows[:, :3] = self._utterance.tokens[:num_tokens]
        return TokenPath(
            rows=rows,
            last_pron=NO_PRON,
            acoustic=float(progress["acoustic"]),
            search_cost=float(progress["cost"]) + end + float(refund),
            reached_final=complete,
            num_frames=int(progress["frames"]),
            died_at_frame=int(progress["died_at_frame"]),
        )

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


@kernel
def advance(search, utterance, logprobs):
    """Pass an utterance through the frames of a chunk."""
    now, tokens = utterance.progress[0], utterance.tokens
    for t in range(len(logprobs)):
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
