"""The calls of pyctcdecode: labels, language models, parameters, what is refused."""

import logging
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from prefix_cases import PEER

from wfstdec import KenlmModel
from wfstdec.adapters.pyctcdecode import (
    Alphabet,
    BeamSearchDecoderCTC,
    LanguageModel,
    build_ctcdecoder,
)
from wfstdec.errors import (
    BoostError,
    FormatError,
    LogprobError,
    OptionError,
    ShapeError,
    TokenTableError,
)

KENLM = Path(__file__).parents[2] / "data" / "kenlm"
LETTERS = ["", " ", "a", "b"]
LABELS = [
    ["<pad>", "|", "a", "b", "<unk>"],
    ["_", " ", "a"],
    ["a", "b", "[PAD]", "|", " "],
    ["a", "|", "[UNK]"],
    ["A", "bc", " "],
    ["", "▁a", "b", "<unk>"],
    ["<pad>", "▁a", "▁"],
    ["a", "##b", "[PAD]", "[UNK]", "<s>", "▁"],
    ["##a", "", "c", "▁⁇▁"],
]


@pytest.mark.parametrize(
    ("labels", "normalised", "is_bpe"),
    [
        (["<pad>", "|", "a", "[UNK]"], ["", " ", "a", "⁇"], False),
        (["_", "a", " "], ["", "a", " "], False),
        (["a", " "], ["a", " ", ""], False),
        (["▁a", "b", "<unk>"], ["▁a", "b", "▁⁇▁", ""], True),
        (["a", "##b", "<pad>", "<s>"], ["▁a", "b", "", "<s>"], True),
    ],
)
def test_labels_are_normalised(labels, normalised, is_bpe):
    alphabet = Alphabet.build_alphabet(labels)
    assert (alphabet.labels, alphabet.is_bpe) == (normalised, is_bpe)
    again = Alphabet.loads(alphabet.dumps())
    assert (again.labels, again.is_bpe) == (normalised, is_bpe)


@PEER
@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_labels_are_normalised_as_there(labels):
    import pyctcdecode

    theirs = pyctcdecode.Alphabet.build_alphabet(list(labels))
    ours = Alphabet.build_alphabet(labels)
    assert (ours.labels, ours.is_bpe) == (theirs.labels, theirs.is_bpe)
    assert ours.dumps() == theirs.dumps()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b", "a"], "'a' comes twice"),
        (["▁a", "b c"], "'b c' has a space"),
        ("abc", "expected a list"),
        ([1, 2], "label 1, expected a string"),
    ],
)
def test_labels_that_are_none(labels, message):
    with pytest.raises(TokenTableError, match=message):
        build_ctcdecoder(labels)


@pytest.mark.parametrize("text", ["{", "[]", '{"labels": ["a"]}', '{"labels": 1}'])
def test_an_alphabet_that_is_none(text):
    with pytest.raises(TokenTableError, match="alphabet"):
        Alphabet.loads(text)


@pytest.mark.parametrize(
    ("logits", "kind", "message"),
    [
        (np.zeros((3, 5)), ShapeError, r"V=5 tokens, expected V=4 as labels"),
        (np.zeros(3), ShapeError, r"1 axes \(3,\), expected 2"),
        (np.zeros((1, 3, 4)), ShapeError, "3 axes"),
        (np.zeros((3, 4), bool), ShapeError, "bool, expected numbers"),
        (np.full((2, 4), np.inf), LogprobError, "inf in frame 0"),
        (np.full((2, 4), -np.inf), LogprobError, "-inf alone in frame 0"),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_that_do_not_fit(logits, kind, message, dtype):
    given = logits if logits.dtype == bool else logits.astype(dtype)
    decoder = build_ctcdecoder(LETTERS)
    with pytest.raises(kind, match=message):
        decoder.decode(given)
    good = np.zeros((2, 4), dtype)
    with pytest.raises(kind, match=f"utterance 1: .*{message}"):
        decoder.decode_beams_batch(None, [good, given])


def test_masked_tokens_are_impossible():
    x = np.zeros((2, 4), np.float32)
    x[:, :2] = -np.inf
    assert {beam[0] for beam in build_ctcdecoder(LETTERS).decode_beams(x)} == {
        *("a", "b", "ab", "ba")
    }


def test_torch_tensors_and_no_frames(arpa):
    torch = pytest.importorskip("torch")
    decoder = build_ctcdecoder(LETTERS, arpa)
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    assert decoder.decode_beams(x) == decoder.decode_beams(x.numpy())
    ((text, _, words, logit, _),) = decoder.decode_beams(x[:0])
    assert (text, words, logit) == ("", [], 0.0)
    assert decoder.decode_batch(None, []) == []


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"beam_width": 0}, OptionError, "beam_width=0, expected 1 or more"),
        ({"beam_width": 2.5}, OptionError, "beam_width=2.5"),
        ({"beam_prune_logp": 1.0}, OptionError, "beam_prune_logp=1.0"),
        ({"beam_prune_logp": np.nan}, OptionError, "beam_prune_logp=nan"),
        ({"token_min_logp": np.nan}, OptionError, "token_min_logp=nan"),
        ({"hotword_weight": np.inf}, OptionError, "hotword_weight=inf"),
        ({"hotwords": "new york"}, BoostError, r"expected a list of words: \['new"),
        ({"hotwords": [3]}, BoostError, "hotword 3, expected a string"),
        ({"lm_start_state": 3}, OptionError, "state 3, expected one that"),
    ],
)
def test_options_out_of_range(options, kind, message, arpa):
    with pytest.raises(kind, match=message):
        build_ctcdecoder(LETTERS, arpa).decode(np.zeros((2, 4)), **options)


