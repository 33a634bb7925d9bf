"""Boosted phrases in torch: a list for each utterance, in one module for a batch.

phrases = TorchPhrases([compiled, None, compiled])     # what the field calls GPU-PB
states = phrases.start[phrases.model_of_list]          # one per utterance
costs, nextstates = phrases(states)                    # as of `TorchBackoff`

Lists are those that all decoders take. In torch's own operations each link is a few
kernels, and a phrase of n tokens has up to n of them: so there the arcs of all shorter
states are written to every state, and one link is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from wfstdec.boost.phrases import PhraseBoosts
from wfstdec.jit import jit
from wfstdec.lm.automaton import frozen
from wfstdec.transducer.automata import TorchBackoff

MAX_FLAT_ARCS = 20_000_000
"""Lists that would have more arcs keep their links."""


class TorchPhrases(TorchBackoff):
    """The lists of a batch; equal objects are laid out once.

    Args:
        lists: Phrases of tokens, or None, for each utterance; at least one is a list.
        flat: Leave one link to each state. None does where the device is no CPU.

    Attributes:
        model_of_list: int64 [B], which of `start` is an utterance's.
    """

    model_of_list: Tensor

    def __init__(
        self, lists: Sequence[PhraseBoosts | None], flat: bool = False
    ) -> None:
        different = {id(one): one for one in lists if one is not None}
        models = [flattened(one) if flat else one for one in different.values()]
        super().__init__(models)
        number = {key: i for i, key in enumerate(different)}
        of_list = [number.get(id(one), len(number)) for one in lists]
        self.register_buffer("model_of_list", torch.tensor(of_list))


def flattened(phrases: PhraseBoosts) -> PhraseBoosts:
    """Flatten links, at most one from any state to the root; costs bit for bit."""
    automaton = phrases.automaton
    arrays = (
        *(automaton.state_arc_splits, automaton.arc_label, automaton.arc_next),
        *(automaton.arc_cost, automaton.backoff_state, automaton.backoff_cost),
    )
    splits = np.zeros(len(automaton.state_arc_splits), np.int64)
    link_cost = np.zeros(len(splits) - 1, np.float32)
    none = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32)
    _flatten(*arrays, phrases.num_labels, splits, link_cost, none)
    # Links then stay as they are: slower, but in memory.
    if splits[-1] > MAX_FLAT_ARCS:
        return phrases
    label, nextstate = np.empty((2, splits[-1]), np.int32)
    cost = np.empty(splits[-1], np.float32)
    rows = label, nextstate, cost
    _flatten(*arrays, phrases.num_labels, splits, link_cost, rows)
    order = np.lexsort([label, np.repeat(np.arange(len(splits) - 1), np.diff(splits))])
    flat = automaton._replace(
        state_arc_splits=splits,
        arc_label=label[order],
        arc_next=nextstate[order],
        arc_cost=cost[order],
        backoff_state=np.where(automaton.backoff_state < 0, -1, 0),
        backoff_cost=link_cost,
    )
    return replace(phrases, automaton=frozen(flat))


@jit
def _flatten(
    splits, label, nextstate, cost, link, link_cost, num_labels, flat, links, rows
):
    """Fill in where rows stand, [S + 1], and costs of links; then, with room, the rows.

    Rows are labels, next states and costs; without room they are counted alone.
    """
    labels, nexts, costs = rows
    seen = np.full(num_labels, -1, np.int64)
    for state in range(len(link)):
        where, at, total = flat[state], np.int64(state), np.float32(0)
        while link[at] >= 0 or at == state:
            for arc in range(splits[at], splits[at + 1]):
                # The longest history that has the label counts; `seen` holds states, so
                # that it is never cleared.
                if seen[label[arc]] != state:
                    seen[label[arc]] = state
                    if len(labels):
                        labels[where], nexts[where] = label[arc], nextstate[arc]
                        # In the order in which a walk over the links would add.
                        costs[where] = total + cost[arc]
                    where += 1
            if link[at] < 0:
                break
            total = np.float32(total + link_cost[at])
            at = np.int64(link[at])
        flat[state + 1], links[state] = where, total
