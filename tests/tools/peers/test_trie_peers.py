"""Defects of public beam decoders, which ours does not have.

Each defect is a case by hand whose right answer is the oracle's. Ours is held to it on
every backend; that the peer differs is shown, too, where the peer is installed.
That the peers are given our objective is shown on random cases.
"""

import importlib.util
import math
from dataclasses import replace

import naive_search
import naive_search_cases
import numpy as np
import pytest
from arpa_texts import arpa_of
from naive_search_cases import LEXICON, hand

from tools.peers.interface import PeerInputs
from wfstdec import TrieDecoder, TrieOptions

pytestmark = pytest.mark.usefixtures("quiet")

WIDE = {"beam_size": 2000, "beam_threshold": 1e4, "beam_size_token": None}
LETTERS = "-|abc"
WORDS = "ab a b\nba b a\nc c\ncab c a b\n"
ARPA = arpa_of(
    "-99 <s> -0.125; -0.5 ab -0.25; -0.8125 ba; -0.625 c -0.125; -0.5 cab; -3 <unk>; "
    "-0.375 </s>",
    "-0.625 <s> ab; -0.25 c ab; -0.5 ab </s>",
)
TOKENS_ARPA = arpa_of(
    "-99 <s> -0.125; -0.5 a -0.25; -0.75 b; -0.625 c -0.125; -1 |; -3 <unk>; "
    "-0.375 </s>",
    "-0.625 <s> a; -0.25 c a; -0.5 a </s>",
)


@pytest.fixture
def flashlight(tmp_path):
    pytest.importorskip("flashlight.lib.text.decoder")
    from tools.peers.ctc import FlashlightPeer

    def make(case, **fields):
        return FlashlightPeer(inputs_of(case, tmp_path), **fields)

    return make


def inputs_of(case, folder):
    arguments = naive_search_cases.decoder_arguments(case)
    path = folder / "lm.arpa"
    path.write_text(case.arpa or flat_arpa(case), "utf-8")
    return PeerInputs(
        tokens=arguments["tokens"],
        lexicon=arguments.get("lexicon"),
        arpa=str(path),
        separator=case.separator,
        lm_scale=case.options.get("lm_scale", 1.0 if case.arpa else 0.0),
        word_insertion=case.options.get("word_insertion", 0.0),
    )


def flat_arpa(case):
    """All words alike, for peers that want a model; a bigram for KenLM's sake."""
    words = sorted({entry.word for entry in case.entries})
    unigrams = "; ".join(f"-1 {word}" for word in ["</s>", "<unk>", *words])
    return arpa_of(f"-99 <s> 0; {unigrams}", "-1 <s> </s>")


def ours(case, backend, **options):
    """Our hypothesis, with nothing pruned unless options say so."""
    wide = {"beam": math.inf, "beam_size": 50_000} | case.options | options
    decoder = TrieDecoder(
        **naive_search_cases.decoder_arguments(case),
        options=TrieOptions(**wide),
        backend=backend,
        threads=1,
    )
    (hyp,) = decoder.decode([case.logprobs])
    return hyp


def best(case):
    text = naive_search.best_texts(case, "max")[0]
    return " ".join(text.text), text.cost


def assert_right(case, backend):
    text, cost = best(case)
    hyp = ours(case, backend)
    assert (hyp.text, hyp.reached_final) == (text, True)
    assert hyp.total_cost == pytest.approx(cost, rel=1e-5)


REPEATED = hand("see", lexicon=LEXICON)
HELD = hand("seaaa", lexicon=LEXICON)
UNSEPARATED = hand("sea", "-sea|", lexicon=LEXICON, separator="|")
HOMOPHONES = hand(
    "sea",
    "-seal",
    lexicon="".join(f"sea{i} s e a\n" for i in range(8)),
    arpa=arpa_of(
        "-99 <s> 0; -1 </s>; -9 <unk>; -0.5 sea7; "
        + "; ".join(f"-2 sea{i}" for i in range(7)),
        "-1 <s> </s>",
    ),
)


@pytest.mark.parametrize("backend", ("cpu", "reference"))
@pytest.mark.parametrize("case", [REPEATED, HELD, UNSEPARATED, HOMOPHONES])
def test_lexicons_are_exact(case, backend):
    assert_right(case, backend)


@pytest.mark.peers
def test_flashlight_repeats_a_token_without_a_blank(flashlight):
    assert best(REPEATED)[0] == "sea"
    ((text, score),) = flashlight(REPEATED).decode_scored([REPEATED.logprobs], WIDE)
    assert (text, score) == ("see", pytest.approx(3 * math.log(0.97)))


@pytest.mark.peers
def test_flashlight_cannot_hold_the_last_token_of_a_word(flashlight):
    text, cost = best(HELD)
    assert (text, cost) == ("sea", pytest.approx(0.152, abs=1e-3))
    ((_, score),) = flashlight(HELD).decode_scored([HELD.logprobs], WIDE)
    assert -score > 10


