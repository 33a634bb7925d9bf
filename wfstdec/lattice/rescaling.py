"""Lattices with other costs on their arcs: excess anew, and what is then too dear.

    lighter = weighed(lattice, scales)             # other scales, the same arcs
    expanded = with_arcs(lattice, states, arcs)    # what another model made of it

Costs are added in float64 here: this is no search's business.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy import uint32

from wfstdec.errors import LatticeError, OptionError
from wfstdec.jit import jit
from wfstdec.lattice.arrays import ARC, STATE, Lattice, LatticeScales, starts_token


def weighed(
    lattice: Lattice,
    *,
    acoustic_scale: float | None = None,
    lm_scale: float | None = None,
    word_insertion: float | None = None,
    lattice_beam: float | None = None,
) -> Lattice:
    """The lattice under other scales: its best path, its excess, its n-best lists.

    Paths that the search left out stay out: scales far from its own need a search.

    Args:
        lattice: Any.
        acoustic_scale: As in `WfstOptions`; what is None stays as it is.
        lm_scale: The same.
        word_insertion: The same.
        lattice_beam: What costs more than the best path and this is left out; None
            leaves the lattice's.

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
    """Scales with those that are not None in place of the old ones.

    Raises:
        OptionError: A value is out of range.
    """
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
    """A lattice of other states and arcs, whose excess is made anew.

    Args:
        lattice: What it is in place of.
        states: `STATE` [S], state 0 the start, by frames; `final_excess` says only
            where a path may end. Written to.
        arcs: `ARC` [A], sorted by state; `excess` is not looked at. Written to.
        scales: What costs are added up by.
        lattice_beam: What costs more than the best path and this is left out.
        order: int64 [S], as `Lattice.order`; None where it is not known.

    Raises:
        LatticeError: No path is left.
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
    """Fill in all excess; the least cost, and those of the best paths through states.

    Returns:
        (float, float64 [S]).
    """
    acoustic_scale, lm_scale = scales
    costs, least = np.empty(len(arcs)), np.full(len(states), np.inf)
    least[0] = 0.0
    for state in order:
        for a in range(splits[state], splits[state + 1]):
            arc = arcs[a]
            # In float64, in this order: what costs of hypotheses are made of.
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
            # Infinity less infinity would be NaN.
            if costs[a] < np.inf and least[state] < np.inf:
                more = least[state] + costs[a] - least[to]
            arcs[a].excess = more  # rounded: what `_kept` compares is what adds up
            through[state] = min(through[state], arcs[a].excess + through[to])
    return best, through


@jit
def _kept(states, arcs, through, best, beam):
    """The states and arcs that cost no more than the best path and the beam."""
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
            # A state may stay for paths that go on, although ending here is too dear.
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
