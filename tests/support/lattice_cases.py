"""Small random cases for lattices, as the oracle and as the library take them.

case, graph, options = random_lattice_case(np.random.default_rng(17))
lattice = decoder.decode_lattice([logprobs_of(case)], boosts=case.bonus)[0]
"""

import naive_lattice
import numpy as np
from random_graphs import random_tables

from wfstdec import PackedGraph, WfstDecoder, WfstOptions
from wfstdec.errors import GraphError
from wfstdec.graph.arcs import LABEL_MASK, FstArrays
from wfstdec.text.tokens import EPSILON, ilabel_of, token_of


def random_lattice_case(rng, *, bounded=True, boosted=False, num_frames=None):
    """A case, its graph, its options; bounded: a beam or max_active drops states."""
    graph = random_small_graph(rng)
    if num_frames is None:
        num_frames = int(rng.integers(0, 5))
    x = -rng.integers(0, 17, (num_frames, len(graph.tokens))) / 4
    x[rng.random(x.shape) < rng.choice([0, 0.15])] = -np.inf
    words = graph.words[1:]
    some = [0.5, 0.25, -1.0] if bounded else [0.5, 2.25, -1.0, 6.0]
    drawn = rng.choice(some, len(words)).tolist()
    case = naive_lattice.Case(
        arcs=_arcs_of(graph),
        final=graph.final_cost.tolist(),
        logprobs=x.tolist(),
        beam=float(rng.choice([1, 2, 3, 5])) if bounded else np.inf,
        max_active=[None, None, 2, 3, 5][rng.integers(5)] if bounded else None,
        acoustic_scale=float(rng.choice([1, 1, 0.5])),
        lm_scale=float(rng.choice([1, 1, 0.5, 0])),
        word_insertion=float(rng.choice([0, 0, 0.75])),
        bonus=dict(zip(words, drawn, strict=True)) if boosted else {},
    )
    options = WfstOptions(
        beam=case.beam,
        max_active=case.max_active,
        acoustic_scale=case.acoustic_scale,
        lm_scale=case.lm_scale,
        word_insertion=case.word_insertion,
        lattice_beam=min(case.beam, float(rng.choice([0, 0.5, 1, 2, 3]))),
    )
    return case, graph, options


def random_lattice(seed, lattice_beam=4.0):
    """A lattice of one to four frames with all that is within a beam."""
    rng = np.random.default_rng(seed)
    case, graph, options = random_lattice_case(
        rng, bounded=False, boosted=bool(seed % 2), num_frames=1 + seed % 4
    )
    decoder = WfstDecoder(graph, options, "cpu", threads=1)
    (lattice,) = decoder.decode_lattice(
        [logprobs_of(case)], boosts=case.bonus, lattice_beam=lattice_beam
    )
    return lattice


def random_small_graph(rng):
    """Few states; costs are multiples of 1/4, none below 0; epsilons, parallel arcs."""
    num_states, num_tokens = int(rng.integers(1, 6)), int(rng.integers(2, 4))
    num_arcs = int(rng.integers(num_states, 3 * num_states + 2))
    num_words = int(rng.integers(1, 4))
    tables, info = random_tables(rng, num_tokens, num_words=num_words)
    state = np.sort(rng.integers(0, num_states, num_arcs))
    nextstate = rng.integers(0, num_states, num_arcs)
    ilabel = ilabel_of(rng.integers(0, num_tokens, num_arcs))
    onwards = state < nextstate
    ilabel[onwards & (rng.random(num_arcs) < rng.choice([0, 0.3, 0.6]))] = EPSILON
    has_word = rng.random(num_arcs) < rng.choice([0.3, 0.6])
    final = rng.integers(0, 5, num_states) / 4
    final[rng.random(num_states) < rng.choice([0, 0.5, 0.8])] = np.inf
    final[rng.integers(num_states)] = 0.5
    fst = FstArrays(
        start=0,
        final_cost=final.astype(np.float32),
        state_arc_splits=np.searchsorted(state, np.arange(num_states + 1)),
        ilabel=ilabel.astype(np.int32),
        olabel=np.where(
            has_word, rng.integers(1, len(tables.words), num_arcs), EPSILON
        ).astype(np.int32),
        nextstate=nextstate.astype(np.int32),
        cost=(rng.integers(0, 9, num_arcs) / 4).astype(np.float32),
    )
    repeat = (rng.random(num_arcs) < 0.3) & (ilabel != EPSILON)
    try:
        return PackedGraph.pack(fst, repeat, tables, info)
    except GraphError as error:
        assert "can be reached from the start" in str(error), error
        return random_small_graph(rng)


def _arcs_of(graph):
    source = np.repeat(np.arange(graph.num_states), np.diff(graph.state_arc_splits))
    arcs = []
    for number, arc in enumerate(graph.arcs):
        label = int(arc["ilabel"]) & LABEL_MASK
        token = None if label == EPSILON else int(token_of(label))
        word = graph.words[arc["olabel"]] if arc["olabel"] else None
        ends = int(source[number]), int(arc["nextstate"])
        one = naive_lattice.Arc(number, *ends, token, word, float(arc["cost"]))
        arcs.append(one)
    return arcs


def logprobs_of(case):
    num_tokens = 1 + max((arc.token or 0 for arc in case.arcs), default=0)
    width = len(case.logprobs[0]) if case.logprobs else num_tokens
    return np.array(case.logprobs, np.float32).reshape(len(case.logprobs), width)


def paths_of(lattice):
    """All paths of a lattice: (arcs, excess in float64), by trying all."""
    leaving = [[] for _ in range(lattice.num_states)]
    for a, arc in enumerate(lattice.arcs):
        leaving[arc["state"]].append(a)
    found, waiting = [], [((), 0, 0.0)]
    while waiting:
        arcs, state, excess = waiting.pop()
        final = float(lattice.states["final_excess"][state])
        if final < np.inf:
            found.append((arcs, excess + final))
        waiting += [
            (
                (*arcs, a),
                int(lattice.arcs["nextstate"][a]),
                excess + float(lattice.arcs["excess"][a]),
            )
            for a in leaving[state]
        ]
    return found