def test_empty_hotwords_are_none(arpa):
    decoder = build_ctcdecoder(LETTERS, arpa)
    x = 3 * np.random.default_rng(0).normal(size=(9, 4))
    expected = decoder.decode_beams(x)
    for hotwords in ([], [""], [" "], iter([])):
        assert decoder.decode_beams(x, hotwords=hotwords) == expected
    hot = (word for word in ["ab"])  # goes once through
    both = decoder.decode_beams_batch(None, [x, x], hotwords=hot)
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"kenlm_model_path": "nowhere.arpa"}, FormatError, "nowhere.arpa: no such"),
        ({"kenlm_model_path": 3}, OptionError, "language model 3, expected a path"),
        ({"unigrams": "abc"}, OptionError, "unigrams 'abc', expected a list"),
        ({"alpha": "0.5"}, OptionError, "alpha='0.5'"),
        ({"beta": "1"}, OptionError, "beta='1'"),
        ({"lm_score_boundary": 1}, OptionError, "score_boundary=1, expected a bool"),
        ({"threads": 0}, OptionError, "threads=0"),
    ],
)
def test_what_no_decoder_is_made_of(given, kind, message, arpa):
    with pytest.raises(kind, match=message):
        build_ctcdecoder(LETTERS, **({"kenlm_model_path": arpa} | given))


def test_parameters_are_reset_whole_or_not_at_all(arpa):
    decoder = build_ctcdecoder(LETTERS, arpa, alpha=0.5, beta=1.5)
    model = decoder._language_model
    decoder.reset_params(alpha=0.7, lm_score_boundary=False)
    assert model.serializable_attrs == {
        **{"alpha": 0.7, "beta": 1.5},
        **{"unk_score_offset": -10.0, "score_boundary": False},
    }
    with pytest.raises(OptionError, match="beta='2'"):
        decoder.reset_params(alpha=0.1, beta="2")
    assert (model.alpha, model.beta) == (0.7, 1.5)
    decoder.reset_params(beta=2)
    assert model.beta == 2
    build_ctcdecoder(LETTERS).reset_params(alpha=1.0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["", " ", "A", "B", "C"], "can spell 0.0 % of 9 unigrams; in upper case"),
        (["", " ", "a"], "can spell 11.1 % of 9 unigrams$"),
        (["", "▁A", "B", "C"], "in upper case it would be more"),
    ],
)
def test_a_model_in_another_case_is_named(labels, message, arpa, caplog):
    caplog.set_level(logging.WARNING, logger="wfstdec")
    build_ctcdecoder(labels, arpa)
    (found,) = (m for m in caplog.messages if "do not agree" in m)
    assert re.search(message, found)


def test_unigrams_that_the_model_lacks_are_named(arpa, caplog):
    caplog.set_level(logging.WARNING, logger="wfstdec")
    build_ctcdecoder(LETTERS, arpa, ["bb", "abb", *map(str, range(20)), "a"])
    assert any("has 4.3 % of 23 unigrams" in found for found in caplog.messages)


def test_kenlm_models_and_paths_are_the_same(arpa):
    kenlm = pytest.importorskip("kenlm")
    logging.disable(logging.WARNING)
    x = 3 * np.random.default_rng(0).normal(size=(12, 4))
    alphabet = Alphabet.build_alphabet(LETTERS)
    given = kenlm.Model(arpa)
    beams = [
        BeamSearchDecoderCTC(alphabet, LanguageModel(model, ["a", "ab"])).decode_beams(
            x
        )
        for model in (arpa, given, KenlmModel(arpa, given))
    ]
    logging.disable(logging.NOTSET)
    assert beams[0] == beams[1]
    assert [beam[0] for beam in beams[0]] == [beam[0] for beam in beams[2]]
    for one, two in zip(beams[0], beams[2], strict=True):
        assert one[3:] == pytest.approx(two[3:], abs=1e-4)
    assert isinstance(beams[2][0][1], kenlm.State)


@pytest.mark.parametrize("name", ["trie", "array", "quant", "quant_array", "probing"])
def test_kenlm_binaries(name):
    """The model that they were made of gives the same, but for what was quantised."""
    pytest.importorskip("kenlm")
    labels = ["", " ", *"acdeghmnostxyé"]
    words = ["the", "cat", "dog", "a", "x", "y", "on", "mat", "café"]
    x = 3 * np.random.default_rng(0).normal(size=(40, len(labels)))
    arpa, binary = (
        build_ctcdecoder(labels, str(KENLM / file), words)
        for file in ("tiny.arpa", f"{name}.bin")
    )
    one, two = (decoder.decode_beams(x, beam_width=30) for decoder in (arpa, binary))
    assert isinstance(binary._language_model.scorer, KenlmModel) == (name == "probing")
    if not name.startswith("quant"):
        assert [beam[0] for beam in one] == [beam[0] for beam in two]
        for beam, other in zip(one, two, strict=True):
            assert beam[3:] == pytest.approx(other[3:], abs=1e-3)
    text, _, _, logit, total = two[0]
    model = binary._language_model
    state, expected = model.get_start_state(), 0.0
    for word in text.split():
        score, state = model.score(state, word)
        expected += score
    expected += model.score_end(state)
    assert total - logit == pytest.approx(expected, abs=1e-3)
    again = pickle.loads(pickle.dumps(binary))
    assert [beam[0] for beam in again.decode_beams(x)] == [
        beam[0] for beam in binary.decode_beams(x)
    ]
