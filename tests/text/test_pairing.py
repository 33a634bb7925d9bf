"""Utterance ids and words of two sides, and the messages where they differ."""

import logging

import pytest

from wfstdec.errors import FormatError, LexiconError
from wfstdec.text.normalize import (
    AS_IT_STANDS,
    IGNORE_CASE,
    NORMALIZE,
    Pairing,
    check_words,
)

IDS = [f"1272-128104-{i:04}" for i in range(40)]
SIDES = ("--ref", "--hyp")


@pytest.mark.parametrize(
    "written",
    [
        lambda one: one + ".wav",
        lambda one: f"a/b/{one}.flac",
        lambda one: one.split("-", 1)[1],
        lambda one: one.upper() + "-A",
    ],
)
def test_ids_that_differ_in_form_say_how(written):
    pairing = Pairing.of(map(written, IDS), IDS, SIDES)
    found = f"{written(IDS[0])!r} of --ref seems to be {IDS[0]!r} of --hyp"
    assert pairing.remedy.startswith(found)
    with pytest.raises(FormatError, match="no utterance of --ref is in --hyp, exp"):
        pairing.check()


def test_a_number_within_a_longer_one_is_no_form_of_it():
    assert Pairing.of(["utt1", "utt2"], ["utt10", "utt20"], SIDES).remedy == ""


def test_ids_that_have_nothing_to_do_with_each_other_have_no_remedy():
    pairing = Pairing.of(["hello", "so"], ["utt1", "utt2"], SIDES)
    assert pairing.remedy == ""
    with pytest.raises(FormatError, match="like 'hello', those of --hyp look like 'ut"):
        pairing.check()
    with pytest.raises(FormatError, match="there are no --hyp"):
        Pairing.of(["u"], [], SIDES).check()


def test_some_that_do_not_pair_are_counted_and_named():
    pairing = Pairing.of([*IDS, "x1.wav"], [*IDS[1:], "x1"], SIDES)
    pairing.check()
    assert pairing.message.startswith(
        f"2 utterances of --ref are not in --hyp: {IDS[0]} x1.wav; "
        "1 utterances of --hyp are not in --ref: x1; 'x1.wav' of --ref seems to be"
    )
    assert Pairing.of(IDS, IDS, SIDES).message == ""


def test_words_in_another_case_are_an_error_and_some_of_them_a_warning(caplog):
    words = ["MISTER", "QUILTER"] * 10
    with pytest.raises(FormatError, match="0 % of .* 100 % with --ignore-case: MISTER"):
        check_words(words, ["mister", "quilter"], AS_IT_STANDS, SIDES)
    with pytest.raises(LexiconError, match="with --normalize"):
        check_words(["Yes,"], ["yes"], IGNORE_CASE, SIDES, error=LexiconError)
    with caplog.at_level(logging.WARNING):
        check_words(["a", "b", "Now,"], ["a", "b", "now"], AS_IT_STANDS, SIDES)
    assert "67 % of the words of --ref" in caplog.text
    assert "100 % with --normalize: Now," in caplog.text
    caplog.clear()
    check_words(words, ["mister", "quilter"], IGNORE_CASE, SIDES)
    check_words(["a", "x"], ["a", "y"], AS_IT_STANDS, SIDES)
    check_words(["x"], ["y"], NORMALIZE, SIDES)
    check_words([], ["y"], AS_IT_STANDS, SIDES)
    assert not caplog.records
