"""Lattices under another language model: words are priced anew, exactly.

    lm = NgramLM.from_arpa("large.arpa.gz", lattice.words)
    better = rescored(lattice, lm, lm_scale=0.8)
    better.word_ids(better.best_arcs())

The graph's costs are dropped, and not subtracted: where backing off was cheaper than
what the graph's model says, or costs stand early on a path, the difference of two
models would be wrong. In their place stand the model's, with true back-off, and those
of pronunciations: a word costs the least of its own. Costs of silences are dropped.

    state   a state of the lattice with a state of the model
    arc     with a word: the model's step and the pronunciation; others cost nothing
"""

from __future__ import annotations

import functools

import numpy as np
from numpy import int32, uint32

from wfstdec.errors import LatticeError, OptionError
from wfstdec.graph.tables import GraphTables
from wfstdec.jit import jit
from wfstdec.jit.hashing import slot_of_pair
from wfstdec.lattice.arrays import ARC, STATE, Lattice
from wfstdec.lattice.labels import begins_token, is_of_tokens
from wfstdec.lattice.weighing import changed_scales, with_arcs
from wfstdec.lm import kernels
from wfstdec.lm.ngram import NgramLM

HISTORY_BEAM = 8.0
"""Nats."""


def rescored(
    lattice: Lattice,
    lm: NgramLM,
    *,
    lm_scale: float | None = None,
    word_insertion: float | None = None,
    lattice_beam: float | None = None,
    history_beam: float = HISTORY_BEAM,
) -> Lattice:
    """The lattice with the costs of a language model in place of the graph's.

    A path through it is one of `lattice`, so what the search dropped stays dropped. Of
    a state of `lattice` there may be several, one for each history of the model.

    Args:
        lattice: Any, also one that was rescored.
        lm: Over the words of the graph.
        lm_scale: Times its costs; None is the lattice's.
        word_insertion: Of each word; None is the lattice's.
        lattice_beam: What costs more than the best path and this is left out; None
            leaves the lattice's.
        history_beam: Histories of a state of `lattice` are dropped where the best way
            to them costs more than the best way to the state, and this; nats.

    Raises:
        OptionError: The model is over other words, or a value is out of range.
        LatticeError: The model allows no path: it lacks words, and has no `<unk>`.
            Or the lattice has open words.
    """
    check_lm(lattice, lm)
    scales = changed_scales(
        lattice.scales, lm_scale=lm_scale, word_insertion=word_insertion
    )
    splits = np.searchsorted(lattice.arcs["state"], np.arange(lattice.num_states + 1))
    states, arcs = _expand(
        (lattice.states, lattice.arcs, lattice.order, splits),
        lm.automaton,
        word_costs(lattice.tables),
        (scales.acoustic_scale, scales.lm_scale),
        scales.insertion_costs(lattice.arcs["olabel"] != 0, begins_token(lattice)),
        history_beam,
    )
    arcs = arcs[np.argsort(arcs["state"], kind="stable")]
    beam = lattice.lattice_beam if lattice_beam is None else lattice_beam
    return with_arcs(lattice, states, arcs, scales, beam)


def check_lm(lattice: Lattice, lm: NgramLM) -> None:
    """See that a model is over the words of a lattice, and that it can price them.

    Raises:
        OptionError: It is over others.
        LatticeError: The lattice has open words.
    """
    if is_of_tokens(lattice.tables):
        raise LatticeError(
            "is one of bare tokens, without words to price, expected a lattice of a "
            "search with a lexicon or a graph"
        )
    opened = lattice.tables.open_word
    if opened is not None and (lattice.arcs["olabel"] == opened.word).any():
        raise LatticeError(
            "has open words, whose tokens have costs that a rescoring would lose; "
            "expected a lattice of a graph without `open_vocabulary`"
        )
    labels, words = lm.labels, lattice.words
    same = labels is None or labels is words or labels == words
    if lm.unit != "word" or lm.num_labels != len(lattice.words) or not same:
        raise OptionError(
            f"a language model over {lm.num_labels} {lm.unit}s, expected one over the "
            f"{len(lattice.words)} words of the lattice: NgramLM.from_arpa(arpa, "
            "lattice.words)"
        )


@functools.lru_cache(maxsize=16)
def word_costs(tables: GraphTables) -> np.ndarray:
    """What the pronunciation of each word costs at least, float32 [words]."""
    said, costs = tables.pronunciations, np.full(len(tables.words), np.inf, np.float32)
    np.minimum.at(costs, said.word, said.cost)
    costs[costs == np.inf] = 0
    return costs


