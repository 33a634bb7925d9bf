"""Following an arc, and what can be said of arcs before they are followed.

Costs are added in the order of `reference.py`. Where a bound stands for a cost, it is
no larger: float addition is monotone, so a cut by a bound is exact.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, int32, uint32, uint64

from wfstdec.boost.phrase_rows import step
from wfstdec.boost.words import find_bonus
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, LEADS_TO_EPSILON
from wfstdec.jit import inlined
from wfstdec.jit.intrinsics import prefetch
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu.phrase_step import phrase_label

LEVELS = 64
"""Cost levels between 0 and the beam, each with its own set of live labels."""
LABEL = uint32(LABEL_MASK)
_LEADS_BIT = uint32(LEADS_TO_EPSILON.bit_length() - 1)
_ONE = uint64(1)
_ZERO = uint64(0)


@inlined
def extras(scales, boosts, arc):
    """What an arc costs besides graph, phrases and acoustics: insertion less boost."""
    if arc.ilabel & uint32(CARRIES_WORD):
        bonus = find_bonus(boosts.keys, boosts.bonuses, arc.olabel)
        return float32(scales.word_insertion - bonus)
    return float32(0)


@inlined
def pass_arc(scales, boosts, cost, arc):
    """(cost + graph) + extras."""
    reached = float32(cost + float32(scales.lm_scale * arc.cost))
    if scales.has_extras:
        reached = float32(reached + extras(scales, boosts, arc))
    return reached


@inlined
def follow(graph, scales, boosts, phrases, work, entry, a, cutoff):
    """What emitting arc `a` reaches: ((cost + graph) + extras) + acoustic.

    Returns:
        (cost, boost state); see `with_phrase` for the cutoff.
    """
    arc = graph.arcs[a]
    reached = pass_arc(scales, boosts, entry.cost, arc)
    acoustic = work.token_costs[arc.ilabel & LABEL]
    if phrases is None:
        return float32(reached + acoustic), uint32(0)
    else:
        boost, credit = entry.boost, entry.credit
        return with_phrase(phrases, arc, boost, credit, reached, acoustic, cutoff)


@inlined
def with_phrase(phrases, arc, boost, credit, cost, acoustic, cutoff):
    """(cost + step of the phrases) + acoustic, and the next boost state.

    The cost is `inf` where even the credit, the most that the phrases give in that
    state, leaves it over the cutoff.
    """
    label = phrase_label(phrases, arc)
    if label != uint32(0):
        if float32(float32(cost - credit) + acoustic) > cutoff:
            return float32(np.inf), boost
        stepped, boost = step(phrases, boost, label)
        cost = float32(cost + stepped)
    return float32(cost + acoustic), boost


@inlined
def note(graph, phrases, work, made, entry, a, cost, boost):
    """Write candidate number `made`: arc `a` from an entry of the frontier."""
    arc = graph.arcs[a]
    candidate = work.candidates[made]
    candidate.cost = cost
    candidate.state = arc.nextstate
    candidate.node = entry.node
    candidate.arc = note_of(a, arc.ilabel)
    if phrases is not None:
        candidate.boost = boost
        candidate.source_boost = entry.boost
    else:
        prefetch(work.slots, uint64(arc.nextstate))


@inlined
def note_of(a, ilabel):
    """An arc as entries note it: its id, and whether its state has epsilon arcs."""
    leads = (ilabel & uint32(LEADS_TO_EPSILON)) >> _LEADS_BIT
    return (uint32(a) << uint32(1)) | leads


@inlined
def word_credit(scales, boosts):
    """The most that a word is credited."""
    return max(float32(0), float32(boosts.top_bonus - scales.word_insertion))


@inlined
def find_live_sets(graph, scales, boosts, work, cutoff, top, width):
    """Fill `work.live_sets`: the labels that can survive from each level of cost.

    What survives ends at `cutoff` or below; phrases credit a label `top` at most.
    Levels are of costs 0 to `width`; a level stands for its lowest cost.
    """
    live, costs = work.live_sets, work.token_costs
    per_nat = levels_per_nat(width)
    dearest = _dearest(graph, scales, boosts, cutoff, top)
    live[:] = _ZERO
    for label in range(_ONE, uint64(len(costs))):
        cost = costs[label]
        if cost <= dearest:
            level = float32(float32(dearest - cost) * per_nat)
            live[_whole(min(level, float32(LEVELS - 1)))] |= _ONE << label
    for level in range(uint64(LEVELS - 1)):
        live[uint64(LEVELS - 2) - level] |= live[uint64(LEVELS - 1) - level]


@inlined
def _dearest(graph, scales, boosts, cutoff, top):
    """More than `cost of an entry + cost of a token` can be where an arc survives.

    Conservative: every arc counts as the least one of the graph, less the largest
    credits, and the slack covers rounding.
    """
    credit = word_credit(scales, boosts)
    least_arc = float32(scales.lm_scale * graph.least_cost) - credit - top
    slack = float32(1e-3) + float32(4e-6) * (abs(cutoff) + abs(least_arc))
    return min(float32(cutoff - least_arc) + slack, NO_CUTOFF)


@inlined
def level_of(cost, per_nat):
    """The level of a cost, 0 or more."""
    return _whole(min(float32(cost * per_nat), float32(LEVELS - 1)))


@inlined
def levels_per_nat(width):
    """Levels in a nat."""
    return float32(LEVELS) / min(max(width, float32(1e-3)), NO_CUTOFF)


@inlined
def _whole(level):
    """The integer below a small float32 (a signed conversion is one instruction)."""
    return uint64(int32(level))
