"""Lattices and n-best lists against an oracle that lists every path."""

import dataclasses

import naive_lattice
import numpy as np
import pytest
from lattice_cases import logprobs_of, paths_of, random_lattice_case
from text_graphs import text_graph
from wfst_searches import UNBOUNDED, decoder_of, log

from wfstdec import WfstDecoder
from wfstdec.lattice import nbest_paths
from wfstdec.lattice.arrays import check_lattice

BACKENDS = ("reference", "cpu")
KINDS = {
    "bounded": {"bounded": True},
    "unbounded": {"bounded": False},
    "boosted": {"bounded": False, "boosted": True},
    "bounded, boosted": {"bounded": True, "boosted": True},
}


def solved(seed, kind, backend):
    """A case, its decoder, the paths that the oracle finds, and the lattice."""
    rng = np.random.default_rng([seed, len(kind)])
    case, graph, options = random_lattice_case(rng, **KINDS[kind])
    decoder = WfstDecoder(graph, options, backend, threads=1)
    x = logprobs_of(case)
    if not len(x):
        x = np.zeros((0, len(graph.tokens)), np.float32)
    (lattice,) = decoder.decode_lattice([x], boosts=case.bonus)
    check_lattice(lattice)
    return case, decoder, x, naive_lattice.all_paths(case), lattice


def steps_of(lattice, arcs):
    """A path as the oracle writes it."""
    frames = lattice.states["frame"][lattice.arcs["nextstate"][list(arcs)]]
    taken = lattice.arcs["arc"][list(arcs)].tolist()
    return tuple(zip(frames.tolist(), taken, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.share(keep=4)
def test_the_paths_within_the_beam_are_those_of_the_oracle(kind, backend):
    several = died = 0
    for seed in range(120):
        case, decoder, _, found, lattice = solved(seed, kind, backend)
        beam = decoder.options.beam_of_lattice
        expected = naive_lattice.within(found, beam)
        best = min(path.cost for path in found.paths)
        assert lattice.search_cost == pytest.approx(best, abs=1e-5)
        assert lattice.reached_final == found.reached_final
        assert lattice.num_frames == found.num_frames
        paths = {steps_of(lattice, arcs): excess for arcs, excess in paths_of(lattice)}
        near = {steps: cost for steps, cost in paths.items() if cost <= beam}
        assert near == {path.steps: path.cost - best for path in expected}
        on_paths = {step for path in expected for step in path.steps}
        assert set(steps_of(lattice, range(lattice.num_arcs))) == on_paths
        several += len(expected) > 1
        died += found.num_frames < len(case.logprobs)
    assert several > 40 and (died > 3 or not KINDS[kind]["bounded"])


@pytest.mark.parametrize("kind", KINDS)
def test_costs_on_arcs_add_up_to_totals(kind):
    for seed in range(60):
        _, _, _, found, lattice = solved(seed, kind, "cpu")
        expected = {path.steps: path.cost for path in found.paths}
        arc_costs, final_costs = lattice.arc_costs(), lattice.final_costs()
        for arcs, _ in paths_of(lattice):
            end = int(lattice.arcs["nextstate"][arcs[-1]]) if arcs else 0
            total = arc_costs[list(arcs)].sum() + final_costs[end]
            assert total == pytest.approx(expected[steps_of(lattice, arcs)], abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 50])
@pytest.mark.share(keep=6)
def test_nbest_lists_are_those_of_the_oracle(kind, n):
    full = 0
    for seed in range(100):
        _, decoder, x, found, lattice = solved(seed, kind, "cpu")
        beam = decoder.options.beam_of_lattice
        costs = naive_lattice.texts(naive_lattice.within(found, beam))
        nbest = nbest_paths(lattice, n)
        texts = [
            tuple(lattice.words[w] for w in lattice.word_ids(arcs))
            for arcs in nbest.arcs
        ]
        best = min(costs.values())
        assert nbest.is_exact
        assert len(set(texts)) == len(texts) == min(n, len(costs))
        assert [costs[words] - best for words in texts] == nbest.excess
        least = sorted(cost - best for cost in costs.values())
        assert nbest.excess == least[: len(texts)]
        full += len(texts) == n
    assert full > (3 if n < 50 else -1)


def test_texts_that_cost_the_same_stand_in_the_order_of_the_lattice():
    """A planted fault that put the last ones first was not found."""
    words = "ABCDEFGH"
    graph = text_graph("\n".join([*(f"0 1 a {word} 1" for word in words), "1 0"]))
    options = dataclasses.replace(UNBOUNDED, lattice_beam=1.0)
    decoder = decoder_of("reference", graph, options)
    (lattice,) = decoder.decode_lattice([log([[0, 1, 0]])])
    found = nbest_paths(lattice, 6)
    texts = [lattice.words[w] for arcs in found.arcs for w in lattice.word_ids(arcs)]
    assert texts == list(words[:6]) and found.excess == [0.0] * 6
