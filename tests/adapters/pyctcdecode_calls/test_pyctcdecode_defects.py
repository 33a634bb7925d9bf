"""Defects of pyctcdecode 0.5.0: right here, and as there with `faithful=True`.

Each has a line in docs/pyctcdecode.md. The peer, where it is installed, is tested
too: that it still has them.
"""

import numpy as np
import pytest
from arpa_texts import arpa_of
from prefix_cases import PEER

from wfstdec.adapters.pyctcdecode import build_ctcdecoder

pytestmark = pytest.mark.usefixtures("quiet")
ARPA = arpa_of(
    "-99 <s> -0.5; -0.5 ab -0.25; -1 ba; -3 <unk> 0; -0.75 </s> 0", "-0.125 <s> ab"
)
LETTERS = ["", " ", "a", "b"]


@pytest.fixture
def arpa(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA, "utf-8")
    return str(path)


@pytest.fixture(params=["ours", pytest.param("peer", marks=PEER)])
def faithful(request):
    """Makes a decoder that does it as pyctcdecode does."""
    if request.param == "peer":
        import pyctcdecode

        return pyctcdecode.build_ctcdecoder
    return lambda *arguments: build_ctcdecoder(*arguments, faithful=True)


def logits(text, labels, sure=20.0):
    x = np.zeros((len(text), len(labels)))
    for frame, label in enumerate(text):
        x[frame, labels.index(label)] = sure
    return x


def lm_score(decoder, spoken):
    beam = decoder.decode_beams(logits(spoken, LETTERS))[0]
    return beam[0], beam[4] - beam[3]


def test_an_utterance_that_ends_in_a_space_is_charged_an_unknown_word(arpa, faithful):
    right, wrong = build_ctcdecoder(LETTERS, arpa), faithful(LETTERS, arpa)
    text, without = lm_score(right, ["a", "b"])
    assert text == "ab"
    assert lm_score(right, ["a", "b", " "]) == (text, pytest.approx(without))
    assert lm_score(right, ["", " "])[1] == pytest.approx(-0.5 * np.log(10) * 1.25)
    assert lm_score(wrong, ["a", "b"]) == (text, pytest.approx(without, abs=1e-5))
    charged = lm_score(wrong, ["a", "b", " "])[1]
    # the back-off of ab, <unk>, the offset, and no back-off before </s>; with beta
    extra = 0.5 * -np.log(10) * (0.25 + 3 + 10 - 0.25) + 1.5
    assert charged - without == pytest.approx(extra, abs=1e-4)


def test_a_word_break_after_a_piece_is_taken_by_whatever_comes_next(faithful):
    labels = ["", "▁ab", "c", "▁"]
    x = np.full((2, 4), -30.0)
    x[0, 1], x[0, 3] = 0.0, -2.0  # '▁ab', or '▁'
    x[1, 2] = 0.0
    right, wrong = build_ctcdecoder(labels), faithful(labels)
    found = [{b[0] for b in d.decode_beams(x)} for d in (right, wrong)]
    assert found == [{"abc", "c"}, {"ab c", "c"}]


def test_words_without_a_back_off_weight_are_taken_for_unknown(arpa, faithful):
    right, wrong = build_ctcdecoder(LETTERS, arpa), faithful(LETTERS, arpa)
    known, unknown = (lm_score(decoder, ["b", "a"]) for decoder in (right, wrong))
    assert known[1] == pytest.approx(0.5 * -np.log(10) * (0.5 + 1 + 0.75) + 1.5)
    assert unknown[1] == pytest.approx(known[1] - 0.5 * np.log(10) * 10, abs=1e-5)


@PEER
def test_probabilities_in_float32_are_taken_for_logits():
    import pyctcdecode

    p = np.array([[0.9, 0.04, 0.04, 0.02], [0.1, 0.1, 0.7, 0.1]] * 3, np.float32)
    p /= p.sum(axis=1, keepdims=True) * np.float32(1 + 1e-6)
    right, wrong = build_ctcdecoder(LETTERS), pyctcdecode.build_ctcdecoder(LETTERS)
    expected = right.decode_beams(np.log(p))[0]
    assert right.decode_beams(p)[0][3] == pytest.approx(expected[3], abs=1e-4)
    assert abs(wrong.decode_beams(p)[0][3] - expected[3]) > 0.5


def test_logits_in_float16_are_added_up_in_more():
    x = (4 * np.random.default_rng(0).normal(size=(20, 4))).astype(np.float16)
    decoder = build_ctcdecoder(LETTERS)
    one, two = (decoder.decode_beams(x.astype(t)) for t in (np.float16, np.float64))
    assert [beam[0] for beam in one] == [beam[0] for beam in two]
    assert one[0][3] == pytest.approx(two[0][3], abs=1e-4)


@PEER
def test_an_empty_list_of_unigrams_is_none(arpa):
    import pyctcdecode

    decoder = build_ctcdecoder(LETTERS, arpa, [])
    assert decoder.decode(logits(["a", "b"], LETTERS)) == "ab"
    with pytest.raises(ZeroDivisionError):
        pyctcdecode.build_ctcdecoder(LETTERS, arpa, [])


def test_nan_is_no_logit():
    x = logits(["a", "b"], LETTERS)
    x[1, 2] = np.nan
    with pytest.raises(ValueError, match="nan in frame 1"):
        build_ctcdecoder(LETTERS).decode(x)
