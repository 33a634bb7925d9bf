"""Words that the graph does not have: against an oracle, and graphs that have them."""

import naive
import naive_cases
import numpy as np
import pytest
from naive_added import random_added_case, solve_added
from oracle_cases import (  # noqa: F401 (one is a fixture)
    assert_best,
    graph_by_files,
    quiet,
)
from random_graphs import random_logprobs, random_options
from wfst_searches import bits, random_splits

import wfstdec
from wfstdec import BoostEntry, WfstDecoder
from wfstdec.wfst.backends import BACKENDS

UNBOUNDED = {"beam": np.inf, "max_active": None}


def boosts_of(case, listed):
    """A list as users give it."""
    boosts = dict(case.boosts)
    for word, _, bonus in listed:
        said = [one.tokens for one in listed if one.word == word]
        boosts[word] = BoostEntry(word, said, bonus)
    return boosts


def decoder_of(case, graph, backend="cpu", **options):
    options = wfstdec.WfstOptions(**case.options | UNBOUNDED | options)
    return wfstdec.WfstDecoder(graph, options, backend, threads=1)


@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
@pytest.mark.parametrize("fillers", naive_cases.FILLERS)
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_random_cases(topology, fillers, backend, tmp_path):
    said = 0
    for i in range(20):
        rng = np.random.default_rng([i, len(topology), len(fillers)])
        case, listed = random_added_case(rng, topology=topology, fillers=fillers)
        best, graph = solve_added(case, listed), graph_by_files(case, tmp_path)
        decoder = decoder_of(case, graph, backend)
        (hyp,) = decoder.decode([case.logprobs], boosts=boosts_of(case, listed))
        assert_best(hyp, best)
        said += any(word.text not in graph.word_ids for word in hyp.words)
    assert said > 2


# ----------------------------------------------------------------- backends, sessions
def with_phrases(rng, case, boosts):
    """The list with phrases of its words and the lexicon's, or of tokens."""
    words = [*boosts, *sorted(case.usable_words)]
    some = {
        " ".join(rng.choice(words, size=2)): float(rng.choice([1.5, 9.0, -1.0]))
        for _ in range(rng.integers(0, 4))
    }
    return boosts | some


def drawn_search(rng, folder):
    """A decoder of the reference, log-probs, and what is boosted."""
    topology = str(rng.choice(naive.TOPOLOGIES))
    case, listed = random_added_case(rng, topology=topology, num_frames=6)
    graph = graph_by_files(case, folder)
    x = random_logprobs(rng, int(rng.integers(0, 14)), len(graph.tokens))
    boosts = boosts_of(case, listed)
    if rng.random() < 0.5:
        boosts = with_phrases(rng, case, boosts)
    return WfstDecoder(graph, random_options(rng), "reference"), x, boosts


@pytest.mark.parametrize("name", BACKENDS)
def test_all_backends_find_the_same_bits(name, tmp_path):
    found = 0
    for i in range(150):
        rng = np.random.default_rng([7, i])
        reference, x, boosts = drawn_search(rng, tmp_path)
        options = reference.options
        decoder = WfstDecoder(reference.graph, options, name, threads=1)
        compiled = reference._compiled(boosts, 1)
        wanted, got = (one._search([x], compiled)[0] for one in (reference, decoder))
        assert bits(got) == bits(wanted)
        found += any(got.said.word >= len(reference.graph.words))
    assert found > 20


@pytest.mark.parametrize("name", BACKENDS)
def test_sessions_know_added_words_as_they_come(name, tmp_path):
    found = 0
    for i in range(60):
        rng = np.random.default_rng([8, i])
        reference, x, boosts = drawn_search(rng, tmp_path)
        decoder = WfstDecoder(reference.graph, reference.options, name, threads=1)
        (whole,) = decoder.decode([x], boosts=[boosts])
        sessions = decoder.sessions(), reference.sessions()
        a, b = (some.open(boosts) for some in sessions)
        for chunk in random_splits(rng, x):
            sessions[0].advance({a: chunk})
            sessions[1].advance({b: chunk})
            assert sessions[0].partial(a) == sessions[1].partial(b)
        assert sessions[0].close(a) == whole
        found += any(w.text not in reference.graph.word_ids for w in whole.words)
    assert found > 5
