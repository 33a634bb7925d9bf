"""The trie search in plain Python: the specification for every backend.

An entry is at a place (language model state, node, boost state, spelling of an open
word); with `merge="sum"` or `nbest` above 1 it also has a text of its own. As in prefix
beam search it has two costs, by the last frame: `blank` (a blank, or nothing yet: the
last token is over) and `nonblank` (the last token itself). Costs are float32, added in
the order written here. Each holds a look-ahead `la`: the least that the language model
will charge for what comes next. Where entries may go says `reference_steps.py`.

    frame:  entries are taken in the order of (cost less the best one's, float32, model
            state, node, boost state, spelling, text);
            each of them, from each phase (with "max", where both phases may do the
            same, from the cheaper one, at equal costs from blank), makes candidates:
              a blank             the same entry, blank           cost + acoustic
              the token again     the same entry, nonblank        cost + acoustic
              then for each token that may begin, pronunciation, phase (the same
              token as before may only begin from blank):
                                  another entry, nonblank
                ((cost + lm_scale * graph) + insertion + boosts) + acoustic
                graph inside a word = la' - la
                      a word ends   = ((word + pronunciation) + la') - la
            candidates that are not finite or above `least of them + beam` are dropped;
            where entries have no texts of their own also those above the cost of the
            `beam_size`-th best entry
            of an entry and phase the first of the least remains ("max"), or the sum of
            all, added in this order ("sum")
            entries at the `beam_size` best places are kept; of the texts at one place
            those which, in one of the phases, fewer than `nbest` texts before them
            cost no more than: no other can be among the `nbest` in the end ("max"; with
            "sum", where that may fail, only if there are more than `beam_size` entries)
            none left: the utterance ends here
            boosts step once: by the word that ends, if one does, and the token that
            begins (`boost/reference.py`)
    end:    a whole word ends; `</s>`, and the rest of the boosts; of the endings
            of one text the first of the least, or the sum
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from pricing_reference import price_frame
from trie_reference_steps import Key, Steps, text_with

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.search.hypothesis import NO_CUTOFF
from wfstdec.search.log_add import log_add
from wfstdec.search.logprobs import pricing_of
from wfstdec.search.paths.tokens import PartialPath, Path, path_of_rows
from wfstdec.trie.options import TrieOptions, most_endings
from wfstdec.trie.search_space import NONE, SearchSpace, WordEnd, charged, start_cost

F = np.float32
INF = F(np.inf)
BLANK, NONBLANK = 0, 1
"""The phases: the last frame was a blank, or the last token."""


class Phase(NamedTuple):
    """An entry in one phase, and the least alignment that led there.

    Attributes:
        cost: Relative to the best entry of the frame.
        trace: Its last token, a position in the trace; -1 before the first.
        token_end: One behind the last frame of that token; of a blank phase.
        acoustic: The acoustic cost from the beginning, unscaled.
    """

    cost: np.float32 = INF
    trace: int = -1
    token_end: int = 0
    acoustic: float = 0.0


@dataclass
class Entry:
    """An entry of the frontier; its cost is relative to the best one's."""

    key: Key
    lookahead_cost: np.float32
    phases: tuple[Phase, Phase]
    cost: np.float32


class Candidate(NamedTuple):
    """A way into a phase of an entry.

    Attributes:
        cost: Relative to the best entry of the frame before.
        key: The entry.
        phase: BLANK or NONBLANK.
        source: Where it comes from.
        token_end: One behind the last frame of the source's token.
        acoustic: The acoustic cost of the frame, unscaled.
        token: The token that begins, -1 for none.
        pron: The pronunciation that ends before it, -1 for none.
    """

    cost: np.float32
    key: Key
    phase: int
    source: Phase
    token_end: int
    acoustic: np.float32
    token: int = NONE
    pron: int = NONE


