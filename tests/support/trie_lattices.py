"""Lattices of trie searches, as tests read them."""

import numpy as np

from wfstdec.graph.arcs import LABEL_MASK
from wfstdec.search.paths import lattice as paths


def lattice_by(search, decoder, compiled, chunks):
    for chunk in chunks:
        search.advance(np.ascontiguousarray(chunk, np.float32))
    return decoder._reader(compiled).lattice(search.finish())


def alignment_on(lattice, arcs):
    labels = lattice.arcs["ilabel"][list(arcs)] & LABEL_MASK
    return tuple(int(label) - 1 for label in labels if label)


def pieces_on(lattice, arcs):
    """Words and what is between them, with how many tokens, as oracles have them."""
    arcs, end, found = np.array(arcs, np.int64), 0, []
    path = paths.tokens_on(lattice, arcs)
    for text, first, stop in paths.words_on(lattice, arcs):
        found += [(None, 1)] * (first - end) + [(text, stop - first)]
        end = stop
    rest = path.token[end:].tolist()
    found += [(None, 1) for token in rest if token in lattice.vocabulary.separators]
    return tuple(found)


def near_paths(lattice, beam):
    """Arcs and excess of all paths that cost no more than the best and a beam."""
    outgoing = [[] for _ in range(lattice.num_states)]
    for arc, (state, nextstate) in enumerate(lattice.arcs[["state", "nextstate"]]):
        outgoing[state].append((arc, int(nextstate)))
    excess, ends = lattice.arcs["excess"], lattice.states["final_excess"]
    waiting, found = [((), 0, 0.0)], []
    while waiting:
        arcs, state, total = waiting.pop()
        if total + ends[state] <= beam:
            found.append((arcs, total + float(ends[state])))
        for arc, nextstate in outgoing[state]:
            if total + excess[arc] <= beam:
                waiting.append(((*arcs, arc), nextstate, total + float(excess[arc])))
    return found