@jit
def _expand(lattice, automaton, word_costs, scales, insertions, history_beam):
    """The states and arcs of a lattice, for every history that a path brings there."""
    states, arcs, order, splits = lattice
    acoustic_scale, lm_scale = scales
    pairs, slots = np.full((1024, 2), -1, np.int32), np.full(4096, -1, np.int32)
    made, count = np.empty(1024, ARC), 0
    # The pairs of a state stand in a list: the first, and then the one before.
    last, before = np.full(len(states), -1, np.int32), np.full(1024, -1, np.int32)
    least = np.full(1024, np.inf)
    pairs[0, 0], pairs[0, 1] = 0, automaton.model_start[0]
    slots[slot_of_pair(slots, pairs, 0, pairs[0, 1])] = 0
    last[0], least[0], num = 0, 0.0, 1
    for state in order:
        at, best = last[state], np.inf
        while at >= 0:
            best, at = min(best, least[at]), before[at]
        at = last[state]
        while at >= 0:
            history, so_far = pairs[at, 1], least[at]
            if so_far > best + history_beam:
                at = before[at]
                continue
            for a in range(splits[state], splits[state + 1]):
                arc, cost, after = arcs[a], np.float32(0), history
                insertion, word = insertions[a], np.int64(arc.olabel)
                if word != 0:
                    cost, after = kernels.step(automaton, 0, history, word)
                    cost += word_costs[word]
                    if not cost < np.inf:
                        continue
                to = np.int64(arc.nextstate)
                slot = slot_of_pair(slots, pairs, to, after)
                if slots[slot] < 0:
                    if num == len(pairs):
                        pairs, slots, before, least = _longer(pairs, before, least)
                        slot = slot_of_pair(slots, pairs, to, after)
                    pairs[num, 0], pairs[num, 1] = to, after
                    slots[slot], before[num], last[to] = num, last[to], num
                    num += 1
                total = so_far + lm_scale * cost + insertion + arc.boost_cost
                total += acoustic_scale * arc.acoustic_cost
                least[slots[slot]] = min(least[slots[slot]], total)
                if count == len(made):
                    longer = np.empty(2 * count, ARC)
                    longer[:count] = made
                    made = longer
                made[count] = arc
                one = made[count]
                one.state, one.nextstate = uint32(at), uint32(slots[slot])
                one.graph_cost, one.insertion_cost = cost, insertion
                count += 1
            at = before[at]
    return _number(states, automaton, pairs[:num], order), _renumber(
        made[:count], pairs[:num], order
    )


@jit
def _longer(pairs, before, least):
    """Twice the room for pairs and what is known of them, and their hash table."""
    num = len(pairs)
    more = np.full((2 * num, 2), -1, np.int32)
    more[:num] = pairs
    slots = np.full(8 * num, -1, np.int32)
    for i in range(num):
        slots[slot_of_pair(slots, more, more[i, 0], more[i, 1])] = i
    longer = np.full(2 * num, -1, np.int32)
    longer[:num] = before
    costs = np.full(2 * num, np.inf)
    costs[:num] = least
    return more, slots, longer, costs


@jit
def _places(pairs, num_states):
    """The places of pairs sorted by state, int32 [N]; pairs of a state as they came."""
    first = np.zeros(num_states + 1, np.int64)
    for i in range(len(pairs)):
        first[pairs[i, 0] + 1] += 1
    for s in range(num_states):
        first[s + 1] += first[s]
    place = np.empty(len(pairs), np.int32)
    for i in range(len(pairs)):
        place[i] = int32(first[pairs[i, 0]])
        first[pairs[i, 0]] += 1
    return place


@jit
def _number(states, automaton, pairs, order):
    """The state of each pair, sorted; final costs are the model's."""
    place = _places(pairs, len(order))
    made = np.empty(len(pairs), STATE)
    for i in range(len(pairs)):
        made[place[i]] = states[pairs[i, 0]]
        one = made[place[i]]
        if one.final_excess < np.inf:
            reached = one.final_cost < np.inf
            one.final_cost = kernels.final(automaton, 0, pairs[i, 1])
            if not (reached and one.final_cost < np.inf):
                one.final_excess = np.inf
    return made


@jit
def _renumber(arcs, pairs, order):
    """The arcs between states in their places."""
    place = _places(pairs, len(order))
    for a in range(len(arcs)):
        arcs[a].state = uint32(place[arcs[a].state])
        arcs[a].nextstate = uint32(place[arcs[a].nextstate])
    return arcs
