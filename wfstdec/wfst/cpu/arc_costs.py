"""Cost of following an arc, and the candidate that this makes.

Costs are added in the order of `reference.py`. Where a bound stands for a cost, it is
no larger: float addition is monotone, so a cut by a bound is exact.
"""

from __future__ import annotations

import numpy as np
from numpy import float32, uint32, uint64

from wfstdec.boost import kernels
from wfstdec.boost.kernels import pay, state_of, word_bonus
from wfstdec.graph.arcs import CARRIES_WORD, LABEL_MASK, LEADS_TO_EPSILON, REPEAT
from wfstdec.jit import inlined
from wfstdec.jit.intrinsics import prefetch

LABEL = uint32(LABEL_MASK)
_WORD = uint32(CARRIES_WORD)
_REPEAT = uint32(REPEAT)
_LEADS_BIT = uint32(LEADS_TO_EPSILON.bit_length() - 1)
_NO_LABEL = uint32(0)


@inlined
def bonus_of(params, words, arc):
    """The bonus of the word on an arc, 0 where there is none."""
    if params.has_words:
        if arc.ilabel & _WORD:
            return word_bonus(words, arc.olabel)
    return float32(0)


@inlined
def top_bonus(params, words):
    """The most that the bonus of a word pays where boosts have no states."""
    return words.top_bonus if params.has_words else float32(0)


@inlined
def max_insertion_credit(params):
    """The most by which the insertion of a word lowers the cost, at least 0."""
    return max(float32(0), float32(-params.word_insertion))


@inlined
def add_graph_and_insertion(params, cost, arc):
    """(cost + graph) + word_insertion."""
    total = float32(cost + float32(params.lm_scale * arc.cost))
    if params.has_insertion:
        if arc.ilabel & _WORD:
            total = float32(total + params.word_insertion)
    return total


@inlined
def most_credited(params, words, phrases, boost):
    """No less than a step from a boost state pays."""
    worth = float32(words.top_bonus + kernels.most_credited(phrases, boost))
    return kernels.most_paid(boost, worth, params.instalment)


@inlined
def begun_label(graph, arc):
    """The label of the token that begins on an arc, 0 where none does."""
    label = arc.ilabel & LABEL
    if arc.ilabel & _REPEAT or label == graph.blank_label:
        return _NO_LABEL
    return label


@inlined
def step_boosts(graph, params, words, phrases, arc, boost):
    """Step the boosts on an arc: pay, and next state; see `BoostAccount`."""
    return step_credited(graph, params, words, phrases, arc, boost, None)


@inlined
def step_credited(graph, params, words, phrases, arc, boost, bonus):
    """Step the boosts on an arc with its own bonus; None for an arc of the graph."""
    token = begun_label(graph, arc)
    word = arc.olabel if arc.ilabel & _WORD else _NO_LABEL
    if token == _NO_LABEL and word == _NO_LABEL:
        return float32(0), boost
    label = _NO_LABEL
    if phrases.of_words:
        label = word
    elif phrases.of_tokens:
        label = token
    steps, worth = label != _NO_LABEL, bonus_of(params, words, arc)
    if bonus is not None:
        if label >= phrases.num_labels:
            label = _NO_LABEL  # which no phrase has, either
    worth, state = kernels.credit(phrases, steps, state_of(boost), label, worth)
    if bonus is not None:
        worth = float32(worth + bonus)
    return pay(boost, state, worth, params.instalment)


@inlined
def add_boosts_and_acoustic(
    graph, params, words, phrases, arc, boost, most, cost, acoustic, cutoff
):
    """(cost + boosts) + acoustic, and the next boost state.

    The cost is `inf` where even `most`, what a step pays at most, leaves it over the
    cutoff.
    """
    if float32(float32(cost - most) + acoustic) > cutoff:
        return float32(np.inf), boost
    paid, boost = step_boosts(graph, params, words, phrases, arc, boost)
    return float32(float32(cost - paid) + acoustic), boost


@inlined
def follow(graph, params, words, phrases, scratch, utterance, i, a, cutoff):
    """Follow emitting arc `a` of entry `i`: ((cost + graph) + extras) + acoustic.

    Returns:
        (cost, boost state); see `add_boosts_and_acoustic` for the cutoff.
    """
    arc = graph.arcs[a]
    cost = add_graph_and_insertion(params, utterance.frontier[i].cost, arc)
    acoustic = scratch.token_costs[arc.ilabel & LABEL]
    if phrases is None:
        cost = float32(cost - bonus_of(params, words, arc))
        return float32(cost + acoustic), uint32(0)
    else:
        boost, most = utterance.boosts[i].boost, utterance.boosts[i].credit
        return add_boosts_and_acoustic(
            graph, params, words, phrases, arc, boost, most, cost, acoustic, cutoff
        )


@inlined
def write_candidate(graph, scratch, made, entry, a, cost):
    """Write candidate number `made`: arc `a` from an entry of the frontier."""
    arc = graph.arcs[a]
    candidate = scratch.candidates[made]
    candidate.cost = cost
    candidate.state = arc.nextstate
    candidate.node = entry.node
    candidate.arc = flagged_arc(a, arc.ilabel)
    prefetch(scratch.slots, uint64(arc.nextstate))


@inlined
def write_side(graph, scratch, side, entry, a, cost, boost, source_boost):
    """Write side candidate number `side`, with boost states of its own."""
    arc = graph.arcs[a]
    candidate = scratch.side[side]
    candidate.cost = cost
    candidate.state = arc.nextstate
    candidate.node = entry.node
    candidate.arc = flagged_arc(a, arc.ilabel)
    candidate.boost = boost
    candidate.source_boost = source_boost
    prefetch(scratch.slots, uint64(arc.nextstate))


@inlined
def flagged_arc(a, ilabel):
    """An arc as entries have it: the id, and below it whether `HAS_EPSILONS`."""
    leads = (ilabel & uint32(LEADS_TO_EPSILON)) >> _LEADS_BIT
    return (uint32(a) << uint32(1)) | leads


@inlined
def arc_of_flagged(flagged):
    """The id of an emitting arc in an entry."""
    return flagged >> uint32(1)
