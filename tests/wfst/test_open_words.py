"""Words that are spelled by tokens, in a graph: by hand, and against the oracle."""

import naive
import naive_cases
import numpy as np
import pytest
from added_cases import boosts_of, frames, small_graph
from naive_open import KINDS, random_open_case, solve_open
from oracle_cases import (  # noqa: F401 (one is a fixture)
    assert_best,
    graph_by_files,
    quiet,
)
from random_graphs import random_logprobs, random_options
from wfst_searches import bits, random_splits

import wfstdec
from wfstdec import BoostEntry, OpenVocabulary, WfstDecoder
from wfstdec.wfst.backends import BACKENDS

UNBOUNDED = {"beam": np.inf, "max_active": None}
CAN = [name for name in BACKENDS if name != "cuda"]
UNK = 2 * np.log(10)


def graph_of(opened, folder, **options):
    costs = OpenVocabulary(*opened.costs)
    return graph_by_files(opened.case, folder, open_vocabulary=costs, **options)


# ----------------------------------------------------------------- examples by hand
@pytest.mark.parametrize("backend", CAN)
@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
def test_a_word_by_hand(topology, backend, tmp_path):
    costs = OpenVocabulary(1.5, 0.25)
    graph = small_graph(tmp_path, topology, "|", open_vocabulary=costs)
    decoder = WfstDecoder(graph, backend=backend)
    (hyp,) = decoder.decode([frames("an|na_b|b")])
    assert hyp.text == "an nab b"
    assert [(w.start_frame, w.end_frame) for w in hyp.words[1:]] == [(3, 7), (8, 9)]
    assert hyp.graph_cost == pytest.approx(
        np.log(10) * 1.5 + 2 * UNK + 2 * 1.5 + 4 * 0.25
    )
    assert hyp.reached_final


def test_a_list_adds_words_beside_open_ones(tmp_path):
    graph = small_graph(tmp_path, separator="|", open_vocabulary=OpenVocabulary(2, 1))
    decoder = WfstDecoder(graph, backend="cpu")
    boosts = [BoostEntry("nabob", ["n a b"], 1.0)]
    (hyp,) = decoder.decode([frames("nab|nb")], boosts=boosts)
    assert hyp.text == "nabob nb"


def test_without_calls_lists_cannot_add(tmp_path):
    costs = OpenVocabulary(2, 1)
    graph = small_graph(tmp_path, separator="|", open_vocabulary=costs, calls=False)
    assert graph.calls is None
    (hyp,) = WfstDecoder(graph, backend="cpu").decode([frames("an|nab")])
    assert hyp.text == "an nab"


def test_sessions_spell_as_words_end(tmp_path):
    graph = small_graph(tmp_path, separator="|", open_vocabulary=OpenVocabulary(2, 1))
    sessions = WfstDecoder(graph, backend="cpu").sessions()
    one = sessions.open()
    texts = []
    for token in frames("nab|an|b"):
        sessions.advance({one: token[None]})
        partial = sessions.partial(one)
        texts.append(" ".join(word.text for word in partial.words))
    assert texts[3] == "nab" and texts[6] == "nab an"
    assert sessions.close(one).text == "nab an b"


# -------------------------------------------------------------------- random cases
@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
@pytest.mark.parametrize("fillers", naive_cases.FILLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_random_cases(topology, fillers, kind, tmp_path):
    if kind == "pieces" and fillers.startswith("separator"):
        pytest.skip("pieces stand without a separator")
    said = 0
    for i in range(8):
        rng = np.random.default_rng([i, len(topology), len(fillers), len(kind)])
        opened = random_open_case(rng, kind, topology=topology, fillers=fillers)
        graph = graph_of(opened, tmp_path)
        assert graph.tables.open_word.kind == kind
        case, best = opened.case, solve_open(opened)
        options = wfstdec.WfstOptions(**case.options | UNBOUNDED)
        decoder = WfstDecoder(graph, options, "cpu", threads=1)
        boosts = boosts_of(case, opened.listed)
        (hyp,) = decoder.decode([case.logprobs], boosts=boosts)
        assert_best(hyp, best)
        said += any(word.text not in graph.word_ids for word in hyp.words)
    assert said > 1


# ------------------------------------------------------------- backends and sessions
@pytest.mark.parametrize("name", [name for name in CAN if name != "reference"])
def test_all_backends_find_the_same_bits(name, tmp_path):
    found = 0
    for i in range(60):
        rng = np.random.default_rng([17, i])
        opened = random_open_case(rng, topology=str(rng.choice(naive.TOPOLOGIES)))
        graph = graph_of(opened, tmp_path)
        x = random_logprobs(rng, int(rng.integers(0, 14)), len(graph.tokens))
        options = random_options(rng)
        reference = WfstDecoder(graph, options, "reference")
        decoder = WfstDecoder(graph, options, name, threads=1)
        compiled = reference._compiled(boosts_of(opened.case, opened.listed), 1)
        wanted, got = (one._search([x], compiled)[0] for one in (reference, decoder))
        assert bits(got) == bits(wanted)
        found += graph.tables.open_word.word in got.said.word
    assert found > 10


def test_sessions_and_nbest_lists_spell_as_decode_does(tmp_path):
    found = 0
    for i in range(60):
        rng = np.random.default_rng([18, i])
        fillers = str(rng.choice(naive_cases.FILLERS))
        opened = random_open_case(rng, fillers=fillers)
        graph = graph_of(opened, tmp_path)
        x = random_logprobs(rng, int(rng.integers(1, 14)), len(graph.tokens))
        options = wfstdec.WfstOptions(beam=8.0, lattice_beam=4.0)
        decoder = WfstDecoder(graph, options, "cpu", threads=1)
        (whole,) = decoder.decode([x])
        (listed,) = decoder.decode_nbest([x])
        assert listed[0] == whole
        sessions = decoder.sessions()
        one, settled = sessions.open(), []
        for chunk in random_splits(rng, x):
            sessions.advance({one: chunk})
            partial = sessions.partial(one)
            assert list(partial.words[: len(settled)]) == settled
            settled = list(partial.words[: partial.num_timed])
        assert sessions.close(one) == whole
        assert list(whole.words[: len(settled)]) == settled
        found += any(w.text not in graph.word_ids for w in whole.words)
    assert found > 10
