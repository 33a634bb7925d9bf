"""Utterance ids and words of two sides, and what is said where they differ."""

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
    "written, remedy",
    [
        (lambda one: one + ".wav", "those of --ref have '.wav' at the end"),
        (lambda one: "spk-" + one, "those of --ref have 'spk-' in front"),
        (lambda one: f"a/b/{one}.flac", "have 'a/b/' in front and '.flac' at the end"),
        (lambda one: one.split("-", 1)[1], "those of --hyp have '1272-' in front"),
        (lambda one: one + "-A", "those of --ref have '-A' at the end"),
    ],
)
def test_ids_that_differ_in_form_say_how(written, remedy):
    pairing = Pairing.of(map(written, IDS), IDS, SIDES)
    assert remedy in pairing.remedy and "40 of 40 pair" in pairing.remedy
    with pytest.raises(FormatError, match="no utterance of --ref is in --hyp, exp"):
        pairing.check()


def test_ids_that_differ_in_case_or_in_parts_that_differ_say_so():
    names = [f"Utt{chr(65 + i)}" for i in range(5)]
    pairing = Pairing.of(names, map(str.lower, names), SIDES)
    assert pairing.remedy == "they differ in case, but for which 5 of 5 pair"
    speakers = [f"speaker{i}-u{i}" for i in range(5)]
    pairing = Pairing.of(speakers, [f"u{i}" for i in range(5)], SIDES)
    assert pairing.remedy.startswith("'speaker0-u0' of --ref seems to be 'u0' of --hyp")


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
        "1 utterances of --hyp are not in --ref: x1; those of --ref have '.wav'"
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
