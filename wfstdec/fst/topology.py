"""T, the CTC topology: from one token a frame to the tokens of the words.

With U tokens besides the blank; `b` is the blank, `i` any other token, `i'` a frame
that repeats `i`. There is a state for each token; `in:out` on the arcs.

    normal    start -b:-> 0   start -i:i-> i   0 -b:-> 0   0 -i:i-> i
              i -i':-> i   i -j:j-> j   i -b:-> 0
              the rules of CTC: equal frames in a row are one token, and between two
              equal tokens stands a blank; (U + 1)(U + 2) arcs
    compact   0 -b:-> 0   0 -i:i-> i   i -i':-> i   i -:-> 0
              also takes equal tokens without a blank between them; 3U + 1 arcs
              (arXiv 2110.03098)
    eesen     the same language as compact, with blanks before and behind a hub:
              0 -:-> 1   1 -b:-> 1   1 -i:i-> i   i -i':-> i   i -:-> 2   2 -b:-> 2
              2 -:-> 0
    minimal   0 -b:-> 0   0 -i:i-> 0
              every frame that is not blank is a token of its own
    *-selfless   without i -i':-> i, for models that do not repeat tokens

Disambiguation symbols take no frame: loops `-:#k->` pass them. A symbol stands at the
start or directly behind a token or another symbol, so the loops do too: in `normal` on
the start state and on those of the tokens, in the others on state 0, which every token
passes. On all states they would offer each back-off once more in every blank frame: 44
% more epsilon arcs in the TLG of a 29k-word trigram.

For OOV exits (`fst/oov.py`), each state that tokens leave has an arc `exit:C->` to a
state `outside`, and that one an arc `return:-> i` to the state that each token enters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from wfstdec.errors import OptionError
from wfstdec.fst.arrays import Arcs, LabelSpace, arcs_of, fst_of
from wfstdec.fst.operations import compose
from wfstdec.graph.arcs import TOPOLOGIES as TOPOLOGIES
from wfstdec.graph.arcs import FstArrays
from wfstdec.text.tokens import EPSILON


def build_topology(name: str, labels: LabelSpace) -> FstArrays:
    """Make T; its input side tells repeats from tokens, as `labels` says."""
    check_topology(name)
    base, _, selfless = name.partition("-")
    builders = {"normal": _normal, "compact": _compact, "eesen": _eesen}
    return builders.get(base, _minimal)(labels, bool(selfless))


def compose_topology(name: str, lg: FstArrays, labels: LabelSpace) -> FstArrays:
    """T o LG; epsilons of LG's input side pass T as one more symbol `#k` does."""
    # As epsilons they could come before or behind frames without output: a third of the
    # TLG's epsilon arcs would be such detours.
    symbol = labels.disambig(labels.num_disambig)
    t = build_topology(name, replace(labels, num_disambig=labels.num_disambig + 1))
    ilabel = np.where(lg.ilabel == EPSILON, symbol, lg.ilabel).astype(np.int32)
    return compose(t, replace(lg, ilabel=ilabel))


def check_topology(name: str) -> None:
    """Check the name of a topology."""
    if name not in TOPOLOGIES:
        expected = ", ".join(map(repr, TOPOLOGIES))
        raise OptionError(f"topology {name!r}, expected one of {expected}")


def _normal(labels: LabelSpace, selfless: bool) -> FstArrays:
    after_blank, start = 0, 1
    units, states = labels.units(), 2 + np.arange(len(labels.units()))
    i, j = np.divmod(np.arange(len(units) ** 2), max(len(units), 1))
    i, j = i[i != j], j[i != j]
    ends = np.append(states, start)
    last = np.concatenate([[EPSILON, EPSILON], units])
    parts = [
        *_exits(labels, np.arange(2 + len(units)), last, states),
        arcs_of(np.append(ends, after_blank), labels.blank, EPSILON, after_blank),
        arcs_of(start, units, units, states),
        arcs_of(after_blank, units, units, states),
        arcs_of(states[i], units[j], units[j], states[j]),
        *_repeats(labels, states, selfless),
        _disambig_loops(labels, ends),
    ]
    return fst_of(parts, start, _final(labels, np.zeros(2 + len(units))))


def _compact(labels: LabelSpace, selfless: bool) -> FstArrays:
    units, states = labels.units(), 1 + np.arange(len(labels.units()))
    ends = np.where(np.arange(1 + len(units)) == 0, 0.0, np.inf)
    parts = [
        *_exits(labels, 0, EPSILON, states),
        arcs_of(0, labels.blank, EPSILON, 0),
        arcs_of(0, units, units, states),
        arcs_of(states, EPSILON, EPSILON, 0),
        *_repeats(labels, states, selfless),
        _disambig_loops(labels, np.array([0])),
    ]
    return fst_of(parts, 0, _final(labels, ends))


def _eesen(labels: LabelSpace, selfless: bool) -> FstArrays:
    hub, before, behind = 0, 1, 2
    units, states = labels.units(), 3 + np.arange(len(labels.units()))
    ends = np.where(np.arange(3 + len(units)) <= 1, 0.0, np.inf)
    parts = [
        *_exits(labels, before, EPSILON, states),
        arcs_of(hub, EPSILON, EPSILON, before),
        arcs_of([before, behind], labels.blank, EPSILON, [before, behind]),
        arcs_of(before, units, units, states),
        arcs_of(states, EPSILON, EPSILON, behind),
        arcs_of(behind, EPSILON, EPSILON, hub),
        *_repeats(labels, states, selfless),
        _disambig_loops(labels, np.array([hub])),
    ]
    # `before` is final too: else nothing but blanks would be no sentence at all.
    return fst_of(parts, hub, _final(labels, ends))


def _minimal(labels: LabelSpace, selfless: bool) -> FstArrays:
    parts = [
        *_exits(labels, 0, EPSILON, 0),
        arcs_of(0, labels.blank, EPSILON, 0),
        arcs_of(0, labels.units(), labels.units(), 0),
        _disambig_loops(labels, np.array([0])),
    ]
    return fst_of(parts, 0, _final(labels, [0.0]))


def _repeats(labels: LabelSpace, states: np.ndarray, selfless: bool) -> list[Arcs]:
    if selfless:
        return []
    return [arcs_of(states, labels.repeat(labels.units()), EPSILON, states)]


def _exits(
    labels: LabelSpace, left: ArrayLike, last: ArrayLike, entered: ArrayLike
) -> list[Arcs]:
    """Arcs of OOV exits and returns; `outside` is the last state."""
    if not labels.has_exits:
        return []
    outside = int(max(np.max(left), np.max(entered, initial=0))) + 1
    units = labels.units()
    return [
        arcs_of(left, labels.exit(np.asarray(last)), labels.class_token, outside),
        arcs_of(outside, labels.after(units), EPSILON, entered),
    ]


def _final(labels: LabelSpace, costs: ArrayLike) -> np.ndarray:
    """Final costs; `outside` is not final."""
    return np.append(costs, [np.inf] * labels.has_exits)


def _disambig_loops(labels: LabelSpace, states: np.ndarray) -> Arcs:
    symbols = labels.disambig(np.arange(labels.num_disambig))
    state = np.repeat(states, len(symbols))
    return arcs_of(state, EPSILON, np.tile(symbols, len(states)), state)
