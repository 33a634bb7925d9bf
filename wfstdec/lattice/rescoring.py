"""Lattices under another language model: words are priced anew, exactly.

    lm = NgramLM.from_arpa("large.arpa.gz", lattice.words)
    better = rescored(lattice, lm, lm_scale=0.8)
    better.word_ids(better.best_arcs())

The graph's costs are dropped, and not subtracted: where backing off was cheaper than
what the graph's model says, or costs stand early on a path, the difference of two
models would be wrong. In their place stand the model's, with true back-off, and those
of pronunciations and silences, as a path has them (`pronunciation_costs.py`).

    state   a state of the lattice with a state of the model
    arc     the model's step, if it has a word, and what is known of pronunciations

Words that an utterance has beside those of the graph cost what the model asks for
`<unk>`, and so do open words, with the cost of their spelling.
"""

from __future__ import annotations

from weakref import WeakSet

import numpy as np
from numpy import uint32

from wfstdec.errors import LatticeError, OptionError
from wfstdec.jit import jit
from wfstdec.jit.copying import longer
from wfstdec.jit.hashing import enter, slot_of_pair
from wfstdec.jit.pool import Once
from wfstdec.lattice.arrays import ARC, Lattice, starts_token
from wfstdec.lattice.pronunciation_costs import Pronounced, numbered, pronounced
from wfstdec.lattice.rescaling import changed_scales, with_arcs
from wfstdec.lm import kernels
from wfstdec.lm.ngram import NgramLM
from wfstdec.text.vocabulary import Vocabulary

HISTORY_BEAM = 5.0
"""Nats."""
_OVER: Once[NgramLM, WeakSet[Vocabulary]] = Once(lambda lm: WeakSet())
"""Which models are known to be over the words of which graphs."""


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
        lm: Over the words of the graph, or also those that the utterance adds.
        lm_scale: Times its costs; None is the lattice's.
        word_insertion: Of each word; None is the lattice's.
        lattice_beam: What costs more than the best path and this is left out; None
            leaves the lattice's.
        history_beam: Histories of a state of `lattice` are dropped where the best way
            to them costs more than the best way to the state, and this; nats.

    Raises:
        OptionError: The model is over other words, or a value is out of range.
        LatticeError: The model allows no path: it lacks words, and has no `<unk>`.
            Or the lattice has open words of which it is not known what they cost.
    """
    check_lm(lattice, lm)
    scales = changed_scales(
        lattice.scales, lm_scale=lm_scale, word_insertion=word_insertion
    )
    said = pronounced(lattice)
    splits = np.searchsorted(said.arcs["state"], np.arange(len(said.states) + 1))
    pairs, arcs, order = _expand(
        (said, splits),
        lm.automaton,
        (scales.acoustic_scale, scales.lm_scale),
        scales.insertion_costs(
            said.arcs["olabel"] != 0, starts_token(said.arcs["ilabel"], lattice.tokens)
        ),
        history_beam,
    )
    states = _states_of(pairs, said, lm)
    beam = lattice.lattice_beam if lattice_beam is None else lattice_beam
    return with_arcs(lattice, states, arcs, scales, beam, order=order)


def check_lm(lattice: Lattice, lm: NgramLM) -> None:
    """See that a model is over the words of a lattice.

    It may be without those that an utterance has beside the words of the graph: they
    are then what it calls `<unk>`.

    Raises:
        OptionError: It is over others.
        LatticeError: The lattice is one of bare tokens.
    """
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
    """Tell whether a model is over these words, as far as that is known."""
    same = lm.labels is None or lm.labels is words or lm.labels == words
    return lm.unit == "word" and lm.num_labels == len(words) and same


@jit
def _expand(lattice, automaton, scales, insertions, history_beam):
    """The states and arcs of a lattice, for every history that a path brings there.

    Returns:
        As `numbered`: pairs of states of the lattice and the model, arcs, an order.
    """
    said, splits = lattice
    states, arcs, order = said.states, said.arcs, said.order
    acoustic_scale, lm_scale = scales
    table = np.full((1024, 2), -1, np.int32), np.full(4096, -1, np.int32)
    made, count = np.empty(1024, ARC), 0
    # The pairs of a state stand in a list: the first, and then the one before.
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
                arc, cost, after = arcs[a], said.cost[a], history
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


def _states_of(pairs: np.ndarray, said: Pronounced, lm: NgramLM) -> np.ndarray:
    """The states of pairs, `STATE` [N]: final costs are the model's."""
    of, history = pairs.T
    states = said.states[of]
    cost = lm.automaton.final_cost[history] + said.final_cost[of]
    ends = states["final_excess"] < np.inf
    # Where the graph or the model let no path end, none ends now.
    possible = (states["final_cost"] < np.inf) & (cost < np.inf)
    states["final_cost"][ends] = cost[ends]
    states["final_excess"][~possible] = np.inf
    return states
