"""Lattices narrower than the beam: with boosts, phrases and added words, by an oracle.

The oracle has every word sequence and what it costs: those within the lattice beam have
to come out of the lattice at that cost, others may not.
"""

import dataclasses

import naive_cases
import numpy as np
import pytest
from added_cases import boosts_of
from naive_added import random_added_case, solve_added
from oracle_cases import boosts_of_case, graph_by_files

from wfstdec import WfstDecoder, WfstOptions
from wfstdec.lattice import nbest_paths, posteriors
from wfstdec.lattice.arrays import check_lattice

pytestmark = pytest.mark.usefixtures("quiet")
WIDTHS = (0.5, 1.5, 4.0)
NEAR = 2e-3
"""Nats: so close to the lattice beam float32 may decide either way."""


def with_words(rng, folder):
    """A case with boosted words, its graph, its boosts, the oracle's answer."""
    case = naive_cases.random_case(rng)
    return case, graph_by_files(case, folder), case.boosts, naive_cases.solve(case)


def with_phrases(rng, folder):
    """Draw a graph, and a list with phrases of words or of tokens."""
    case = naive_cases.random_case(rng)
    phrases = naive_cases.random_phrases(rng, sorted(case.usable_words))
    case = dataclasses.replace(case, phrases=phrases)
    graph = graph_by_files(case, folder)
    boosts = boosts_of_case(case, graph, folder)
    return case, graph, boosts, naive_cases.solve(case)


def with_added_words(rng, folder):
    """Draw a graph, and a list with words that it does not have."""
    case, listed = random_added_case(rng)
    graph, boosts = graph_by_files(case, folder), boosts_of(case, listed)
    return case, graph, boosts, solve_added(case, listed)


def texts_of(lattice):
    """Words -> what they cost, of all that are within the lattice beam."""
    found = nbest_paths(lattice, 5000)
    assert found.is_exact and len(found.arcs) < 5000
    texts = [tuple(lattice.words[w] for w in lattice.word_ids(a)) for a in found.arcs]
    return dict(zip(texts, found.excess, strict=True))


def frame_sums(lattice):
    """Sums of the posteriors of the arcs of each frame."""
    emits = ~lattice.is_epsilon
    frame = lattice.states["frame"][lattice.arcs["nextstate"][emits]] - 1
    chances = posteriors(lattice).arc[emits]
    return np.bincount(frame, chances, lattice.num_frames)


@pytest.mark.parametrize("kind", [with_words, with_phrases, with_added_words])
@pytest.mark.share(keep=1)
def test_texts_within_the_beam_are_those_of_the_oracle(kind, tmp_path):
    several = left_out = 0
    for i in range(40):
        rng = np.random.default_rng([i, len(kind.__name__)])
        case, graph, boosts, best = kind(rng, tmp_path)
        beam = WIDTHS[i % 3]
        options = WfstOptions(
            **case.options, beam=np.inf, max_active=None, lattice_beam=beam
        )
        decoder = WfstDecoder(graph, options, "cpu", threads=1)
        (lattice,) = decoder.decode_lattice([case.logprobs], boosts=[boosts])
        check_lattice(lattice)
        assert frame_sums(lattice) == pytest.approx(1, abs=1e-6)
        if not best.cost < np.inf:
            assert not lattice.reached_final
            continue
        extra = {words: cost - best.cost for words, cost in best.table.items()}
        found = texts_of(lattice)
        assert {words for words in extra if extra[words] < beam - NEAR} <= set(found)
        for words, excess in found.items():
            assert excess == pytest.approx(extra[words], abs=NEAR), (i, words)
            assert extra[words] < beam + NEAR
        several += len(found) > 1
        left_out += len(found) < len(extra)
    assert several > 5 and left_out > 5