@pytest.mark.peers
def test_flashlight_loses_the_last_word_without_a_separator(flashlight):
    assert best(UNSEPARATED)[0] == "sea"
    alone = flashlight(UNSEPARATED, final_separator=False)
    assert alone.decode([UNSEPARATED.logprobs], WIDE) == [""]
    helped = flashlight(UNSEPARATED)
    assert helped.decode([UNSEPARATED.logprobs], WIDE) == ["sea"]


@pytest.mark.peers
def test_flashlight_drops_the_seventh_homophone(flashlight):
    assert best(HOMOPHONES)[0] == "sea7"
    (text,) = flashlight(HOMOPHONES).decode([HOMOPHONES.logprobs], WIDE)
    assert text != "sea7"


def late_case():
    """Four times `a` or `b`, which sound alike; then `cd` or `fe`, distinct late.

    The beginning of `cd` costs less than that of `fe` by more than the sixteen ways
    before it differ; `fe` as a whole costs less. Returns the case, and what is found
    where only histories of `cd` are kept.
    """
    lexicon = "a a\nb b\ncd c d\nfe f e\n"
    case = hand("a|a|a|a|cd", "-|abcdef", lexicon=lexicon, separator="|")
    probs = np.full(case.logprobs.shape, 0.004)
    likely = ["ab", "|", "ab", "|", "ab", "|", "ab", "|", "cf", "de"]
    shares = {"ab": (0.49, 0.48), "|": (0.97,), "cf": (0.6, 0.38), "de": (0.05, 0.9)}
    for row, tokens in zip(probs, likely, strict=True):
        row[[case.tokens.index(token) for token in tokens]] = shares[tokens]
    logprobs = np.log(probs).astype(np.float32)
    case = replace(case, logprobs=logprobs, arpa=flat_arpa(case))
    return case, "a a a a cd"


@pytest.mark.parametrize("backend", ("cpu", "reference"))
def test_equal_contexts_are_one_entry(backend):
    """Sixteen histories with one future need one place in the beam."""
    case, worse = late_case()
    hyp = ours(case, backend, beam_size=6)
    wide = ours(case, backend)
    assert hyp.text == wide.text != worse
    assert hyp.total_cost == wide.total_cost


@pytest.mark.peers
def test_flashlight_fills_its_beam_with_dead_history(flashlight):
    case, worse = late_case()
    peer = flashlight(case)
    narrow, wide = ({**WIDE, "beam_size": size} for size in (6, 2000))
    assert peer.decode([case.logprobs], narrow) == [worse]
    assert peer.decode([case.logprobs], wide) == [ours(case, "reference").text]
    assert worse != ours(case, "reference").text


def sure_logprobs(rng, *shape):
    """Log-probs [*shape, V]; most are far from the frame's best."""
    probs = rng.dirichlet(np.full(len(LETTERS), 0.2), shape)
    return np.log(1e-4 + probs).astype(np.float32)


def random_case(seed, lexicon, arpa, **options):
    """Five random frames over five tokens; no word repeats a token."""
    return naive_search.Case(
        list(LETTERS),
        "-",
        sure_logprobs(np.random.default_rng(seed), 5),
        lexicon=lexicon,
        arpa=arpa,
        separator="|" if lexicon else None,
        options=options,
    )


@pytest.mark.peers
@pytest.mark.parametrize(
    ("lexicon", "arpa", "options"),
    [
        (WORDS, ARPA, {"lm_scale": 0.8, "word_insertion": 0.3}),
        (None, TOKENS_ARPA, {"lm_scale": 0.6}),
    ],
)
def test_flashlight_is_given_our_objective(flashlight, lexicon, arpa, options):
    """With a separator its rules are exact, but for a separator that is repeated."""
    peer, found = None, set()
    for seed in range(20):
        case = random_case(seed, lexicon, arpa, **options)
        peer = peer or flashlight(case)
        ((text, score),) = peer.decode_scored([case.logprobs], WIDE)
        expected, cost = best(case)
        assert (text, -score) == (expected, pytest.approx(cost, rel=1e-5))
        found.add(text)
    assert len(found) > 3


@pytest.mark.peers
def test_kaldi_is_given_our_objective(tmp_path):
    pytest.importorskip("kaldi_decoder")
    from tools.peers.ctc import KaldiPeer
    from tools.peers.kaldi import FasterDecoder, read_path, scaled_fst
    from wfstdec import WfstDecoder, WfstOptions, build_graph

    options = {"lm_scale": 0.8, "word_insertion": 0.3}
    case = random_case(0, WORDS, ARPA, **options)
    graph = build_graph(**naive_search_cases.decoder_arguments(case))
    peer = KaldiPeer(replace(inputs_of(case, tmp_path), graph=graph))
    assert peer.name.startswith("kaldi-decoder ")
    decoder = WfstDecoder(graph, WfstOptions(beam=50.0, **options), threads=1)
    cases = [random_case(seed, WORDS, ARPA) for seed in range(20)]
    utterances = [case.logprobs for case in cases]
    found = peer.decode(utterances, {"beam": 50.0, "max_active": None})
    hyps = decoder.decode(utterances)
    assert found == [hyp.text for hyp in hyps]
    assert len(set(found)) > 3
    kaldi = FasterDecoder(scaled_fst(graph, **options), WfstOptions(beam=50.0))
    for logprobs, hyp in zip(utterances, hyps, strict=True):
        _, cost = read_path(kaldi.decode(logprobs), graph.words)
        assert cost == pytest.approx(hyp.total_cost, rel=1e-4)


