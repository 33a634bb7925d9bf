"""Rescoring: new costs on a lattice's arcs, new excess, pruned to the beam.

    lighter = weighed(lattice, scales)             # other scales, the same arcs
    expanded = with_arcs(lattice, states, arcs)    # costs of another model

Costs are added in float64 here, unlike in the search.
"""

from dataclasses import replace
from weakref import WeakSet

import numpy as np
from numpy import uint32

from wfstdec.errors import LatticeError, OptionError
from wfstdec.jit import jit
from wfstdec.jit.arrays import enter, longer, slot_of_pair
from wfstdec.jit.records import WeakCache
from wfstdec.lattice.arrays import ARC, STATE, Lattice, LatticeScales, starts_token
from wfstdec.lattice.pronunciation_costs import numbered, pronounced
from wfstdec.lm import kernels
from wfstdec.lm.ngram import NgramLM
from wfstdec.text.vocabulary import Vocabulary


def weighed(
    lattice: Lattice,
    *,
    acoustic_scale: float | None = None,
    lm_scale: float | None = None,
    word_insertion: float | None = None,
    lattice_beam: float | None = None,
) -> Lattice:
    """Return the lattice under other scales, with new excess.

    Paths that the search pruned stay pruned: very different scales need a new search.

    Args:
        lattice: Any lattice.
        acoustic_scale: As in `WfstOptions`; None keeps the lattice's, as below.
        lm_scale: The same.
        word_insertion: The same.
        lattice_beam: Largest extra cost of a path over the best, nats.

    Raises:
        OptionError: A value is out of range.
    """
    scales = changed_scales(
        lattice.scales,
        acoustic_scale=acoustic_scale,
        lm_scale=lm_scale,
        word_insertion=word_insertion,
    )
    arcs = lattice.arcs.copy()
    if word_insertion is not None:
        tokens = starts_token(arcs["ilabel"], lattice.tokens)
        arcs["insertion_cost"] = scales.insertion_costs(arcs["olabel"] != 0, tokens)
    beam = lattice.lattice_beam if lattice_beam is None else lattice_beam
    return with_arcs(lattice, lattice.states.copy(), arcs, scales, beam)


def changed_scales(scales: LatticeScales, **given: float | None) -> LatticeScales:
    """Return scales, replaced by those that are not None."""
    known = {name: float(value) for name, value in given.items() if value is not None}
    for name, value in known.items():
        low = -np.inf if name == "word_insertion" else 0.0
        if not low <= value < np.inf:
            raise OptionError(f"{name}={value!r}, expected a finite number, 0 or more")
    return replace(scales, **known)


def with_arcs(
    lattice: Lattice,
    states: np.ndarray,
    arcs: np.ndarray,
    scales: LatticeScales,
    lattice_beam: float,
    *,
    order: np.ndarray | None = None,
) -> Lattice:
    """Return a lattice of new states and arcs, with new excess; overwrites the arrays.

    `states`: by frames; `final_excess` marks only where a path may end. `arcs`: sorted
    by state. `order`: as `Lattice.order`; None if unknown.
    """
    if order is None:
        order = replace(lattice, states=states, arcs=arcs).order
    by = scales.acoustic_scale, scales.lm_scale
    splits = np.searchsorted(arcs["state"], np.arange(len(states) + 1))
    best, through = _costs(order, states, arcs, splits, by)
    if not best < np.inf:
        raise LatticeError(
            "no path is left, expected one that the model allows: does it lack words? "
            "unk_cost is what they cost"
        )
    states, arcs = _kept(states, arcs, through, best, float(lattice_beam))
    made = {"states": states, "arcs": arcs, "scales": scales, "search_cost": best}
    return replace(lattice, **made, lattice_beam=lattice_beam)