ByPhase = tuple[list[Candidate], list[Candidate]]


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
        entry: Where it ends.
        phase: In which phase.
        end: The word that ends with the utterance, if one does.
        text: The hash of its text.
        graph_cost: Unscaled, without the entry's look-ahead.
        boost_cost: With what is owed at the end.
    """

    cost: np.float32
    entry: Entry
    phase: int
    end: WordEnd
    text: int
    graph_cost: np.float32
    boost_cost: np.float32


class ReferenceSearch:
    """The search of one utterance: `advance` any number of times, then `finish`."""

    def __init__(
        self, space: SearchSpace, options: TrieOptions, boosts: CompiledBoosts
    ) -> None:
        self._space, self._options = space, options
        self._pricing = pricing_of(options)
        self._steps = Steps(space, options, boosts)
        self._lm = self._steps.lm
        self._sums = options.merge == "sum"
        self._by_text = self._sums or options.nbest > 1
        self._beam = min(F(options.beam), NO_CUTOFF)
        self._frames, self._died_at_frame = 0, -1
        self._trace: list[TraceNode] = []
        phrases = boosts.phrases
        key = Key(
            state=self._lm.start,
            node=space.start_node,
            boost=phrases.start if phrases is not None else 0,
        )
        lookahead = self._steps.lookahead_cost(key.state, key.node)
        # Entries cost what they cost more than the best; the base has the rest in
        # float64, so that float32 stays exact to the same fraction in hours of speech.
        self._base = start_cost(options.lm_scale, lookahead)
        self._frontier = [Entry(key, lookahead, (Phase(F(0)), Phase()), F(0))]

    def advance(self, logprobs: np.ndarray) -> None:
        for row in logprobs:
            if self._died_at_frame >= 0:
                return
            self._frame(row)

    def finish(self) -> list[Path]:
        """End the utterance: paths of different texts, best first."""
        endings, complete = self._endings()
        return [
            Path(
                tokens=path_of_rows(self._trace_back(one), one.end.pron),
                graph_cost=0.0,
                acoustic_cost=math.nan if self._sums else self._phase_of(one).acoustic,
                search_cost=self._base + float(one.cost),
                reached_final=complete,
                num_frames=self._frames,
                died_at_frame=self._died_at_frame,
            )
            for one in self._best_endings(endings)
        ]

    def look(self, since: tuple[int, int] = (0, 0)) -> PartialPath:
        best = min(self._unfinished_endings(), key=lambda ending: ending.cost)
        accepted = [] if self._died_at_frame >= 0 else self._accepted_endings()
        ended = min((ending.cost for ending in accepted), default=INF)
        pron = self._steps.ending_pron(best.entry.key)
        path = path_of_rows(self._trace_back(best), pron)
        return PartialPath(
            path.part(slice(since[0], None), slice(since[1], None)),
            num_whole=max(0, self._num_settled() - since[0]),
            num_labels=0,
            num_frames=self._frames,
            final_cost=float(ended) - float(best.cost),
        )

    def _num_settled(self) -> int:
        """Number of first tokens that all entries have in common, with their ends."""
        chains: list[list[tuple]] = []
        ends: set[int | None] = set()  # None: the last token may continue
        for entry in self._frontier:
            for kind, phase in enumerate(entry.phases):
                if phase.cost < INF:
                    chains.append(self._said(phase.trace))
                    ends.add(phase.token_end if kind == BLANK else None)
        count, first = 0, chains[0]
        while all(len(one) > count and one[count] == first[count] for one in chains):
            count += 1
        ended = all(len(one) == count for one in chains) and len(ends) == 1
        return count if count == 0 or (ended and None not in ends) else count - 1

    def _said(self, at: int) -> list[tuple]:
        """Chain that separates tokens of a path and their beginnings, in order."""
        chain = []
        while at >= 0:
            node = self._trace[at]
            chain.append((node.token, node.pron, *node[3:]))
            at = node.previous
        return chain[::-1]

    def _frame(self, logprobs: np.ndarray) -> None:
        priced = price_frame(logprobs, self._pricing, self._space.blank)
        self._unscaled, self._costs = priced
        # Tokens that may begin are those of the frame, whatever the entry.
        next_tokens = self._next_tokens()
        candidates: list[Candidate] = []
        for entry in self._frontier:
            # This order, entries by cost and tokens by number, decides ties and sums of
            # "sum".
            candidates += self._stay(entry)
            for token in next_tokens:
                candidates += self._begin(entry, token)
        least = min((c.cost for c in candidates), default=INF)
        # Nothing is possible: the utterance ends before this frame.
        if not least < INF:
            self._died_at_frame = self._frames
            return
        cutoff = min(F(least + self._beam), NO_CUTOFF, self._size_bound(candidates))
        reached: dict[Key, ByPhase] = {}
        for candidate in candidates:
            if candidate.cost <= cutoff:
                by_phase = reached.setdefault(candidate.key, ([], []))
                by_phase[candidate.phase].append(candidate)
        # Re-based before they are sorted: rounding may make costs equal that were not,
        # and the next frame knows these alone.
        costs_of = {key: self._cost_of(found) for key, found in reached.items()}
        best = min(costs_of.values())
        place = self._steps.place_of
        order = sorted(reached, key=lambda key: (F(costs_of[key] - best), place(key)))
        order = self._kept(order, reached)
        self._frontier = [self._entry(key, reached[key], best) for key in order]
        self._base += float(best)
        self._frames += 1

    def _size_bound(self, candidates: list[Candidate]) -> np.float32:
        """The cost of the `beam_size`-th best entry, before costs are re-based."""
        # A phase of a kept entry above it is dropped too. So any `beam_size` different
        # entries give a bound while others are still to come.
        size, least = self._options.beam_size, dict[Key, np.float32]()
        for candidate in candidates:
            cost = least.get(candidate.key, INF)
            least[candidate.key] = min(cost, candidate.cost)
        if self._by_text or len(least) < size:
            return INF
        return sorted(least.values())[size - 1]

    def _next_tokens(self) -> list[int]:
        """The tokens that may begin: the `token_top_k` most probable that can."""
        blank, top_k = self._space.blank, self._options.token_top_k
        # By unscaled costs: `acoustic_scale=0` makes all scaled ones equal.
        ranked = sorted((x, v) for v, x in enumerate(self._unscaled) if v != blank)
        return sorted(v for x, v in ranked[:top_k] if x < INF)

    def _stay(self, entry: Entry) -> Iterator[Candidate]:
        """A blank, or the same token again."""
        blank, unscaled, costs = self._space.blank, self._unscaled, self._costs
        token = self._steps.token_of(entry.key.node)
        for phase in self._phases_of(entry):
            source = entry.phases[phase]
            # A blank after the token itself ends it; after a blank it had ended before.
            token_end = self._frames if phase == NONBLANK else source.token_end
            cost = F(source.cost + costs[blank])
            yield Candidate(cost, entry.key, BLANK, source, token_end, unscaled[blank])
        source = entry.phases[NONBLANK]
        # The same token continues only after itself.
        if source.cost < INF:
            cost = F(source.cost + costs[token])
            yield Candidate(cost, entry.key, NONBLANK, source, 0, unscaled[token])

    def _begin(self, entry: Entry, token: int) -> Iterator[Candidate]:
        """A token begins: inside a word, after a word that ends, or between words."""
        key, insertion = entry.key, F(self._options.token_insertion)
        repeated = token == self._steps.token_of(key.node)
        for place, end in self._steps.successors(key, token):
            # What was charged ahead is exchanged for what is charged ahead now.
            lookahead = self._steps.lookahead_cost(end.state, place.node)
            graph = F(F(end.cost + lookahead) - entry.lookahead_cost)
            if not graph < INF:
                continue  # impossible, also where lm_scale is 0
            oov = insertion
            if end.pron != NONE:
                oov = F(insertion + F(self._options.word_insertion))
            boost, boost_cost = self._steps.step_boosts(key, end, token, place.node)
            text = self._text_after(key.text, end.label)
            # Without a blank in between, a repeated token is one token.
            for phase in [BLANK] if repeated else self._phases_of(entry):
                source = entry.phases[phase]
                if not source.cost < INF:
                    continue
                total = self._steps.cost(source.cost, graph, oov, boost_cost)
                yield Candidate(
                    F(total + self._costs[token]),
                    Key(end.state, place.node, boost, place.spelling, text),
                    NONBLANK,
                    source,
                    self._frames if phase == NONBLANK else source.token_end,
                    self._unscaled[token],
                    token,
                    end.pron,
                )

    def _phases_of(self, entry: Entry) -> list[int]:
        """The phases to continue from where both may do the same."""
        if self._sums:
            return [BLANK, NONBLANK]
        blank, nonblank = entry.phases
        return [BLANK] if blank.cost <= nonblank.cost else [NONBLANK]

    def _text_after(self, text: int, label: int) -> int:
        return text_with(text, label) if self._by_text and label != NONE else text

    def _cost_of(self, by_phase: ByPhase) -> np.float32:
        """The cost of an entry: of its better phase, or of both together."""
        blank, nonblank = (self._phase_cost(found) for found in by_phase)
        return log_add(blank, nonblank) if self._sums else min(blank, nonblank)

    def _phase_cost(self, candidates: list[Candidate]) -> np.float32:
        if not self._sums:
            return min((candidate.cost for candidate in candidates), default=INF)
        total = INF
        for candidate in candidates:
            total = log_add(total, candidate.cost)
        return total

    def _kept(self, order: list[Key], reached: dict[Key, ByPhase]) -> list[Key]:
        """Choose what remains: of `beam_size` places the texts that may matter."""
        size, nbest = self._options.beam_size, self._options.nbest
        drops_texts = self._by_text and (not self._sums or len(order) > size)
        kept: list[Key] = []
        at_place: dict[tuple, list[list[np.float32]]] = {}
        for key in order:
            place = key[:4]
            costs = [self._phase_cost(found) for found in reached[key]]
            before = at_place.get(place, [])
            # All places are taken; texts of those that are may still follow.
            if place not in at_place and len(at_place) == size:
                continue
            if drops_texts and all(
                cost == INF or sum(other[phase] <= cost for other in before) >= nbest
                for phase, cost in enumerate(costs)
            ):
                continue
            at_place.setdefault(place, []).append(costs)
            kept.append(key)
        return kept

    def _entry(self, key: Key, by_phase: ByPhase, best: np.float32) -> Entry:
        """Make the trace, and the cost relative to the best."""
        phases = tuple(self._phase(found, best) for found in by_phase)
        cost = self._cost_of(by_phase)
        lookahead = self._steps.lookahead_cost(key.state, key.node)
        return Entry(key, lookahead, phases, F(cost - best))  # type: ignore[arg-type]

    def _phase(self, candidates: list[Candidate], best: np.float32) -> Phase:
        if not candidates:
            return Phase()
        # `min` takes the first of equal ones: that of the better source, by the order
        # above.
        first = min(candidates, key=lambda candidate: candidate.cost)
        # With "sum" the cost is that of all ways, the times those of the best one.
        cost = F(self._phase_cost(candidates) - best)
        acoustic = first.source.acoustic + float(first.acoustic)
        trace = first.source.trace
        if first.token != NONE:  # a token begins
            begun = first.token, first.pron, self._frames, first.token_end
            self._trace.append(TraceNode(trace, *begun))
            trace = len(self._trace) - 1
        return Phase(cost, trace, first.token_end, acoustic)

    def _endings(self) -> tuple[list[Ending], bool]:
        """All ways to end, and whether they are accepted."""
        endings = [] if self._died_at_frame >= 0 else list(self._accepted_endings())
        if any(ending.cost < INF for ending in endings):
            return endings, True
        # Nothing that was whole: what there is, so that users see where it stopped.
        return list(self._unfinished_endings()), False

    def _accepted_endings(self) -> Iterator[Ending]:
        """All ways to end with whole words and `</s>`."""
        space = self._space
        for entry in self._frontier:
            key = entry.key
            word_ends = [WordEnd(NONE, NONE, F(0), key.state, NONE)]
            if space.has_lexicon and key.node != 0:
                word_ends = list(self._steps.word_ends(key))
            for end in word_ends:
                last = self._lm.final(end.state)
                graph = F(F(end.cost + last) - entry.lookahead_cost)
                insertion = F(0)
                if end.pron != NONE:
                    insertion = F(self._options.word_insertion)
                # The last word is credited like any other; what phrases still owe comes
                # after.
                boost, boost_cost = self._steps.step_boosts(key, end, NONE, 0)
                if not graph < INF:
                    continue
                rest, text = self._steps.rest(boost), entry.key.text
                text = self._text_after(text, end.label)
                for kind, phase in enumerate(entry.phases):
                    total = self._steps.cost(phase.cost, graph, insertion, boost_cost)
                    costs = graph, F(F(boost_cost + F(0)) + rest)
                    yield Ending(F(total + rest), entry, kind, end, text, *costs)

    def _unfinished_endings(self) -> Iterator[Ending]:
        """All entries as they are, without their look-ahead."""
        nothing = WordEnd(NONE, NONE, F(0), NONE, NONE)
        for entry in self._frontier:
            rest = self._steps.rest(entry.key.boost, entry.key.node)
            graph, text = F(-charged(entry.lookahead_cost)), entry.key.text
            for kind, phase in enumerate(entry.phases):
                total = F(phase.cost + F(F(self._options.lm_scale) * graph))
                total = F(total + rest)
                yield Ending(total, entry, kind, nothing, text, graph, rest)

    def _best_endings(self, endings: list[Ending]) -> list[Ending]:
        """Choose the `nbest` endings, one for each text, best first.

        Of the endings of a text the first of the least is taken, with "sum" at the cost
        of all of them together. Without a lexicon texts differ by their tokens, and
        there may be more of them.
        """
        least: dict[int, Ending] = {}
        totals: dict[int, np.float32] = {}
        for number, ending in enumerate(endings):
            if not ending.cost < INF:
                continue
            text = ending.text if self._by_text else number
            if text not in least or ending.cost < least[text].cost:
                least[text] = ending
            if self._sums:
                totals[text] = log_add(totals.get(text, INF), ending.cost)
        whole = [one._replace(cost=totals.get(i, one.cost)) for i, one in least.items()]
        by_cost = sorted(whole, key=lambda ending: ending.cost)
        most = most_endings(self._options, has_lexicon=self._space.has_lexicon)
        return by_cost[:most]

    def _phase_of(self, ending: Ending) -> Phase:
        return ending.entry.phases[ending.phase]

    def _trace_back(self, ending: Ending) -> np.ndarray:
        """int32 [N, 4]: token, start, end, pronunciation that ended before it or -1."""
        phase, rows = self._phase_of(ending), []
        at, end = phase.trace, phase.token_end
        if ending.phase == NONBLANK:
            end = self._frames
        while at >= 0:
            node = self._trace[at]
            rows.append((node.token, node.start, end, node.pron))
            at, end = node.previous, node.previous_end
        return np.array(rows[::-1], np.int32).reshape(-1, 4)
