"""Boosts times a number: what `boost_scale` does.

Amounts and credits of phrases are scaled, and rounded to `GRAIN` as they were before,
so that credits that were paid in advance are still taken back to the last bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wfstdec.boost.phrases import GRAIN, PhraseBoosts
from wfstdec.boost.words import WordBoosts
from wfstdec.jit import jit
from wfstdec.lm.automaton import frozen


def scaled_words(words: WordBoosts, scale: float) -> WordBoosts:
    """All bonuses times a number, 0 or more."""
    bonuses = (words.bonuses * np.float64(scale)).astype(np.float32)
    return WordBoosts(words.keys, bonuses, max(np.float32(0), bonuses.max()))


def scaled_phrases(phrases: PhraseBoosts, scale: float) -> PhraseBoosts:
    """All amounts and credits times a number, 0 or more."""
    automaton = phrases.automaton
    credit = _credits(automaton.backoff_state, automaton.backoff_cost)
    source = np.repeat(np.arange(len(credit)), np.diff(automaton.state_arc_splits))
    done = credit[source] - credit[automaton.arc_next] - automaton.arc_cost
    left = automaton.final_cost - credit
    credit, done, left = (_rounded(x * scale) for x in (credit, done, left))
    backoff = automaton.backoff_state
    return replace(
        phrases,
        automaton=frozen(
            automaton._replace(
                arc_cost=credit[source] - (credit[automaton.arc_next] + done),
                backoff_cost=np.where(backoff < 0, 0, credit - credit[backoff]),
                final_cost=credit + left,
                model_default_cost=automaton.model_default_cost * np.float64(scale),
            )
        ),
    )


def _rounded(amounts: np.ndarray) -> np.ndarray:
    return np.round(amounts / GRAIN) * GRAIN


@jit
def _credits(backoff_state, backoff_cost):
    """What each state was credited in advance, float64 [S]: 0 at the root."""
    credit = np.zeros(len(backoff_cost))
    for state in range(1, len(credit)):
        credit[state] = credit[backoff_state[state]] + np.float64(backoff_cost[state])
    return credit