@jit
def _costs(order, states, arcs, splits, scales):
    """Fill in all excess; return the least cost, and the least through each state."""
    acoustic_scale, lm_scale = scales
    costs, least = np.empty(len(arcs)), np.full(len(states), np.inf)
    least[0] = 0.0
    for state in order:
        for a in range(splits[state], splits[state + 1]):
            arc = arcs[a]
            # In float64, in this order, as costs of hypotheses.
            total = lm_scale * np.float64(arc.graph_cost)
            total += arc.insertion_cost
            total += arc.boost_cost
            total += acoustic_scale * np.float64(arc.acoustic_cost)
            costs[a] = total
            to = np.int64(arc.nextstate)
            least[to] = min(least[to], least[state] + total)
    through = np.full(len(states), np.inf)
    for state in range(len(states)):
        one = states[state]
        if one.final_excess < np.inf:
            final = lm_scale * np.float64(one.final_cost) + one.final_boost_cost
            through[state] = least[state] + final
    best = through.min()
    for state in range(len(states)):
        states[state].final_excess = through[state] - best
    for state in order[::-1]:
        for a in range(splits[state], splits[state + 1]):
            to, more = np.int64(arcs[a].nextstate), np.inf
            # Infinity minus infinity would be NaN.
            if costs[a] < np.inf and least[state] < np.inf:
                more = least[state] + costs[a] - least[to]
            arcs[a].excess = more  # rounded: `_kept` compares the rounded sums
            through[state] = min(through[state], arcs[a].excess + through[to])
    return best, through


@jit
def _kept(states, arcs, through, best, beam):
    """Return the states and arcs of paths within the beam of the best."""
    number, num = np.empty(len(states), np.int64), 0
    for state in range(len(states)):
        number[state] = -1
        if through[state] - best <= beam:
            number[state] = num
            num += 1
    kept_states, kept_arcs, count = np.empty(num, STATE), np.empty(len(arcs), ARC), 0
    for state in range(len(states)):
        if number[state] >= 0:
            kept_states[number[state]] = states[state]
            one = kept_states[number[state]]
            # A state may stay for paths through it, although ending is above the beam.
            if one.final_excess > beam:
                one.final_excess = np.inf
    for a in range(len(arcs)):
        state, to = np.int64(arcs[a].state), np.int64(arcs[a].nextstate)
        if arcs[a].excess + through[to] - best <= beam:
            kept_arcs[count] = arcs[a]
            arc = kept_arcs[count]
            arc.state, arc.nextstate = uint32(number[state]), uint32(number[to])
            count += 1
    return kept_states, kept_arcs[:count].copy()


HISTORY_BEAM = 5.0
_OVER: WeakCache[NgramLM, WeakSet[Vocabulary]] = WeakCache(lambda lm: WeakSet())
"""Models known to be over the words of these graphs."""


def rescored(
    lattice: Lattice,
    lm: NgramLM,
    *,
    lm_scale: float | None = None,
    word_insertion: float | None = None,
    lattice_beam: float | None = None,
    history_beam: float = HISTORY_BEAM,
) -> Lattice:
    """Return the lattice with the costs of a language model in place of the graph's.

    Its paths are those of `lattice`, so pruned paths stay pruned. A state of `lattice`
    is split by the histories of the model.

    Args:
        lattice: Any lattice, also a rescored one.
        lm: Over the words of the graph, with or without those of the utterance.
        lm_scale: Multiplies its costs; None keeps the lattice's, as below.
        word_insertion: Cost of each word.
        lattice_beam: Largest extra cost of a path over the best, nats.
        history_beam: Largest extra cost of the best path to a history over the best
            path to its state of `lattice`, nats.

    Raises:
        OptionError: The model is over other words, or a value is out of range.
        LatticeError: The model allows no path: it lacks words, and has no `<unk>`; or
            the costs of open words are unknown.
    """
    check_lm(lattice, lm)
    scales = changed_scales(
        lattice.scales, lm_scale=lm_scale, word_insertion=word_insertion
    )
    expanded = pronounced(lattice)
    arcs, num_states = expanded.arcs, len(expanded.states)
    begins = starts_token(arcs["ilabel"], lattice.tokens)
    pairs, arcs, order = _expand(
        (expanded, np.searchsorted(arcs["state"], np.arange(num_states + 1))),
        lm.automaton,
        (scales.acoustic_scale, scales.lm_scale),
        scales.insertion_costs(arcs["olabel"] != 0, begins),
        history_beam,
    )
    # Final costs are the model's.
    of, history = pairs.T
    states = expanded.states[of]
    cost = lm.automaton.final_cost[history] + expanded.final_cost[of]
    ends = states["final_excess"] < np.inf
    # An end must be possible in both the graph and the model.
    possible = (states["final_cost"] < np.inf) & (cost < np.inf)
    states["final_cost"][ends] = cost[ends]
    states["final_excess"][~possible] = np.inf
    beam = lattice.lattice_beam if lattice_beam is None else lattice_beam
    return with_arcs(lattice, states, arcs, scales, beam, order=order)


