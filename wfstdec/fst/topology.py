"""T, the CTC topology: from one token per frame to the tokens of words.

U is the number of tokens other than the blank `b`, `i` any such token, `i'` a frame
that repeats `i`. There is a state for each token; arcs are `in:out`.

    normal    start -b:-> 0   start -i:i-> i   0 -b:-> 0   0 -i:i-> i
              i -i':-> i   i -j:j-> j   i -b:-> 0
              the rules of CTC: equal consecutive frames are one token, and a blank
              separates equal tokens; (U + 1)(U + 2) arcs
    compact   0 -b:-> 0   0 -i:i-> i   i -i':-> i   i -:-> 0
              also takes equal tokens without a blank between them; 3U + 1 arcs
              (arXiv 2110.03098)
    minimal   0 -b:-> 0   0 -i:i-> 0
              every frame that is not blank is a separate token
    *-selfless   without i -i':-> i, for models that do not repeat tokens

Disambiguation symbols take no frame: loops `-:#k->` pass them. Symbols, and therefore
loops, occur only at the start or directly after a token or another symbol. Loops on all
states would repeat each back-off in every blank frame: 44 % more epsilon arcs in the
TLG of a 29k-word trigram.

OOV exits lead out of a graph for words that its lexicon lacks:

    G     an arc with the class C of such words at the empty history, and back to it
    L     the class as a word of one token, between fillers as any word
    T     an arc `exit:C` to a state `outside` from each state that tokens leave, and
          an arc `return:` from there to the state that each token enters
    TLG   (t, lg) -exit-> (outside, lg') -return i-> (i, lg')

Composition thus finds the states before and after such a word.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wfstdec.errors import ArpaError, GraphError, OptionError
from wfstdec.fst.arrays import Arcs, LabelSpace, arcs_of, fst_of
from wfstdec.fst.operations import compose, part_of
from wfstdec.graph.arcs import NO_STATE, FstArrays, OovExits
from wfstdec.graph.arcs import TOPOLOGIES as TOPOLOGIES
from wfstdec.text.tokens import EPSILON, ilabel_of
from wfstdec.text.vocabulary import Vocabulary

_log = logging.getLogger("wfstdec.build")


def build_topology(name: str, labels: LabelSpace) -> FstArrays:
    """Build T; its input side distinguishes repeats from tokens, by `labels`."""
    check_topology(name)
    base, _, selfless = name.partition("-")
    builders = {"normal": _normal, "compact": _compact, "minimal": _minimal}
    return builders[base](labels, bool(selfless))


def compose_topology(name: str, lg: FstArrays, labels: LabelSpace) -> FstArrays:
    """Return T o LG; epsilons of LG's input side pass T as one more symbol `#k`."""
    # As epsilons they could precede or follow frames without output: a third of the
    # TLG's epsilon arcs would be such detours.
    symbol = labels.disambig(labels.num_disambig)
    t = build_topology(name, replace(labels, num_disambig=labels.num_disambig + 1))
    ilabel = np.where(lg.ilabel == EPSILON, symbol, lg.ilabel).astype(np.int32)
    return compose(t, replace(lg, ilabel=ilabel))


def check_topology(name: str) -> None:
    """Raise `OptionError` unless a topology has this name."""
    if name not in TOPOLOGIES:
        raise OptionError(f"topology {name!r}, expected one of {TOPOLOGIES}")


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
    """Return arcs of OOV exits and returns; `outside` is the last state."""
    if not labels.has_exits:
        return []
    outside = int(max(np.max(left), np.max(entered, initial=0))) + 1
    units = labels.units()
    return [
        arcs_of(left, labels.exit(np.asarray(last)), labels.class_token, outside),
        arcs_of(outside, labels.after(units), EPSILON, entered),
    ]


def _final(labels: LabelSpace, costs: ArrayLike) -> np.ndarray:
    return np.append(costs, [np.inf] * labels.has_exits)


def _disambig_loops(labels: LabelSpace, states: np.ndarray) -> Arcs:
    symbols = labels.disambig(np.arange(labels.num_disambig))
    state = np.repeat(states, len(symbols))
    return arcs_of(state, EPSILON, np.tile(symbols, len(states)), state)


