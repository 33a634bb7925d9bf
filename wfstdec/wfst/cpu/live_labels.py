"""Which labels can survive a frame, and the arcs of an entry that have them.

A label is live for an entry if some arc with it may end within the cutoff, so far as
the costs of entry and label alone can tell. Costs of entries are put into levels; a
label is a bit of a uint64.

    live_sets[level]                    the labels that are live from that level on
    row.labels & live_sets[level]       the arcs of a state to follow
"""

from __future__ import annotations

from numpy import float32, int32, uint32, uint64

from wfstdec.boost.listed import hot_window
from wfstdec.jit import inlined
from wfstdec.jit.intrinsics import bits_below, lowest_bit, prefetch
from wfstdec.search.costs import NO_CUTOFF
from wfstdec.wfst.cpu.arc_costs import max_insertion_credit

LEVELS = 64
"""Cost levels between 0 and the beam, each with its own set of live labels."""
CREDIT_LEVELS = 16
"""Levels below 0, for costs less a credit."""
MAX_LABELS = 63
"""Labels that fit a row's label set; bit 0 is epsilon's."""
BLOCK = 32
"""Entries whose arcs are listed, and asked for, before they are followed."""
BLOCK_ARCS = BLOCK * MAX_LABELS
"""The most arcs that are listed for a block."""
_ONE = uint64(1)
_ZERO = uint64(0)


@inlined
def find_live_sets(graph, scales, work, cutoff, top_credit, width):
    """Fill `work.live_sets`.

    What survives ends at `cutoff` or below. Levels are of costs 0 to `width`, and of
    costs down to `-top_credit`, which are those of entries less what boosts may pay; a
    level stands for its lowest cost.
    """
    live, costs = work.live_sets, work.token_costs
    per_nat, below_per_nat = levels_per_nat(width), credit_levels_per_nat(top_credit)
    limit = _limit(graph, scales, cutoff, top_credit)
    live[:] = _ZERO
    for label in range(_ONE, uint64(len(costs))):
        cost, bit = costs[label], _ONE << label
        if cost <= limit:
            level = float32(float32(limit - cost) * per_nat)
            live[_whole(min(level, float32(LEVELS - 1)))] |= bit
        elif cost <= float32(limit + top_credit):
            level = float32(float32(cost - limit) * below_per_nat)
            level = min(level, float32(CREDIT_LEVELS - 1))
            live[uint64(LEVELS) + _whole(level)] |= bit
    for level in range(uint64(LEVELS - 1)):
        live[uint64(LEVELS - 2) - level] |= live[uint64(LEVELS - 1) - level]
    if top_credit > float32(0):
        live[LEVELS] |= live[0]
        for level in range(uint64(LEVELS), uint64(LEVELS + CREDIT_LEVELS - 1)):
            live[level + _ONE] |= live[level]


@inlined
def _limit(graph, scales, cutoff, top_credit):
    """More than `cost of an entry + cost of a token` can be where an arc survives.

    Conservative: every arc counts as the least one of the graph, less what an insertion
    credits, and the slack covers rounding, also that of sums with a credit.
    """
    credit = max_insertion_credit(scales)
    least_arc = float32(scales.lm_scale * graph.least_cost) - credit
    slack = abs(cutoff) + abs(least_arc) + top_credit
    slack = float32(1e-3) + float32(4e-6) * slack
    return min(float32(cutoff - least_arc) + slack, NO_CUTOFF)


@inlined
def level_of(cost, per_nat):
    """The level of a cost, 0 or more."""
    return _whole(min(float32(cost * per_nat), float32(LEVELS - 1)))


@inlined
def credited_level_of(cost, per_nat, below_per_nat):
    """The level of a cost from which a credit was deducted."""
    if cost >= float32(0):
        return level_of(cost, per_nat)
    level = min(float32(float32(-cost) * below_per_nat), float32(CREDIT_LEVELS - 1))
    return uint64(LEVELS) + _whole(level)


@inlined
def levels_per_nat(width):
    """Levels in a nat."""
    return float32(LEVELS) / min(max(width, float32(1e-3)), NO_CUTOFF)


@inlined
def credit_levels_per_nat(top_credit):
    """Levels in a nat below 0."""
    return float32(CREDIT_LEVELS) / min(max(top_credit, float32(1e-3)), NO_CUTOFF)


@inlined
def _whole(level):
    """The integer below a small float32 (a signed conversion is one instruction)."""
    return uint64(int32(level))


@inlined
def list_arcs(graph, row, live, i, listed, count):
    """List the arcs of entry `i` that have a live label, and ask for them.

    Args:
        graph: `GraphArrays`.
        row: ROW, that of the entry's state; its arcs stand in the order of labels.
        live: uint64, a subset of the row's labels.
        i: The entry's position, perhaps with a flag.
        listed: ENTRY_ARC, filled from `count` on.
        count: How many arcs are listed already.

    Returns:
        How many are listed then.
    """
    labels, first = row.labels, uint64(row.emit)
    while live != _ZERO:
        bit = lowest_bit(live)
        live ^= bit
        a = first + bits_below(labels, bit)
        prefetch(graph.arcs, a)
        listed[count].entry, listed[count].arc = uint32(i), uint32(a)
        count += _ONE
    return count


@inlined
def hot_labels(words, row, among):
    """Those of some of a state's labels whose arcs are hot, uint64."""
    hot, labels = hot_window(words, row.emit), _ZERO
    if hot != _ZERO:
        while among != _ZERO:
            bit = lowest_bit(among)
            among ^= bit
            if hot >> bits_below(row.labels, bit) & _ONE != _ZERO:
                labels |= bit
    return labels
