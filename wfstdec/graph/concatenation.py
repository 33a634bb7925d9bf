"""A graph and an overlay as one graph: what searches with added words are defined by.

    whole, bonus = concatenate(graph, overlay, tables)

States keep their numbers, and arcs that lead to the same state their order, so that a
search of the whole breaks ties as one of the two parts does.
"""

from __future__ import annotations

import numpy as np

from wfstdec.graph.arcs import LABEL_MASK, REPEAT, FstArrays
from wfstdec.graph.overlay import Overlay
from wfstdec.graph.packed import PackedGraph
from wfstdec.graph.tables import GraphTables, Pronunciations


def concatenate(
    graph: PackedGraph, overlay: Overlay, tables: GraphTables
) -> tuple[PackedGraph, np.ndarray]:
    """One graph, which has no calls any more.

    Args:
        graph: The graph.
        overlay: Of that graph.
        tables: Of the whole: with the words of both.

    Returns:
        The whole, and what each of its arcs is credited, float32 [A + A'].
    """
    arcs = np.concatenate([graph.arcs, overlay.arcs])
    own = np.repeat(np.arange(graph.num_states), np.diff(graph.state_arc_splits))
    state = np.concatenate([own, overlay.arc_state()])
    num_states = graph.num_states + overlay.num_states
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
    whole = PackedGraph.pack(fst, arcs["ilabel"] & np.uint32(REPEAT) != 0, tables)
    return whole, _bonuses(whole, overlay)


def with_words(
    tables: GraphTables, words: tuple[str, ...], said: Pronunciations
) -> GraphTables:
    """Tables with more words and pronunciations.

    Args:
        tables: Of a graph.
        words: Texts of the word ids behind those of the table.
        said: Pronunciations of these, and of words of the table.
    """
    return GraphTables(
        tokens=tables.tokens,
        words=(*tables.words, *words),
        pronunciations=tables.pronunciations.joined_with(said),
        fillers=tables.fillers,
        separated=tables.separated,
        topology=tables.topology,
        marks_repeats=tables.marks_repeats,
    )


def _bonuses(whole: PackedGraph, overlay: Overlay) -> np.ndarray:
    """What each arc is credited: found by its states and its labels."""
    mask = np.uint32(LABEL_MASK | REPEAT)

    def keys(state: np.ndarray, arcs: np.ndarray) -> list[tuple]:
        columns = state, arcs["ilabel"] & mask, arcs["olabel"], arcs["nextstate"]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    there = keys(overlay.arc_state(), overlay.arcs)
    of_key = dict(zip(there, overlay.bonus.tolist(), strict=True))
    state = np.repeat(np.arange(whole.num_states), np.diff(whole.state_arc_splits))
    some = np.isin(state, overlay.call_state) | (state >= overlay.first_state)
    bonus = np.zeros(whole.num_arcs, np.float32)
    at = np.flatnonzero(some)
    found = [of_key.get(key, 0.0) for key in keys(state[at], whole.arcs[at])]
    bonus[at] = found
    return bonus
