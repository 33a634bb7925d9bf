"""Ours against pyctcdecode 0.5.0, where it is installed: random cases, real texts.

With `faithful=True` everything is the same: texts, their order, frames, scores.
"""

import inspect

import numpy as np
import pytest
from prefix_cases import PEER, WORDS, random_arpa, random_case
from real_speech import RECIPE, utterances

import wfstdec.adapters.pyctcdecode as adapter
from wfstdec import read_tokens
from wfstdec.adapters.pyctcdecode import build_ctcdecoder

pytestmark = [PEER, pytest.mark.usefixtures("quiet")]


def both(labels, arpa, unigrams=None, **lm):
    import pyctcdecode

    theirs = pyctcdecode.build_ctcdecoder(labels, arpa, unigrams, **lm)
    ours = build_ctcdecoder(labels, arpa, unigrams, **lm, faithful=True, threads=1)
    return theirs, ours


def assert_same(theirs, ours):
    """Beams of both: text, frames, scores; states are not compared."""
    assert [beam[0] for beam in ours] == [beam[0] for beam in theirs]
    assert [beam[2] for beam in ours] == [beam[2] for beam in theirs]
    for beam, other in zip(ours, theirs, strict=True):
        assert beam[3:] == pytest.approx(other[3:], abs=1e-3)


@pytest.mark.parametrize("name", ["BeamSearchDecoderCTC", "Alphabet", "LanguageModel"])
def test_calls_have_the_same_parameters(name):
    import pyctcdecode

    theirs, ours = getattr(pyctcdecode, name), getattr(adapter, name)
    pairs = [(pyctcdecode.build_ctcdecoder, adapter.build_ctcdecoder), (theirs, ours)]
    for method in vars(theirs):
        if not method.startswith("_") and callable(getattr(theirs, method)):
            if method != "parse_directory_contents":
                pairs.append((getattr(theirs, method), getattr(ours, method)))
    for their_call, our_call in pairs:
        expected, found = (
            [
                (one.name, one.default, one.kind)
                for one in inspect.signature(call).parameters.values()
                if one.kind != inspect.Parameter.KEYWORD_ONLY
            ]
            for call in (their_call, our_call)
        )
        assert found == expected, their_call


@pytest.mark.parametrize("part", range(4))
def test_random_cases(part, tmp_path):
    for seed in range(1000 + 100 * part, 1100 + 100 * part):
        case = random_case(seed, tmp_path)
        theirs, ours = both(case.labels, case.arpa, case.unigrams, **case.lm)
        expected = theirs.decode_beams(case.logits, **case.options)
        assert_same(expected, ours.decode_beams(case.logits, **case.options))
        options = case.options.copy()
        del options["prune_history"]
        text = ours.decode(case.logits, **options)
        assert text == theirs.decode(case.logits, **options)


def test_an_utterance_in_parts(tmp_path):
    """Each part begins in the state behind the part before."""
    for seed in range(2000, 2040):
        case = random_case(seed, tmp_path)
        if case.arpa is None:
            continue
        theirs, ours = both(case.labels, case.arpa, case.unigrams, **case.lm)
        states = None, None
        for logits in np.array_split(case.logits, 3):
            if len(logits):
                one, two = (
                    decoder.decode_beams(logits, **case.options, lm_start_state=state)
                    for decoder, state in zip((theirs, ours), states, strict=True)
                )
                assert_same(one, two)
                states = one[0][1], two[0][1]


def test_its_language_models_take_part_in_our_search(tmp_path):
    import kenlm
    import pyctcdecode

    for seed in range(2100, 2115):
        case = random_case(seed, tmp_path)
        if case.arpa is None:
            continue
        model = pyctcdecode.LanguageModel(kenlm.Model(case.arpa), WORDS[:4], alpha=0.7)
        two = pyctcdecode.language_model.MultiLanguageModel([model, model])
        theirs, ours = (
            kind.Alphabet.build_alphabet(list(case.labels))
            for kind in (pyctcdecode, adapter)
        )
        expected = pyctcdecode.BeamSearchDecoderCTC(theirs, model)
        beams = expected.decode_beams(case.logits, **case.options)
        for lm in (model, two):
            decoder = adapter.BeamSearchDecoderCTC(ours, lm, faithful=True)
            assert_same(beams, decoder.decode_beams(case.logits, **case.options))


def test_batches_and_new_parameters(tmp_path):
    case = random_case(1, tmp_path)._replace(options={"hotwords": ["ab"]})
    (tmp_path / "lm.arpa").write_text(random_arpa(np.random.default_rng(0), 3), "utf-8")
    theirs, ours = both(case.labels, str(tmp_path / "lm.arpa"), list(WORDS))
    rng = np.random.default_rng(2)
    batch = [
        rng.normal(size=(n, len(case.labels))).astype(np.float32) * 3 for n in (3, 9, 5)
    ]
    for parameters in ({}, {"alpha": 1.5, "beta": -1.0}, {"lm_score_boundary": False}):
        theirs.reset_params(**parameters)
        ours.reset_params(**parameters)
        one, two = (
            decoder.decode_beams_batch(None, batch, hotwords=["ab"])
            for decoder in (theirs, ours)
        )
        for beams, others in zip(one, two, strict=True):
            assert [beam[:2] for beam in beams] == [beam[:2] for beam in others]
            scores = [beam[2:] for beam in beams], [beam[2:] for beam in others]
            assert np.allclose(*scores, atol=1e-3)
        texts = [decoder.decode_batch(None, batch) for decoder in (theirs, ours)]
        assert texts[0] == texts[1]


def test_real_speech_spelled_by_phones():
    """In float32 only the best text is compared: equal beams may change places."""
    tokens = read_tokens(RECIPE / "tokens.txt")
    labels = list(tokens.names)
    labels[tokens.blank], labels[tokens.index("<wb>", "separator")] = "", " "
    theirs, ours = both(labels, None)
    usual = build_ctcdecoder(labels)
    for logprobs in utterances(10):
        wide = logprobs.astype(np.float64)
        assert_same(theirs.decode_beams(wide), ours.decode_beams(wide))
        assert theirs.decode(logprobs) == ours.decode(logprobs)
        assert theirs.decode(logprobs) == usual.decode(logprobs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_log_probs_and_logits_alike(dtype, tmp_path):
    labels = ["", " ", "a", "b"]
    theirs, ours = both(labels, None)
    x = np.random.default_rng(4).normal(size=(9, 4)) * 2
    logprobs = x - np.logaddexp.reduce(x, axis=1, keepdims=True)
    expected = theirs.decode_beams(logprobs)
    for logits in (x, logprobs, np.exp(logprobs)):
        found = ours.decode_beams(logits.astype(dtype))
        for beam, other in zip(found, expected, strict=True):
            assert beam[0] == other[0]
            assert beam[3:] == pytest.approx(other[3:], abs=1e-3)
