"""The language model where there is none: no label costs anything, nor does the end.

A null object: searches step it like any other model and need not ask whether there is
one. It has a single state.
"""

from __future__ import annotations

import numpy as np

from wfstdec.lm.automaton import Automaton, frozen

NULL_AUTOMATON = frozen(
    Automaton(
        state_arc_splits=np.zeros(2),
        arc_label=np.zeros(0),
        arc_next=np.zeros(0),
        arc_cost=np.zeros(0),
        backoff_state=np.full(1, -1),
        backoff_cost=np.zeros(1),
        final_cost=np.zeros(1),
        model_start=np.zeros(1),
        model_label_splits=np.zeros(2),
        model_default_cost=np.zeros(1),
        label_alias=np.zeros(0),
    )
)
"""Automaton of one state, the root: each label leads back to it at cost 0."""