NEMO = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("nemo", "torch"))), reason="needs NeMo"
)
PYCTCDECODE = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("pyctcdecode", "kenlm"))),
    reason="needs pyctcdecode",
)
NEMO_WIDE = {"beam_size": 300, "beam_threshold": 1e4, "batch_size": 32}


def token_case(seed, num_frames=5):
    """A case without a lexicon that NeMo can do."""
    case = random_case(seed, None, TOKENS_ARPA, lm_scale=0.6)
    logprobs = sure_logprobs(np.random.default_rng(seed), num_frames)
    return replace(case, logprobs=logprobs)


@NEMO
def test_nemo_is_given_our_objective(tmp_path):
    from tools.peers.nemo_ctc import NemoPeer

    cases = [token_case(seed) for seed in range(15)]
    peer = NemoPeer(inputs_of(cases[0], tmp_path))
    found = peer.decode_scored([case.logprobs for case in cases], NEMO_WIDE)
    for case, (text, score) in zip(cases, found, strict=True):
        tokens, cost = best(case)
        assert (text, -score) == (
            tokens.replace(" ", ""),
            pytest.approx(cost, rel=1e-5),
        )


def padded(cases, rng):
    """Log-probs [B, T, V] with frames of chance behind each utterance, and lengths."""
    lengths = [len(case.logprobs) for case in cases]
    x = sure_logprobs(rng, len(cases), max(lengths) + 9)
    for case, rows in zip(cases, x, strict=True):
        rows[: len(case.logprobs)] = case.logprobs
    return x, lengths


@NEMO
def test_nemo_depends_on_padding(tmp_path):
    import torch

    from tools.peers.nemo_ctc import NemoPeer

    cases = [token_case(seed, num_frames=3 + seed % 5) for seed in range(12)]
    peer = NemoPeer(inputs_of(cases[0], tmp_path))
    x, lengths = padded(cases, np.random.default_rng(5))
    other, _ = padded(cases, np.random.default_rng(6))
    search = peer.search({"beam_size": 3, "beam_threshold": 20.0})

    def scores(logprobs):
        rows = torch.from_numpy(peer.nemo_order(logprobs))
        return search(rows, torch.tensor(lengths)).scores.max(dim=1).values

    assert not torch.equal(scores(x), scores(other))


@pytest.mark.parametrize("backend", ("cpu", "reference"))
def test_a_beam_of_one_works_with_a_language_model(backend):
    hyp = ours(token_case(3), backend, beam_size=1)
    assert hyp.reached_final and math.isfinite(hyp.total_cost)


SPACED = hand(
    "ab||", LETTERS, lexicon=WORDS, arpa=ARPA, separator="|", options={"lm_scale": 0.8}
)
UNKNOWN = replace(SPACED, logprobs=hand("bc", LETTERS).logprobs)


@pytest.mark.parametrize("backend", ("cpu", "reference"))
def test_a_last_separator_costs_nothing_more(backend):
    hyp = ours(SPACED, backend)
    assert hyp.text == "ab"
    acoustic = -4 * math.log(0.97)
    unspaced = best(replace(SPACED, logprobs=SPACED.logprobs[:2]))
    assert hyp.total_cost == pytest.approx(unspaced[1] + acoustic / 2, rel=1e-5)
    assert_right(SPACED, backend)


@pytest.mark.parametrize("backend", ("cpu", "reference"))
def test_all_words_are_of_the_lexicon(backend):
    assert_right(UNKNOWN, backend)


@PYCTCDECODE
def test_pyctcdecode_says_words_that_the_lexicon_lacks(tmp_path):
    from tools.peers.ctc import PyctcdecodePeer

    loud = np.float32(20) * UNKNOWN.logprobs  # surer of itself
    peer = PyctcdecodePeer(inputs_of(UNKNOWN, tmp_path))
    assert peer.decode([loud], peer.settings()[0]) == ["bc"]
    assert "bc" not in {entry.word for entry in UNKNOWN.entries}


@PYCTCDECODE
def test_pyctcdecode_charges_a_word_for_a_last_separator(tmp_path):
    from tools.peers.ctc import PyctcdecodePeer

    peer = PyctcdecodePeer(inputs_of(SPACED, tmp_path))
    spaced, unspaced = (
        peer.decoder.decode_beams(np.float32(20) * rows)[0]
        for rows in (SPACED.logprobs, SPACED.logprobs[:2])
    )
    assert spaced[0] == unspaced[0] == "ab"
    acoustic, total = 3, 4
    lm = [beam[total] - beam[acoustic] for beam in (spaced, unspaced)]
    assert lm[0] < lm[1] - 10
