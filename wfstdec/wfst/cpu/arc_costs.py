"""What it costs to follow an arc, and the candidate that this makes.

Costs are added in the order of `reference.py`. Where a bound stands for a cost, it is
no larger: float addition is monotone, so a cut by a bound is exact.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.boost.phrase_rows import step
from wfstdec.boost.words import find_bonus
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, LEADS_TO_EPSILON, REPEAT
from wfstdec.jit import inlined
from wfstdec.jit.intrinsics import prefetch

LABEL = uint32(LABEL_MASK)
_LEADS_BIT = uint32(LEADS_TO_EPSILON.bit_length() - 1)


@inlined
def word_cost(scales, boosts, arc):
    """What the word on an arc costs apart from the graph: insertion less its bonus."""
    if arc.ilabel & uint32(CARRIES_WORD):
        bonus = find_bonus(boosts.keys, boosts.bonuses, arc.olabel)
        return float32(scales.word_insertion - bonus)
    return float32(0)


@inlined
def max_word_credit(scales, boosts):
    """The most by which a word lowers the cost, at least 0."""
    return max(float32(0), float32(boosts.top_bonus - scales.word_insertion))


@inlined
def add_graph_and_word(scales, boosts, cost, arc):
    """(cost + graph) + word."""
    total = float32(cost + float32(scales.lm_scale * arc.cost))
    if scales.has_extras:
        total = float32(total + word_cost(scales, boosts, arc))
    return total


@inlined
def add_phrase_and_acoustic(phrases, arc, boost, credit, cost, acoustic, cutoff):
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
def phrase_label(phrases, arc):
    """What phrases step by on an arc of the graph; 0 where they do not."""
    if phrases.of_words:
        return arc.olabel
    if arc.ilabel & uint32(REPEAT):
        return uint32(0)
    label = arc.ilabel & LABEL
    return uint32(0) if label == phrases.ignored else label


@inlined
def follow(graph, scales, boosts, phrases, work, entry, a, cutoff):
    """What emitting arc `a` reaches: ((cost + graph) + extras) + acoustic.

    Returns:
        (cost, boost state); see `add_phrase_and_acoustic` for the cutoff.
    """
    arc = graph.arcs[a]
    cost = add_graph_and_word(scales, boosts, entry.cost, arc)
    acoustic = work.token_costs[arc.ilabel & LABEL]
    if phrases is None:
        return float32(cost + acoustic), uint32(0)
    else:
        boost, credit = entry.boost, entry.credit
        return add_phrase_and_acoustic(
            phrases, arc, boost, credit, cost, acoustic, cutoff
        )


@inlined
def write_candidate(graph, phrases, work, made, entry, a, cost, boost):
    """Write candidate number `made`: arc `a` from an entry of the frontier."""
    arc = graph.arcs[a]
    candidate = work.candidates[made]
    candidate.cost = cost
    candidate.state = arc.nextstate
    candidate.node = entry.node
    candidate.arc = flagged_arc(a, arc.ilabel)
    if phrases is not None:
        candidate.boost = boost
        candidate.source_boost = entry.boost
    else:
        prefetch(work.slots, uint64(arc.nextstate))


@inlined
def flagged_arc(a, ilabel):
    """An arc as entries have it: the id, and below it whether `HAS_EPSILONS`."""
    leads = (ilabel & uint32(LEADS_TO_EPSILON)) >> _LEADS_BIT
    return (uint32(a) << uint32(1)) | leads


@inlined
def arc_of_flagged(flagged):
    """The id of an emitting arc in an entry."""
    return flagged >> uint32(1)
