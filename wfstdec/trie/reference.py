"""The trie beam search in plain Python: the specification for every backend.

An entry stands at a place (language model state, trie node, boost state); with
`merge="sum"` or `nbest` above 1 it also has a text of its own. It has a cost for each
of two phases: the last token is over (a blank was said, or nothing yet), or it goes
on. Costs are float32, added in the order written here; what the language model will
cost at least is paid in advance (`ahead`).

    frame:  entries stand in the order of (cost less the best one's, float32, model
            state, node, boost state, text);
            for each of them, in each phase (with "max", where either leads to the
            same, in the one that costs less, the token over if neither does):
              a blank             the same entry, token over      cost + acoustic
              the token again     the same entry, token goes on   cost + acoustic
              then for each token that may begin, pronunciation, phase: not the same
              token as before, unless it is over
                                  another entry, token goes on
                ((cost + lm_scale * graph) + insertion + phrases) + acoustic
                graph inside a word = ahead' - ahead
                      a word ends   = ((word + pronunciation) + ahead') - ahead
            what is not finite or above `least of these + beam` is dropped
            of an entry and phase, the first of the least goes on ("max"), or the sum
            of all, added in this order ("sum")
            entries of the `beam_size` best places are kept, and of the texts at one
            place those that fewer than `nbest` before it cost no more than, in one of
            the phases: no other can be among the `nbest` in the end ("max"; with "sum",
            where that need not be, only if there are more than `beam_size` entries)
            none left: the utterance ends here
    end:    a word that is whole ends; `</s>`, and the refund of a phrase half said;
            of the ends of one text, the first of the least, or the sum
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wfstdec.boost.boosts import CompiledBoosts
from wfstdec.lm import kernels
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.trie.ends import End, Node, State, add, paths_of, start_cost
from wfstdec.trie.options import TrieOptions
from wfstdec.trie.path import TokenPath
from wfstdec.trie.reference_steps import Key, Steps, extended
from wfstdec.trie.space import NONE, SearchSpace, ahead_of

F = np.float32
INF = F(np.inf)
OVER, ON = 0, 1
"""The phases: the last token is over, or goes on."""


class Phase(NamedTuple):
    """How the least alignment reached an entry in a phase.

    Attributes:
        cost: Relative to the best of the frame.
        trace: Its last token, a position in the trace; -1 before the first.
        end: One behind the last frame of that token, where it is over.
        acoustic: Unscaled, from the beginning.
    """

    cost: np.float32 = INF
    trace: int = -1
    end: int = 0
    acoustic: float = 0.0


@dataclass
class Entry:
    """An entry of the frontier."""

    key: Key
    ahead: np.float32
    phases: tuple[Phase, Phase]
    cost: np.float32


class Candidate(NamedTuple):
    """A way into a phase of an entry; `token` is set where one begins."""

    cost: np.float32
    key: Key
    phase: int
    before: Phase
    end: int
    acoustic: np.float32
    token: int = NONE
    said: int = NONE


class ReferenceBackend:
    """A space, as it is."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space

    def start(self, options: TrieOptions, boosts: CompiledBoosts) -> ReferenceSearch:
        """Begin an utterance."""
        return ReferenceSearch(self.space, options, boosts)


class ReferenceSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self, space: SearchSpace, options: TrieOptions, boosts: CompiledBoosts
    ) -> None:
        self._network, self._options, self._boosts = space, options, boosts
        self._steps = Steps(space, options, boosts)
        self._sums = options.merge == "sum"
        self._by_text = self._sums or options.nbest > 1
        self._beam = min(F(options.beam), NO_CUTOFF)
        self._frames, self._died = 0, -1
        self._trace: list[Node] = []
        model_start = space.automaton.model_start
        phrases = boosts.phrases
        key = Key(
            state=int(model_start[0]) if space.model >= 0 else 0,
            node=space.start,
            boost=phrases.start if phrases is not None else 0,
        )
        ahead = ahead_of(space, key.state, key.node)
        self._base = start_cost(options, ahead)
        self._frontier = [Entry(key, ahead, (Phase(F(0)), Phase()), F(0))]

    def advance(self, logprobs: np.ndarray) -> None:
        """Pass the search through a chunk, float32 [T, V]."""
        for row in logprobs:
            if self._died >= 0:
                return
            self._frame(row)

    def finish(self) -> list[TokenPath]:
        """End the utterance: paths of different texts, best first."""
        ends = [] if self._died >= 0 else list(self._ends())
        complete = any(end.cost < INF for end in ends)
        if not complete:
            ends = list(self._stops())
        state = State(self._base, complete, self._frames, self._died)
        lexical = self._network.lexical
        return paths_of(ends, self._trace, self._options, state, lexical=lexical)

    def _frame(self, logprobs: np.ndarray) -> None:
        unscaled, costs, may_begin = self._price(logprobs)
        made: list[Candidate] = []
        for entry in self._frontier:
            made += self._stay(entry, unscaled, costs)
            for token in may_begin:
                made += self._begin(entry, token, unscaled, costs)
        least = min((c.cost for c in made), default=INF)
        if not least < INF:
            self._died = self._frames
            return
        cutoff = min(F(least + self._beam), NO_CUTOFF)
        reached: dict[Key, tuple[list[Candidate], list[Candidate]]] = {}
        for candidate in made:
            if candidate.cost <= cutoff:
                ways = reached.setdefault(candidate.key, ([], []))
                ways[candidate.phase].append(candidate)
        costs_of = {key: self._cost_of(ways) for key, ways in reached.items()}
        best = min(costs_of.values())
        order = sorted(reached, key=lambda key: (F(costs_of[key] - best), key))
        order = self._kept(order, reached)
        self._frontier = [self._entry(key, reached[key], best) for key in order]
        self._base += float(best)
        self._frames += 1

    def _price(
        self, logprobs: np.ndarray
    ) -> tuple[list[np.float32], list[np.float32], list[int]]:
        """Each token's cost, unscaled and scaled, and which tokens may begin."""
        options, blank = self._options, self._network.blank
        skip = options.blank_skip_threshold
        unscaled = [F(-x) for x in logprobs]
        unscaled[blank] = F(-F(logprobs[blank] - F(options.blank_penalty)))
        if skip is not None and logprobs[blank] >= F(math.log(skip)):
            unscaled = [x if v == blank else INF for v, x in enumerate(unscaled)]
        scale = F(options.acoustic_scale)
        costs = [F(scale * x) if x < INF else x for x in unscaled]
        ranked = sorted((x, v) for v, x in enumerate(unscaled) if v != blank)
        top = len(ranked) if options.token_top_k is None else options.token_top_k
        may_begin = sorted(v for x, v in ranked[:top] if x < INF)
        return unscaled, costs, may_begin

    def _stay(
        self, entry: Entry, unscaled: list[np.float32], costs: list[np.float32]
    ) -> Iterator[Candidate]:
        blank = self._network.blank
        token = int(self._network.node_token[entry.key.node])
        for phase in self._phases_of(entry):
            before = entry.phases[phase]
            end = self._frames if phase == ON else before.end
            cost = F(before.cost + costs[blank])
            yield Candidate(cost, entry.key, OVER, before, end, unscaled[blank])
        before = entry.phases[ON]
        if before.cost < INF:
            cost = F(before.cost + costs[token])
            yield Candidate(cost, entry.key, ON, before, 0, unscaled[token])

    def _begin(
        self,
        entry: Entry,
        token: int,
        unscaled: list[np.float32],
        costs: list[np.float32],
    ) -> Iterator[Candidate]:
        """A token begins: inside a word, or a word ends, or between words."""
        space, key = self._network, entry.key
        for state, node, said, word_cost in self._steps.ways(key, token):
            ahead = ahead_of(space, state, node)
            graph = F(F(word_cost + ahead) - entry.ahead)
            if not graph < INF:
                continue  # impossible, also where lm_scale is 0
            insertion, word = F(self._options.token_insertion), NONE
            if said != NONE:
                word = int(space.trie.said_word[said])
                insertion = F(insertion + self._steps.word_insertion(word))
            boost, phrase_cost = self._steps.step_phrases(key.boost, word, token)
            text = self._text_after(key.text, word if space.lexical else token)
            same = token == space.node_token[key.node]
            for phase in [OVER] if same else self._phases_of(entry):
                before = entry.phases[phase]
                if not before.cost < INF:
                    continue
                total = F(before.cost + F(F(self._options.lm_scale) * graph))
                total = F(F(F(total + insertion) + phrase_cost) + costs[token])
                yield Candidate(
                    total,
                    Key(state, node, boost, text),
                    ON,
                    before,
                    self._frames if phase == ON else before.end,
                    unscaled[token],
                    token,
                    said,
                )

    def _phases_of(self, entry: Entry) -> list[int]:
        """The phases to go on from, where it makes no difference in which one is."""
        if self._sums:
            return [OVER, ON]
        over, on = entry.phases
        return [OVER] if over.cost <= on.cost else [ON]

    def _text_after(self, text: int, label: int) -> int:
        return extended(text, label) if self._by_text and label != NONE else text

    def _cost_of(self, ways: tuple[list[Candidate], list[Candidate]]) -> np.float32:
        """The cost of an entry: of its better phase, or of both together."""
        over, on = (self._phase_cost(part) for part in ways)
        return add(over, on) if self._sums else min(over, on)

    def _phase_cost(self, ways: list[Candidate]) -> np.float32:
        if not self._sums:
            return min((way.cost for way in ways), default=INF)
        total = INF
        for way in ways:
            total = add(total, way.cost)
        return total

    def _kept(
        self,
        order: list[Key],
        reached: dict[Key, tuple[list[Candidate], list[Candidate]]],
    ) -> list[Key]:
        """What goes on: of `beam_size` places, the texts that may still matter."""
        size, nbest = self._options.beam_size, self._options.nbest
        trims = self._by_text and (not self._sums or len(order) > size)
        kept: list[Key] = []
        at_place: dict[tuple, list[list[np.float32]]] = {}
        for key in order:
            place = key[:3]
            costs = [self._phase_cost(ways) for ways in reached[key]]
            before = at_place.get(place, [])
            if place not in at_place and len(at_place) == size:
                continue
            if trims and all(
                cost == INF or sum(other[phase] <= cost for other in before) >= nbest
                for phase, cost in enumerate(costs)
            ):
                continue
            at_place.setdefault(place, []).append(costs)
            kept.append(key)
        return kept

    def _entry(
        self,
        key: Key,
        ways: tuple[list[Candidate], list[Candidate]],
        best: np.float32,
    ) -> Entry:
        """Make the trace and re-base."""
        phases = tuple(self._phase(part, best) for part in ways)
        cost = self._cost_of(ways)
        ahead = ahead_of(self._network, key.state, key.node)
        return Entry(key, ahead, phases, F(cost - best))  # type: ignore[arg-type]

    def _phase(self, ways: list[Candidate], best: np.float32) -> Phase:
        if not ways:
            return Phase()
        first = min(ways, key=lambda way: way.cost)
        cost = F(self._phase_cost(ways) - best)
        acoustic = first.before.acoustic + float(first.acoustic)
        return Phase(cost, self._extend(first), first.end, acoustic)

    def _extend(self, way: Candidate) -> int:
        """The trace of a candidate, with a node for the token that begins."""
        if way.token == NONE:
            return way.before.trace
        self._trace.append(
            Node(
                previous=way.before.trace,
                token=way.token,
                said=way.said,
                start=self._frames,
                end=way.end,
            )
        )
        return len(self._trace) - 1

    def _ends(self) -> Iterator[End]:
        """All ways to end here."""
        space, phrases = self._network, self._boosts.phrases
        for entry in self._frontier:
            key = entry.key
            ways = [(NONE, F(0), key.state)]
            if space.lexical and key.node != 0:
                ways = list(self._steps.said(key))
            for said, cost, state in ways:
                last = F(kernels.final(space.automaton, space.model, state))
                graph = F(F(cost + last) - entry.ahead)
                insertion, boost, phrase_cost, word = F(0), key.boost, F(0), NONE
                if said != NONE:
                    word = int(space.trie.said_word[said])
                    insertion = self._steps.word_insertion(word)
                    boost, phrase_cost = self._steps.step_phrases(boost, word, NONE)
                refund = F(0)
                if phrases is not None:
                    refund = F(kernels.final(phrases.automaton, 0, boost))
                if not graph < INF:
                    continue
                for phase in entry.phases:
                    total = F(phase.cost + F(F(self._options.lm_scale) * graph))
                    total = F(F(F(total + insertion) + phrase_cost) + refund)
                    yield self._end(total, entry, phase, said)

    def _stops(self) -> Iterator[End]:
        """All entries as they are, nothing paid in advance."""
        phrases = self._boosts.phrases
        for entry in self._frontier:
            refund = F(0)
            if phrases is not None:
                refund = F(kernels.final(phrases.automaton, 0, entry.key.boost))
            graph = F(F(self._options.lm_scale) * F(-entry.ahead))
            for phase in entry.phases:
                total = F(F(phase.cost + graph) + refund)
                yield self._end(total, entry, phase, NONE)

    def _end(self, cost: np.float32, entry: Entry, phase: Phase, said: int) -> End:
        word = NONE if said == NONE else int(self._network.trie.said_word[said])
        text = self._text_after(entry.key.text, word)
        end = self._frames if phase is entry.phases[ON] else phase.end
        return End(cost, phase.trace, end, said, text, phase.acoustic)
