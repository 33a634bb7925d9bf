"""Words that the graph does not have: against an oracle, and graphs that have them."""

import naive
import naive_cases
import numpy as np
import pytest
from added_cases import boosts_of, frames, small_graph
from naive_added import random_added_case, solve_added
from oracle_cases import assert_best, graph_by_files

import wfstdec
from wfstdec import BoostEntry
from wfstdec.errors import BoostError, OptionError
from wfstdec.wfst.options import BACKENDS

pytestmark = pytest.mark.usefixtures("quiet")
UNBOUNDED = {"beam": np.inf, "max_active": None}


def decoder_of(case, graph, backend="cpu", **options):
    options = wfstdec.WfstOptions(**case.options | UNBOUNDED | options)
    return wfstdec.WfstDecoder(graph, options, backend, threads=1)


UNK = 2 * np.log(10)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
def test_a_word_by_hand(topology, backend, tmp_path):
    graph = small_graph(tmp_path, topology, "|")
    decoder = wfstdec.WfstDecoder(graph, backend=backend)
    boosts = [BoostEntry("nab", ["n a b"], 1.5), BoostEntry("b", ["b"], 0.5)]
    hyp, other = decoder.decode([frames("an|na_b|b"), frames("an|na")], boosts=boosts)
    assert hyp.text == "an nab b"
    assert [(w.start_frame, w.end_frame) for w in hyp.words[1:]] == [(3, 7), (8, 9)]
    assert hyp.boost_cost == -2.0
    assert hyp.graph_cost == pytest.approx(np.log(10) * 1.5 + 2 * UNK)
    assert (other.text, other.reached_final) == ("an nab", False)  # a word begun


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_further_pronunciation_by_hand(backend, tmp_path):
    """A further pronunciation costs the word's unigram, and comes out as the word."""
    decoder = wfstdec.WfstDecoder(small_graph(tmp_path), backend=backend)
    boosts = {"ban": BoostEntry("ban", ["b n"], 1.0)}
    (hyp,) = decoder.decode([frames("bnban")], boosts=boosts)
    assert (hyp.text, hyp.boost_cost) == ("ban ban", -2.0)
    assert hyp.graph_cost == pytest.approx(np.log(10) * 2.5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_pronunciations_the_lower_word_wins(backend, tmp_path):
    decoder = wfstdec.WfstDecoder(small_graph(tmp_path), backend=backend)
    boosts = [BoostEntry(word, ["n b"], 1.0) for word in ("zz", "yy", "xx")]
    (hyp,) = decoder.decode([frames("nb")], boosts=boosts)
    assert hyp.text == "xx"
    several = decoder.with_options(nbest=5)
    (hyps,) = several.decode_nbest([frames("nb")], boosts=boosts)
    assert [hyp.text for hyp in hyps] == ["xx", "yy", "zz"]
    assert len({hyp.total_cost for hyp in hyps}) == 1


def test_a_graph_without_exits_says_to_build_again(tmp_path):
    graph = small_graph(tmp_path, oov_exits=False)
    decoder = wfstdec.WfstDecoder(graph, backend="cpu")
    boosts = [BoostEntry("nab", ["n a b"], 9.0)]
    with pytest.raises(BoostError, match="cannot add words.*build it again"):
        decoder.decode([frames("nab")], boosts=boosts)
    with pytest.raises(BoostError, match="cannot add words.*build it again"):
        decoder.sessions().open(boosts)
    assert decoder.decode([frames("an")])[0].text == "an"


def test_compiled_words_do_not_fit_a_graph_without_exits(tmp_path):
    """Lists are compiled for a word table: another graph may have the same."""
    boosts = [BoostEntry("nab", ["n a b"], 9.0)]
    decoder = wfstdec.WfstDecoder(small_graph(tmp_path), backend="cpu")
    compiled = decoder.compile_boosts(boosts)
    other = wfstdec.WfstDecoder(small_graph(tmp_path, oov_exits=False), backend="cpu")
    with pytest.raises(OptionError, match="boosts compiled for decoder"):
        other.decode([frames("nab")], boosts=[compiled])


@pytest.mark.parametrize("topology", naive.TOPOLOGIES)
@pytest.mark.parametrize("fillers", naive_cases.FILLERS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.share(keep=4)
def test_random_cases(topology, fillers, backend, tmp_path):
    added = 0
    for i in range(20):
        rng = np.random.default_rng([i, len(topology), len(fillers)])
        case, listed = random_added_case(rng, topology=topology, fillers=fillers)
        best, graph = solve_added(case, listed), graph_by_files(case, tmp_path)
        decoder = decoder_of(case, graph, backend)
        (hyp,) = decoder.decode([case.logprobs], boosts=boosts_of(case, listed))
        assert_best(hyp, best)
        added += any(word.text not in graph.word_ids for word in hyp.words)
    assert added > 2
