"""Search of an utterance by flashlight's rules; arrays grow, a model is asked.

    search = Search(rules, model)
    search.advance(emissions)                    # float32 [T, V], any number of times
    search.end()
    search.paths(nbest)                          # scores, tokens and words of frames

Arrays grow, and a user's language model is asked, when a kernel says so; the frame is
then done again, so that neither changes a result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wfstdec.adapters.torchaudio import kernels
from wfstdec.adapters.torchaudio import records as k
from wfstdec.adapters.torchaudio.models import Model
from wfstdec.jit.records import longer
from wfstdec.search.interrupts import check

FIRST_CANDIDATES = 4096
"""Candidates that arrays hold at first, at least."""


class Path(NamedTuple):
    """A way through an utterance, F entries: a start, its frames, and an end if ended.

    Attributes:
        score: Of the path, or of all that is summed in it.
        tokens: int32 [F], the token of each.
        words: int32 [F], the word that ended there, -1 for none.
    """

    score: float
    tokens: np.ndarray
    words: np.ndarray


class Search:
    """The search of one utterance.

    Args:
        rules: What is searched.
        model: Its language model.
        num_tokens: V.
    """

    def __init__(self, rules: k.Rules, model: Model, num_tokens: int) -> None:
        self._rules = rules
        self._history = model.begin()
        size = rules.beam_size
        self._scratch = _new_scratch(max(FIRST_CANDIDATES, 2 * size), num_tokens)
        self._utterance = k.UtteranceState(
            beam=np.zeros(size, k.BEAM),
            trace=np.empty(1 + 2 * size, k.TRACE),
            counts=np.array([1, 1, 1, 0, 0]),
            lm_state=np.full(1 + 2 * size, rules.automaton.model_start[0], np.int32),
            arc_slots=np.full(_slots_for(2 * size), -1, np.int32),
            arc_of=np.empty((2 * size, 2), np.int32),
            arc_next=np.empty(2 * size, np.int32),
            arc_score=np.empty(2 * size, np.float32),
        )
        self._utterance.beam[0]["token"] = rules.sil
        self._utterance.trace[0] = -1, rules.sil, -1
        self.frames = 0

    def advance(self, emissions: np.ndarray) -> None:
        """Search further frames, float32 [T, V]."""
        done = 0
        while True:
            before = done
            done = kernels.advance(
                self._rules, self._scratch, self._utterance, emissions, done
            )
            self.frames += done - before
            if done == len(emissions):
                break
            self._make_way(int(self._scratch.counts[k.STATUS]))
            check()  # a model of the user's may be slow

    def end(self) -> None:
        """Let the language model finish, and keep what ends well if anything does."""
        utterance = self._utterance
        if utterance.counts[k.TRACE_SIZE] + len(utterance.beam) > len(utterance.trace):
            self._grow_trace()
        states = np.ascontiguousarray(utterance.beam["lm"][: self._beam_size])
        own = self._rules.asked  # whose states are numbers of the history alone
        lm_states = np.zeros_like(states) if own else utterance.lm_state[states]
        finish = self._history.finish(states, lm_states)
        kernels.end(self._rules, self._scratch, self._utterance, *finish)
        self.frames += 1

    def paths(self, count: int) -> list[Path]:
        """The best `count` hypotheses, the best first."""
        found = []
        for hypothesis in self._utterance.beam[: min(count, self._beam_size)]:
            tokens = np.empty(self.frames + 1, np.int32)
            words = np.empty_like(tokens)
            kernels.trace_back(
                self._utterance.trace, hypothesis["trace"], tokens, words
            )
            found.append(Path(float(hypothesis["score"]), tokens, words))
        return found

    @property
    def _beam_size(self) -> int:
        return int(self._utterance.counts[k.BEAM_SIZE])

    def _make_way(self, status: int) -> None:
        """Do what a frame was broken off for."""
        if status == k.MORE_CANDIDATES:
            size = 2 * len(self._scratch.candidates)
            self._scratch = _new_scratch(size, len(self._scratch.tokens))
        elif status == k.MORE_TRACE:
            self._grow_trace()
        elif status == k.MORE_ARCS:
            self._grow_arcs()
        else:
            assert status == k.MISSED
            self._ask()

    def _ask(self) -> None:
        """Ask the model for the arcs that kernels wanted and nobody has answered."""
        counts = self._utterance.counts
        wanted = slice(int(counts[k.ANSWERED]), int(counts[k.NUM_ARCS]))
        found = self._history.answer(self._utterance.arc_of[wanted])
        self._utterance.arc_next[wanted], self._utterance.arc_score[wanted] = found
        counts[k.ANSWERED] = counts[k.NUM_ARCS]

    def _grow_trace(self) -> None:
        trace = self._utterance.trace
        self._utterance = self._utterance._replace(trace=longer(trace, 2 * len(trace)))

    def _grow_arcs(self) -> None:
        utterance = self._utterance
        size = 2 * len(utterance.arc_of)
        self._utterance = utterance._replace(
            lm_state=longer(utterance.lm_state, size + 1),
            arc_slots=np.full(_slots_for(size), -1, np.int32),
            arc_of=longer(utterance.arc_of, size),
            arc_next=longer(utterance.arc_next, size),
            arc_score=longer(utterance.arc_score, size),
        )
        kernels.insert_arcs(self._utterance)


def _new_scratch(candidates: int, num_tokens: int) -> k.Scratch:
    """Scratch for so many candidates."""
    return k.Scratch(
        candidates=np.empty(candidates, k.CANDIDATE),
        slots=np.full(_slots_for(candidates), -1, np.int32),
        taken=np.empty(candidates, np.int32),
        order=np.empty(candidates, np.int32),
        beside=np.empty(candidates, np.int32),
        values=np.empty(max(candidates, num_tokens)),
        allowed=np.empty(num_tokens, np.bool_),
        tokens=np.empty(num_tokens, np.int32),
        counts=np.zeros(3, np.int64),
        limits=np.empty(2),
    )


def _slots_for(count: int) -> int:
    """A power of 2, at least twice as many."""
    return 1 << (2 * count).bit_length()
