"""Lattices of searches, all bits of these, and segments put together."""

import dataclasses

import numpy as np

from wfstdec.wfst.lattice_pack import lattice_of


def bits(lattice):
    """All of a lattice, in a form that tells -0.0 from 0.0."""
    rest = [getattr(lattice, f.name) for f in dataclasses.fields(lattice)[3:]]
    return lattice.states.tobytes(), lattice.arcs.tobytes(), *map(repr, rest)


def lattice_by(search, graph, options, chunks):
    for chunk in chunks:
        search.advance(chunk)
    return lattice_of(graph, options, graph.vocabulary, 0.02, search.finish())


def joined(parts):
    """States and arcs of segments as bits; a last state is the next segment's first."""
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
