"""A graph and an overlay as one graph: what searches with added words are defined by.

    whole = concatenate(graph, overlay, vocabulary)

States keep their numbers. Arcs cannot, since those of a state are together: `number`
has the numbers that they have in graph and overlay, by which ties are broken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wfstdec.graph.arcs import LABEL_MASK, REPEAT, FstArrays
from wfstdec.graph.overlay import Overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.text.vocabulary import Vocabulary


class Whole(NamedTuple):
    """A graph and an overlay as one; each arc's credited bonus and number before."""

    graph: PackedGraph
    bonus: np.ndarray
    number: np.ndarray


def concatenate(graph: PackedGraph, overlay: Overlay, vocabulary: Vocabulary) -> Whole:
    """Join graph and overlay; the vocabulary has the words of both."""
    arcs = np.concatenate([graph.arcs, overlay.arcs])
    own = np.repeat(np.arange(graph.num_states), np.diff(graph.state_arc_splits))
    state = np.concatenate([own, _arc_state(overlay)])
    num_states = graph.num_states + overlay.num_states
    # States of the graph with exits have arcs in both parts; stable, so that those of
    # the graph come first.
    order = np.argsort(state, kind="stable")
    arcs = arcs[order]
    splits = np.concatenate([[0], np.cumsum(np.bincount(state, minlength=num_states))])
    fst = FstArrays(
        start=0,
        final_cost=np.append(graph.final_cost, np.full(overlay.num_states, np.inf)),
        state_arc_splits=splits,
        ilabel=(arcs["ilabel"] & np.uint32(LABEL_MASK)).astype(np.int32),
        olabel=arcs["olabel"].astype(np.int32),
        nextstate=arcs["nextstate"].astype(np.int32),
        cost=arcs["cost"],
    )
    repeat = arcs["ilabel"] & np.uint32(REPEAT) != 0
    info = replace(graph.info, word_cost=np.zeros(0, np.float32))  # not of all words
    whole = PackedGraph.pack(fst, repeat, vocabulary, info)
    return Whole(whole, *_found_again(whole, overlay))


def _found_again(whole: PackedGraph, overlay: Overlay) -> tuple[np.ndarray, np.ndarray]:
    """Bonus and number of each arc: those of the overlay are known by their ends."""
    mask = np.uint32(LABEL_MASK | REPEAT)

    def keys(state: np.ndarray, arcs: np.ndarray) -> list[tuple]:
        columns = state, arcs["ilabel"] & mask, arcs["olabel"], arcs["nextstate"]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    there = keys(_arc_state(overlay), overlay.arcs)
    at_key = dict(zip(there, range(len(there)), strict=True))
    state = np.repeat(np.arange(whole.num_states), np.diff(whole.state_arc_splits))
    # Packing has sorted rows anew, so that positions are lost. Only rows that the
    # overlay touches are looked up: keys are made in plain Python.
    some = np.isin(state, overlay.exit_state) | (state >= overlay.first_state)
    at = np.full(whole.num_arcs, -1)
    at[some] = [at_key.get(key, -1) for key in keys(state[some], whole.arcs[some])]
    oov = at >= 0
    number = np.where(oov, overlay.first_arc + at, np.cumsum(~oov) - 1)
    return np.append(overlay.bonus, np.float32(0))[at], number


def _arc_state(overlay: Overlay) -> np.ndarray:
    """The state that each arc of an overlay leaves, int64."""
    entered = np.repeat(overlay.exit_state.astype(np.int64), overlay.num_entry_arcs)
    states = overlay.first_state + np.arange(overlay.num_states)
    lengths = np.diff(overlay.state_arc_splits).astype(np.int64)
    return np.concatenate([entered, np.repeat(states, lengths)])
