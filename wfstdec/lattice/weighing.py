"""Lattices with other costs on their arcs: excess anew, and what is then too dear.

    lighter = weighed(lattice, scales)             # other scales, the same arcs
    expanded = with_arcs(lattice, states, arcs)    # what another model made of it

Costs are added in float64 here: this is no search's business.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wfstdec.errors import LatticeError, OptionError
from wfstdec.jit import jit
from wfstdec.lattice.arrays import Lattice, LatticeScales
from wfstdec.lattice.labels import begins_token


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
        tokens = begins_token(lattice)
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
) -> Lattice:
    """A lattice of other states and arcs, whose excess is made anew.

    Args:
        lattice: What it is in place of.
        states: `STATE` [S], state 0 the start, by frames; `final_excess` says only
            where a path may end. Written to.
        arcs: `ARC` [A], sorted by state; `excess` is not looked at. Written to.
        scales: What costs are added up by.
        lattice_beam: What costs more than the best path and this is left out.

    Raises:
        LatticeError: No path is left.
    """
    made = replace(
        lattice, states=states, arcs=arcs, scales=scales, lattice_beam=lattice_beam
    )
    order, costs, finals = made.order, made.arc_costs(), made.final_costs()
    splits = np.searchsorted(arcs["state"], np.arange(len(states) + 1))
    to = arcs["nextstate"].astype(np.int64)
    least, extra = _costs(order, splits, to, costs, finals, arcs["excess"])
    best = float(np.min(least + finals))
    if not best < np.inf:
        raise LatticeError("no path is left, expected one that the model allows")
    states["final_excess"] = least + finals - best
    kept_arcs = arcs["excess"] + extra[to] - best <= lattice_beam
    kept = extra - best <= lattice_beam
    number = np.cumsum(kept, dtype=np.uint32) - np.uint32(1)
    states, arcs = states[kept], arcs[kept_arcs]
    for name in ("state", "nextstate"):
        arcs[name] = number[arcs[name]]
    states["final_excess"][states["final_excess"] > lattice_beam] = np.inf
    return replace(
        lattice,
        states=states,
        arcs=arcs,
        scales=scales,
        lattice_beam=lattice_beam,
        search_cost=best,
    )


@jit
def _costs(order, splits, to, costs, finals, excess):
    """Fill in the excess of arcs; costs of the best paths to and through states.

    `to`: int64 [A], where arcs lead. Returns two float64 [S].
    """
    least = np.full(len(order), np.inf)
    least[0] = 0.0
    for state in order:
        for a in range(splits[state], splits[state + 1]):
            least[to[a]] = min(least[to[a]], least[state] + costs[a])
    through = least + finals
    for state in order[::-1]:
        for a in range(splits[state], splits[state + 1]):
            more = (
                least[state] + costs[a] - least[to[a]] if costs[a] < np.inf else np.inf
            )
            excess[a] = more
            through[state] = min(through[state], through[to[a]] + more)
    return least, through
