"""Behaviour that pyctcdecode's own tests demand, and calls of its main branch."""

import pickle

import numpy as np
import pytest
from arpa_texts import arpa_of
from prefix_cases import random_case

from wfstdec.adapters.pyctcdecode import (
    Alphabet,
    BeamSearchDecoderCTC,
    HotwordScorer,
    LanguageModel,
    MultiLanguageModel,
    build_ctcdecoder,
)
from wfstdec.errors import FormatError, OptionError

LABELS = [" ", "b", "g", "n", "s", "u", "y", ""]
ARPA = arpa_of(
    "-1.2 </s>; -99 <s> -0.3; -1.6 <unk>; -0.9 bugs -0.2; -0.8 bunny -0.3",
    "-0.4 <s> bugs; -0.2 bugs bunny; -0.3 bunny </s>",
)


def frames_of(text, blank_before=()):
    """Probabilities of 1 for each letter; a blank before some positions."""
    rows = []
    for at, letter in enumerate(text):
        rows += [""] * (at in blank_before) + [letter]
    return np.eye(len(LABELS))[[LABELS.index(letter) for letter in rows]]


BUGS, BUNNY = frames_of("bugs"), frames_of("bunny", blank_before=(3,))
MIXED = np.vstack([BUGS, np.eye(len(LABELS))[[7, 7]]]) * 0.49 + BUNNY * 0.51
PROBS = np.vstack([MIXED, frames_of(" "), BUNNY])
LOGITS = np.log(np.clip(PROBS, 1e-15, 1))


@pytest.fixture
def arpa(tmp_path):
    (tmp_path / "lm.arpa").write_text(ARPA)
    return str(tmp_path / "lm.arpa")


def test_a_language_model_mends_what_was_heard(arpa):
    alphabet = Alphabet.build_alphabet(LABELS)
    for alpha, text in ((0.0, "bunny bunny"), (1.0, "bugs bunny")):
        model = LanguageModel(arpa, alpha=alpha)
        assert BeamSearchDecoderCTC(alphabet, model).decode(LOGITS) == text


def test_beams_are_named_tuples_with_the_names_of_the_main_branch(arpa):
    decoder = build_ctcdecoder(LABELS, arpa)
    beam = decoder.decode_beams(LOGITS)[0]
    text, state, frames, logit, total = beam
    assert beam.text == text == "bugs bunny" and beam.last_lm_state is state
    assert beam.text_frames == frames == [("bugs", (0, 4)), ("bunny", (7, 13))]
    assert (beam.logit_score, beam.lm_score) == (logit, total)
    assert beam == (text, state, frames, logit, total)
    [[safe, *_]] = decoder.decode_beams_batch(None, [LOGITS])
    assert safe == (text, frames, logit, total) and safe.lm_score == total
    assert safe.last_lm_state is None
    assert pickle.loads(pickle.dumps(beam.get_mp_safe_beam())) == beam


def test_integer_logits_are_logits():
    decoder = build_ctcdecoder(LABELS)
    whole = np.round(LOGITS).astype(np.int64)
    assert decoder.decode_beams(whole) == decoder.decode_beams(whole.astype(float))
    ones = PROBS.round().astype(np.int8)  # probabilities, 0 or 1
    assert decoder.decode(ones) == decoder.decode(ones.astype(float)) == "bunny bunny"


def test_models_are_in_one_container_until_they_are_cleaned_up(arpa):
    BeamSearchDecoderCTC.clear_class_models()
    for _ in range(2):
        decoder = build_ctcdecoder(LABELS, arpa)
    plain = build_ctcdecoder(LABELS)
    container = BeamSearchDecoderCTC.model_container
    assert len(container) == 3 and decoder.model_container is container
    assert sum(model is not None for model in container.values()) == 2
    decoder.cleanup()
    decoder.cleanup()
    assert len(BeamSearchDecoderCTC.model_container) == 2
    assert plain.decode(LOGITS) == "bunny bunny"
    with pytest.raises(OptionError, match="cleaned up"):
        decoder.decode(LOGITS)
    BeamSearchDecoderCTC.clear_class_models()
    assert len(BeamSearchDecoderCTC.model_container) == 0
    with pytest.raises(OptionError, match="cleaned up"):
        plain.decode(LOGITS)


def test_infinite_parameters(arpa):
    decoder = build_ctcdecoder(LABELS, arpa, ["bunny"], unk_score_offset=-np.inf)
    assert {beam.text for beam in decoder.decode_beams(LOGITS)} == {"bunny bunny"}
    assert decoder.decode(LOGITS, beam_prune_logp=-np.inf, token_min_logp=-np.inf)
    for value in (np.inf, -np.inf, 3):
        decoder.reset_params(alpha=value, beta=value, unk_score_offset=value)
        assert decoder._language_model.beta == value


@pytest.mark.parametrize("name", ["alpha", "beta", "unk_score_offset"])
def test_nan_is_taken_and_decodes_nothing(name, arpa):
    """pyctcdecode's main branch takes NaN, then fails in `max()`: a ValueError."""
    decoder = build_ctcdecoder(LABELS, arpa)
    expected = decoder.decode_beams(LOGITS)
    before = getattr(decoder._language_model, name)
    decoder.reset_params(**{name: np.nan})
    several = MultiLanguageModel([decoder._language_model] * 2)
    for model in (decoder._language_model, several):
        used = BeamSearchDecoderCTC(Alphabet.build_alphabet(LABELS), model)
        with pytest.raises(OptionError, match=f"{name}=nan, expected a number"):
            used.decode(LOGITS)
    decoder.reset_params(**{name: before})
    assert decoder.decode_beams(LOGITS) == expected
    assert np.isnan(LanguageModel(arpa, **{name: np.nan}).serializable_attrs[name])


