"""Random searches that record lattices, all bits of these, and segments put together.

rng, graph, x, options, boosts = random_search(17)
search = CpuBackend(graph).start(options, boosts, record=True)
lattice = lattice_by(search, graph, options, [x])
assert bits(joined([*segments, last])) == bits(lattice)[:2]
"""

import dataclasses

import numpy as np
from random_graphs import (
    random_boosts,
    random_graph,
    random_logprobs,
    random_options,
    random_phrases,
)

from wfstdec import CompiledBoosts
from wfstdec.boost.words import compile_word_boosts
from wfstdec.wfst.lattice_pack import lattice_of


def bits(lattice):
    """All of a lattice, in a form that tells -0.0 from 0.0."""
    rest = [getattr(lattice, f.name) for f in dataclasses.fields(lattice)[3:]]
    return lattice.states.tobytes(), lattice.arcs.tobytes(), *map(repr, rest)


def random_search(seed):
    """A graph, an utterance, options and boosts of every kind."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    x = random_logprobs(rng, int(rng.integers(0, 9)), len(graph.tokens))
    options = random_options(rng)
    words, _ = compile_word_boosts(random_boosts(rng, graph), graph.word_ids)
    phrases = random_phrases(rng, graph) if rng.random() < 0.4 else None
    return rng, graph, x, options, CompiledBoosts(words, phrases)


def lattice_by(search, graph, options, chunks):
    """The lattice of an utterance in chunks."""
    for chunk in chunks:
        search.advance(chunk)
    return lattice_of(graph, options, search.finish(), 0.02)


def joined(parts):
    """The states and arcs of segments, one after the other, as bits.

    The last state of each is the first of the next, which knows whether it is an end.
    """
    states, arcs, before = [], [], 0
    for part in parts[:-1]:
        assert part.states["final_excess"].tolist()[-1] == 0
        assert (part.states["final_excess"][:-1] == np.inf).all()
        states.append(part.states[:-1])
    states.append(parts[-1].states)
    for part in parts:
        arcs.append(part.arcs.copy())
        arcs[-1]["state"] += np.uint32(before)
        arcs[-1]["nextstate"] += np.uint32(before)
        before += len(part.states) - 1
    return np.concatenate(states).tobytes(), np.concatenate(arcs).tobytes()