def take_exits(
    tlg: FstArrays, labels: LabelSpace, word_cost: float
) -> tuple[FstArrays, OovExits | None]:
    """Remove the exit arcs from a TLG, and return the exits, if any."""
    state, first = tlg.arc_state(), labels.exit(0)
    is_exit = (tlg.ilabel >= first) & (tlg.ilabel < labels.after(0))
    is_return = tlg.ilabel >= labels.after(0)
    outside = np.unique(tlg.nextstate[is_exit])
    keep = np.ones(tlg.num_states, np.bool_)
    keep[outside] = False
    if not keep.any():
        raise ArpaError("no word of the lexicon can occur, expected at least one")
    number = np.cumsum(keep) - 1
    exits = None
    # Several states outside would each have their own returns.
    if len(outside) == 1:
        return_state = np.full(len(labels.tokens) + 1, NO_STATE, np.int32)
        entered = number[tlg.nextstate[is_return]]
        return_state[tlg.ilabel[is_return] - labels.after(0)] = entered
        exits = OovExits(
            number[state[is_exit]].astype(np.int32),
            tlg.ilabel[is_exit] - np.int32(first),
            tlg.cost[is_exit] + np.float32(0.0),
            return_state,
            word_cost,
        )
    elif len(outside):
        _log.warning("%d states after exits, expected one: no exits", len(outside))
    return part_of(tlg, keep, ~(is_exit | is_return)), exits


def add_open_words(
    tlg: FstArrays,
    labels: LabelSpace,
    exits: OovExits | None,
    vocabulary: Vocabulary,
    *,
    topology: str,
) -> FstArrays:
    """Return a TLG with open words."""
    spelling, word = vocabulary.open_spelling, vocabulary.open_word
    assert spelling is not None and word is not None
    if exits is None:
        raise GraphError("no state where an open word may begin, expected some")
    if not spelling.begins.any():
        raise GraphError(
            "no token can begin an open word: of pieces one has the mark U+2581, and "
            "no token in <> or [] can"
        )
    assert word.word_cost is not None
    token_cost = np.float32(word.token_cost)
    first_cost = np.float32(np.float32(word.word_cost) + token_cost)
    allowed = spelling.begins, spelling.extends, spelling.begins | spelling.extends
    begins, extends, units = (ilabel_of(np.flatnonzero(some)) for some in allowed)
    spells = [not spelling.is_spelled or bool(text) for text in spelling.texts]
    is_word = np.array([False, *spells])  # by ilabel: alone
    base, _, selfless = topology.partition("-")
    # States of T o loop: in each token of a word that continues, and after a token.
    inside = tlg.num_states + np.arange(len(units) if base != "minimal" else 0)
    behind, returns = tlg.num_states + len(inside), exits.return_state
    parts = [Arcs(tlg.arc_state(), tlg.ilabel, tlg.olabel, tlg.nextstate, tlg.cost)]

    def add(state: np.ndarray, ilabel: np.ndarray, cost: np.ndarray, ends: Any) -> None:
        ends = ends & (returns[ilabel] != NO_STATE)
        to, last = returns[ilabel[ends]], ilabel[ends]
        parts.append(arcs_of(state[ends], last, word.word, to, cost[ends]))
        if len(extends):
            into = inside[np.searchsorted(units, ilabel)] if len(inside) else behind
            parts.append(arcs_of(state, ilabel, EPSILON, into, cost))

    # The token before the exit cannot follow without a blank in between.
    c, k = _pairs(exits.last, begins)
    add(exits.state[c], k, exits.cost[c] + first_cost, is_word[k])
    if not len(extends):
        return fst_of(parts, tlg.start, tlg.final_cost)
    parts.append(arcs_of(behind, labels.blank, EPSILON, behind))
    sources = [(np.array([behind]), np.array([EPSILON]))]
    if len(inside):
        if not selfless:
            parts.append(arcs_of(inside, labels.repeat(units), EPSILON, inside))
        passed = labels.blank if base == "normal" else EPSILON
        parts.append(arcs_of(inside, passed, EPSILON, behind))
    if base == "normal":
        sources.append((inside, units))
    for source, last in sources:
        s, j = _pairs(last, extends)
        # A separator inside of `[unk]` is cheaper than another word, and does not end
        # it.
        spoken = ~np.isin(j, ilabel_of(np.array(vocabulary.separators, np.int32)))
        less = min(token_cost, np.float32(0.9 * (exits.word_cost + word.word_cost)))
        add(source[s], j, np.where(spoken, token_cost, less), spoken)
    infinite = np.full(len(inside) + 1, np.inf, np.float32)
    return fst_of(parts, tlg.start, np.append(tlg.final_cost, infinite))


def _pairs(last: np.ndarray, ilabels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair positions with each label except the one that may not follow."""
    position = np.repeat(np.arange(len(last)), len(ilabels))
    ilabel = np.tile(ilabels, len(last))
    apart = last[position] != ilabel
    return position[apart], ilabel[apart]