def check_lm(lattice: Lattice, lm: NgramLM) -> None:
    """Check that a model is over a lattice's words; OOV words may be its `<unk>`."""
    if lattice.words_are_tokens:
        raise LatticeError(
            "is one of bare tokens, without words to price, expected a lattice of a "
            "search with a lexicon or a graph"
        )
    own, over = lattice.vocabulary.own, _OVER.of(lm)
    if own not in over:
        if _is_over(lm, own.words):
            over.add(own)
        elif not _is_over(lm, lattice.words):
            raise OptionError(
                f"a language model over {lm.num_labels} {lm.unit}s, expected one over "
                f"the {len(own.words)} words of the lattice: "
                "NgramLM.from_arpa(arpa, lattice.words)"
            )


def _is_over(lm: NgramLM, words: tuple[str, ...]) -> bool:
    same = lm.labels is None or lm.labels is words or lm.labels == words
    return lm.unit == "word" and lm.num_labels == len(words) and same


@jit
def _expand(lattice, automaton, scales, insertions, history_beam):
    """Split the states and arcs of a lattice by the histories on its paths."""
    expanded, splits = lattice
    states, arcs, order = expanded.states, expanded.arcs, expanded.order
    acoustic_scale, lm_scale = scales
    table = np.full((1024, 2), -1, np.int32), np.full(4096, -1, np.int32)
    made, count = np.empty(1024, ARC), 0
    # The pairs of a state form a linked list: the last one, and the previous ones.
    last, before = np.full(len(states), -1, np.int32), np.full(1024, -1, np.int32)
    least = np.full(1024, np.inf)
    (pairs, slots), num, _ = enter(table, 0, 0, automaton.model_start[0])
    last[0], least[0] = 0, 0.0
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
                arc, cost, after = arcs[a], expanded.cost[a], history
                insertion, word = insertions[a], np.int64(arc.olabel)
                if word != 0:
                    asked, after = kernels.step(automaton, 0, history, word)
                    cost += asked
                    if not cost < np.inf:
                        continue
                to = np.int64(arc.nextstate)
                number = np.int64(slots[slot_of_pair(slots, pairs, to, after)])
                if number < 0:
                    (pairs, slots), num, number = enter((pairs, slots), num, to, after)
                    if num > len(before):
                        before, least = longer(before, num), longer(least, num)
                    before[number], last[to] = last[to], number
                    least[number] = np.inf
                total = so_far + lm_scale * cost + insertion + arc.boost_cost
                total += acoustic_scale * arc.acoustic_cost
                least[number] = min(least[number], total)
                if count == len(made):
                    made = longer(made, 0)
                made[count] = arc
                one = made[count]
                one.state, one.nextstate = uint32(at), uint32(number)
                one.graph_cost, one.insertion_cost = cost, insertion
                count += 1
            at = before[at]
    return numbered(pairs[:num], made[:count], order)
