"""The search against Kaldi's FasterDecoder, on the same graphs in OpenFst's format."""

import naive_cases
import numpy as np
import pytest
from oracle_cases import graph_by_files
from random_graphs import random_graph, random_logprobs
from real_speech import speech_graph, utterances

import wfstdec
from wfstdec import to_openfst

kaldi_decoder = pytest.importorskip("kaldi_decoder")
kaldifst = pytest.importorskip("kaldifst")

pytestmark = pytest.mark.peers
NO_BEAM = 1e30


def kaldi(fst, logprobs, beam=NO_BEAM):
    options = kaldi_decoder.FasterDecoderOptions(beam=beam, min_active=0)
    decoder = kaldi_decoder.FasterDecoder(fst, options)
    decoder.decode(kaldi_decoder.DecodableCtc(logprobs))
    found, path = decoder.get_best_path(use_final_probs=True)
    if not found or not decoder.reached_final():
        return None
    is_linear, _, words, weight = kaldifst.get_linear_symbol_sequence(path)
    assert is_linear
    return weight.value1 + weight.value2, tuple(words)


def ours(graph, logprobs, beam=np.inf):
    options = wfstdec.WfstOptions(beam=beam, max_active=None)
    (hyp,) = wfstdec.WfstDecoder(graph, options, threads=1).decode([logprobs])
    if not hyp.reached_final:
        return None
    return hyp.total_cost, tuple(graph.word_ids[word.text] for word in hyp.words)


def as_kaldi(graph, folder, form="const"):
    to_openfst(graph, folder / "graph.fst", form)
    kind = {"const": kaldifst.StdConstFst, "vector": kaldifst.StdVectorFst}[form]
    return kind.read(str(folder / "graph.fst"))


def close_to(cost):
    return pytest.approx(cost, rel=1e-5, abs=1e-4)


def assert_same_cost(found, expected):
    assert (found is None) == (expected is None)
    if found is not None:
        assert found[0] == close_to(expected[0])


@pytest.mark.parametrize("form", ["const", "vector"])
def test_random_graphs(form, tmp_path):
    finished = 0
    for i in range(60):
        rng = np.random.default_rng(i)
        graph = random_graph(rng)
        x = random_logprobs(rng, int(rng.integers(1, 8)), len(graph.tokens))
        found = ours(graph, x)
        assert_same_cost(found, kaldi(as_kaldi(graph, tmp_path, form), x))
        finished += found is not None
    assert finished > 30


def test_random_tlgs(tmp_path):
    for i in range(50):
        case = naive_cases.random_case(np.random.default_rng(i), plain=True)
        if len(case.logprobs):
            graph = graph_by_files(case, tmp_path)
            expected = kaldi(as_kaldi(graph, tmp_path), case.logprobs)
            assert_same_cost(ours(graph, case.logprobs), expected)


@pytest.mark.parametrize("beam", [2.0, 4.0, 8.0])
@pytest.mark.share
def test_random_tlgs_with_a_beam(beam, tmp_path):
    """Kaldi tightens its beam within a frame, so rarely it ends where we do not."""
    same = total = 0
    for i in range(100):
        case = naive_cases.random_case(np.random.default_rng(i), plain=True)
        if len(case.logprobs) == 0:
            continue
        graph = graph_by_files(case, tmp_path)
        found = ours(graph, case.logprobs, beam)
        expected = kaldi(as_kaldi(graph, tmp_path), case.logprobs, beam)
        total += 1
        if found and expected:
            same += found[0] == close_to(expected[0])
        else:
            same += found is None
    assert same >= 0.98 * total


@pytest.fixture(scope="module", params=["normal", "compact"])
def speech(request, tmp_path_factory):
    graph = speech_graph(request.param)
    return graph, as_kaldi(graph, tmp_path_factory.mktemp("speech"))


@pytest.mark.share(keep=1)
def test_the_beginning_of_speech_without_bound(speech):
    graph, fst = speech
    for x in utterances(step=40):
        found, expected = ours(graph, x[:16]), kaldi(fst, x[:16])
        assert found[0] == close_to(expected[0])


@pytest.mark.parametrize("beam", [8.0, 13.0, 17.0])
def test_speech_with_a_beam(speech, beam):
    graph, fst = speech
    for x in utterances(step=4):
        found, expected = ours(graph, x, beam), kaldi(fst, x, beam)
        assert found[0] == close_to(expected[0])
        assert found[1] == expected[1]
