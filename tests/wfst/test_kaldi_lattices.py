"""kaldi-decoder's lattices, opt in: its good paths are ours, and ours are its."""

import numpy as np
import pytest
from lattice_cases import paths_of, random_small_graph

from wfstdec import WfstDecoder, WfstOptions
from wfstdec.compare.peers import scaled_fst

BEAM, LATTICE_BEAM = 60.0, 4.0


def kaldi_paths(fst, logprobs):
    """All paths of Kaldi's raw lattice: (tokens, words, total)."""
    kaldi = pytest.importorskip("kaldi_decoder")
    config = kaldi.LatticeSimpleDecoderConfig()
    config.beam, config.lattice_beam = BEAM, LATTICE_BEAM
    decoder = kaldi.LatticeSimpleDecoder(fst, config)
    decoder.decode(kaldi.DecodableCtc(logprobs))
    _, lattice = decoder.get_raw_lattice()
    leaving, final = read_text_lattice(lattice.to_str())
    found, waiting = [], [(lattice.start, (), (), 0.0)]
    while waiting:
        state, tokens, words, cost = waiting.pop()
        if state in final:
            found.append((tokens, words, round(cost + final[state], 3)))
        for nextstate, ilabel, olabel, more in leaving.get(state, []):
            said = (*words, olabel) if olabel else words
            heard = (*tokens, ilabel) if ilabel else tokens
            waiting.append((nextstate, heard, said, cost + more))
    return found


def read_text_lattice(text):
    """Arcs by the state that they leave, and final costs, of OpenFst's text."""
    leaving, final = {}, {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 2:
            state, nextstate, ilabel, olabel = map(int, fields[:4])
            more = sum(map(float, fields[4].split(","))) if len(fields) > 4 else 0.0
            leaving.setdefault(state, []).append((nextstate, ilabel, olabel, more))
        elif fields:
            costs = fields[1].split(",") if len(fields) > 1 else ["0"]
            final[int(fields[0])] = sum(map(float, costs))
    return leaving, final


def our_paths(lattice):
    """Paths of our lattices."""
    found = []
    for arcs, excess in paths_of(lattice):
        one = lattice.arcs[list(arcs)]
        tokens = tuple(int(label) & 0xFFFFFFF for label in one["ilabel"])
        words = tuple(int(word) for word in one["olabel"] if word)
        total = round(lattice.search_cost + excess, 3)
        found.append((tuple(t for t in tokens if t), words, total))
    return found


def near(paths):
    """Keep the paths well within the beam, each once."""
    best = min(total for *_, total in paths)
    return {path for path in paths if path[-1] <= best + LATTICE_BEAM - 0.01}


@pytest.mark.peers
def test_good_paths_are_kaldis():
    several = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = random_small_graph(rng)
        logprobs = -rng.uniform(0, 4, (3, len(graph.tokens))).astype(np.float32)
        options = WfstOptions(beam=BEAM, lattice_beam=LATTICE_BEAM)
        decoder = WfstDecoder(graph, options, "cpu", threads=1)
        (lattice,) = decoder.decode_lattice([logprobs])
        if not lattice.reached_final:
            continue
        theirs = near(kaldi_paths(scaled_fst(graph, 1.0), logprobs))
        assert near(our_paths(lattice)) == theirs
        several += len(theirs) > 2
    assert several > 20
