"""Boosts in each step of a search, in plain Python: the specification.

account = BoostAccount(boosts, beam)
boost = account.start
cost, boost = account.step(boost, word, token)    # either may be None
total += account.rest(boost)                      # at the end, always
"""

from __future__ import annotations

import lm_reference as automata
import numpy as np

from wfstdec.boost.compiled import CompiledBoosts
from wfstdec.boost.kernels import max_credit_per_arc, pay, rest_of, state_of

F = np.float32
_NO_COST = F(0)


class BoostAccount:
    """The boosts of an utterance as a search pays them; `beam`: how much at once."""

    def __init__(self, boosts: CompiledBoosts, beam: float) -> None:
        self._words, self._phrases = boosts.words, boosts.phrases
        self._size = max_credit_per_arc(beam)
        self.start = 0 if self._phrases is None else self._phrases.start

    def step(
        self,
        boost: int,
        word: int | None,
        token: int | None,
        *,
        bonus: np.float32 = _NO_COST,
    ) -> tuple[np.float32, int]:
        """The cost of a step, below 0 where it is credited; the next boost state."""
        if word is None and token is None:
            return F(0), boost
        state = int(state_of(boost))
        credit = F(0) if word is None else F(self._words.bonus(word))
        unit = None if self._phrases is None else self._phrases.unit
        label = word if unit == "word" else token
        if self._phrases is not None and label is not None:
            cost, state = automata.step(self._phrases.automaton, 0, state, label)
            credit = F(credit - cost)
        credit = F(credit + bonus)
        paid, after = pay(boost, state, credit, self._size)
        return F(F(0) - paid), int(after)

    def rest(self, boost: int) -> np.float32:
        """Cost of ending: what is owed is paid, unfinished phrases are charged."""
        refund = F(0)
        if self._phrases is not None:
            refund = self._phrases.automaton.final_cost[int(state_of(boost))]
        return F(refund - rest_of(boost, self._size))