def in_parts(decoder, logits, cuts, **options):
    beams, *tables = decoder.get_starting_state()
    bounds = [0, *cuts, len(logits)]
    for first, end in zip(bounds, bounds[1:], strict=False):
        is_end = end == len(logits)
        beams = decoder.partial_decode_beams(
            logits[first:end], *tables, beams, first, is_end=is_end, **options
        )
    return beams


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("faithful", [False, True])
def test_parts_of_random_utterances_are_the_whole(seed, faithful, tmp_path):
    """Forced words (`faithful`) are forgotten between parts, as in pyctcdecode."""
    case = random_case(seed, tmp_path)
    decoder = build_ctcdecoder(
        case.labels, case.arpa, case.unigrams, **case.lm, faithful=faithful
    )
    if faithful and any(label.endswith("▁") for label in decoder._alphabet.labels):
        pytest.skip("forced beginnings")
    options = dict(case.options)
    hotwords, weight = options.pop("hotwords", None), options.pop("hotword_weight", 10)
    scorer = HotwordScorer.build_scorer(hotwords, weight=weight)
    rng = np.random.default_rng(seed)
    cuts = sorted(set(rng.integers(1, max(2, len(case.logits)), 3).tolist()))
    cuts = [cut for cut in cuts if cut < len(case.logits)]
    whole = decoder.decode_beams(case.logits, **case.options)
    found = in_parts(decoder, case.logits, cuts, hotword_scorer=scorer, **options)
    assert [beam.text for beam in found] == [beam.text for beam in whole]
    for one, other in zip(found, whole, strict=True):
        assert one.text_frames == [frames for _, frames in other.text_frames]
        assert (one.partial_word, one.last_char) == ("", None)
    np.testing.assert_allclose(
        [(beam.logit_score, beam.lm_score) for beam in found],
        [(beam.logit_score, beam.lm_score) for beam in whole],
        atol=1e-6,
    )


def test_words_under_way_may_be_forced_to_end():
    decoder = build_ctcdecoder(LABELS)
    beams, *tables = decoder.get_starting_state()
    under_way = decoder.partial_decode_beams(BUGS[:3], *tables, beams, 0)
    assert (under_way[0].text, under_way[0].partial_word) == ("", "bug")
    assert under_way[0].partial_frames == (0, 3) and under_way[0].last_char == "g"
    forced = decoder.partial_decode_beams(
        BUGS[:3], *tables, beams, 0, force_next_word=True
    )
    assert (forced[0].text, forced[0].partial_word) == ("bug", "")
    assert forced[0].text_frames == [(0, 3)] and forced[0].last_char is None
    ended = decoder.partial_decode_beams(BUGS[3:], *tables, forced, 3, is_end=True)
    assert ended[0].text == "bug s" and ended[0].text_frames == [(0, 3), (3, 4)]


def test_beams_may_be_dropped_between_parts(arpa):
    decoder = build_ctcdecoder(LABELS)
    beams, *tables = decoder.get_starting_state()
    beams = decoder.partial_decode_beams(LOGITS[:7], *tables, beams, 0)
    kept = [beam for beam in beams if beam.text == "bugs"][:1]
    found = decoder.partial_decode_beams(LOGITS[7:], *tables, kept, 7, is_end=True)
    assert [beam.text for beam in found] == ["bugs bunny"]


def test_parts_begin_in_the_state_of_a_sentence(arpa):
    decoder = build_ctcdecoder(LABELS, arpa)
    state = decoder.decode_beams(BUGS)[0].last_lm_state
    _, scores, parts = decoder.get_starting_state()
    scores["", False] = (0.0, 0.0, state)
    beams, *_ = decoder.get_starting_state()
    found = decoder.partial_decode_beams(BUNNY, scores, parts, beams, 0, is_end=True)
    [expected, *_] = decoder.decode_beams(BUNNY, lm_start_state=state)
    assert found[0].lm_score == pytest.approx(expected.lm_score, abs=1e-9)
    assert found[0].lm_score != decoder.decode_beams(BUNNY)[0].lm_score


def test_files_of_folders_are_found(arpa, tmp_path):
    (tmp_path / "saved").mkdir()
    build_ctcdecoder(LABELS, arpa).save_to_dir(str(tmp_path / "saved"))
    found = BeamSearchDecoderCTC.parse_directory_contents(str(tmp_path / "saved"))
    assert found["alphabet"] == str(tmp_path / "saved" / "alphabet.json")
    inside = LanguageModel.parse_directory_contents(found["language_model"])
    assert inside["kenlm"].endswith("lm.arpa") and len(inside) == 3
    with pytest.raises(FormatError):
        LanguageModel.parse_directory_contents(str(tmp_path / "saved"))
    with pytest.raises(FormatError):
        BeamSearchDecoderCTC.parse_directory_contents(found["language_model"])
