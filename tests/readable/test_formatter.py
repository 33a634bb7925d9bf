"""Formatter: ranges, times, streams, display forms, results of the command line."""

import json
import random

import numpy as np
import pytest
from real_speech import RECIPE, speech_graph, utterances

import wfstdec
from wfstdec import Formatter
from wfstdec.cli.main import main
from wfstdec.errors import FormatError, OptionError
from wfstdec.search.hypothesis import Word

SPOKEN = (
    "yes he paid three hundred forty two dollars did he not on january the fifth "
    "nineteen eighty four at half past three old mcdonald came to new york with "
    "bartley what do you want there were twenty one"
).split()
FORMS = ["McDonald", "New York", "New York Central", "Bartley"]


@pytest.fixture(scope="module")
def smart():
    return Formatter("en", "en", display=FORMS)


def timed(texts, seed=0):
    """Words with times, pauses and confidences."""
    rng, words, at = np.random.default_rng(seed), [], 0.0
    for text in texts:
        end = at + rng.uniform(0.1, 0.5)
        words.append(Word(text, at, end, 0, 0, rng.uniform(0.1, 1)))
        at = end + rng.choice([0, 0, 0, 0.05, 0.4, 1.5])
    return words


def assert_covers(shown, words):
    assert [one.first for one in shown.words] == [
        0,
        *(one.last for one in shown.words),
    ][: len(shown.words)]
    assert (shown.words[-1].last if shown.words else 0) == len(words)
    for one in shown.words:
        some = words[one.first : one.last]
        assert (one.start_s, one.end_s) == (some[0].start_s, some[-1].end_s)
        assert one.confidence == min(word.confidence for word in some)


def test_numbers_punctuation_capitals_and_display_forms(smart):
    shown = smart(" ".join(SPOKEN))
    assert shown.text.startswith("Yes, he paid $342. Did he not")
    for part in ("January 5, 1984", "3:30", "McDonald", "New York", "Bartley", "21."):
        assert part in shown.text
    words = timed(SPOKEN)
    assert_covers(smart(words), words)
    assert [word.text for word in words] == SPOKEN  # raw words are not changed


def test_any_part_may_be_left_out():
    text = "old mcdonald paid twenty one dollars"
    assert Formatter()(text).text == text
    assert Formatter("en")(text).text == "old mcdonald paid $21"
    paid = "he paid twenty one dollars"
    assert Formatter(None, "en")(paid).text == "He paid twenty one dollars."
    assert Formatter(display=["McDonald"])(text).text.split()[1] == "McDonald"
    assert Formatter("en", "en", case=False)(paid).text == "he paid $21."
    assert Formatter(None, "en")("mister bly saw missus jones").text.startswith("Mr. B")
    assert Formatter("en")("").words == ()


def test_words_of_any_lexicon_keep_their_characters():
    """Capitals are no classes of numbers; apostrophes and periods are of the words."""
    formatter = Formatter(None, "en")
    assert "time is it" in formatter("WHAT TIME IS IT").text
    assert "a date" in formatter("we set a DATE").text
    for word in ("'em", "dogs'", "'n'"):
        assert word in formatter(f"i saw {word} there").text


def test_hypotheses_keep_their_times_and_confidences(smart):
    options = wfstdec.WfstOptions(beam=10.0, lm_scale=0.8)
    decoder = wfstdec.WfstDecoder(speech_graph("normal"), options)
    for found in decoder.decode_nbest(utterances(4)):
        hypothesis = found[0].with_posteriors(found, 1.0)
        assert_covers(smart(hypothesis), hypothesis.words)


@pytest.mark.parametrize("parts", [("en", "en"), ("en", None), (None, "en"), (None,)])
def test_streams_equal_utterances_given_whole(parts):
    """Whatever the chunks: settled display words stay, and the end is the whole."""
    formatter, rng = Formatter(*parts, display=FORMS), random.Random(0)
    lines = (RECIPE / "refs.txt").read_text("utf-8").splitlines()
    lines = [line.split()[1:] for line in lines] + [SPOKEN] * 40
    rng.shuffle(lines)
    whole, stream = formatter.stream(), formatter.stream()
    for seed, texts in enumerate(lines[:80]):
        words, count, settled = timed(texts, seed), 0, ()
        expected = whole.end(words)
        while count < len(words):
            # Those behind the settled ones may still be others.
            more = timed(rng.choices(SPOKEN, k=rng.randrange(4)), 1)
            count = min(len(words), count + rng.randrange(1, 6))
            shown = stream.feed([*words[:count], *more], count)
            assert shown.words[: len(settled)] == settled
            settled = shown.words[: shown.num_settled]
        shown = stream.end(words)
        assert shown == expected
        assert shown.words[: len(settled)] == settled


def test_words_are_settled_soon(smart):
    stream, behind = smart.stream(), []
    words = timed("the train leaves the station and we go home at last".split() * 20)
    for count in range(1, len(words)):
        shown = stream.feed(words[:count], count)
        behind.append(count - shown.words[shown.num_settled - 1].last)
    assert max(behind[5:]) <= 7


def test_a_sentence_may_continue_in_the_next_utterance(smart):
    stream = smart.stream()
    first = stream.end("he said that the".split()).text
    assert first == "He said that the"
    assert stream.end("house was old".split(), last=True).text == "house was old."


def test_faults_are_named(tmp_path):
    (tmp_path / "x.punct.npz").write_bytes(b"none")
    with pytest.raises(FormatError, match=r"x\.punct\.npz"):
        Formatter(punctuation=tmp_path / "x.punct.npz")
    stream = Formatter().stream()
    stream.feed(["a", "b", "c"], 3)
    with pytest.raises(OptionError, match="num_settled"):
        stream.feed(["a"], 1)


# ------------------------------------------------------------------- command line
def test_lines_are_formatted(tmp_path, capsys):
    path = tmp_path / "words.txt"
    path.write_text("he paid twenty one dollars did he\n\nyes\n")
    assert main(["format", str(path), "--smart"]) == 0
    assert capsys.readouterr().out == "He paid $21. Did he?\n\nYes.\n"
    assert main(["format", str(path), "--itn", "en", "--output", f"{path}.out"]) == 0
    assert (tmp_path / "words.txt.out").read_text().startswith("he paid $21 did he\n")
    assert main(["format", str(path), "--smart", "--output", str(path)]) == 0
    assert path.read_text() == "He paid $21. Did he?\n\nYes.\n"
    path.write_text('{"words": 3}\n')
    assert main(["format", str(path)]) == 1
    assert "words.txt:1" in capsys.readouterr().err


def test_results_of_decode(tmp_path, capsys):
    speech_graph("normal").save(tmp_path / "graph.npz")
    given = ["decode", "--graph", str(tmp_path / "graph.npz"), "--lm-scale", "0.8"]
    given += ["--logprobs", str(RECIPE / "logprobs.npz"), "--beam", "8", "--quiet"]

    def run(name, *more):
        assert main([*given, "--output", str(tmp_path / name), *more]) == 0
        return (tmp_path / name).read_text("utf-8")

    raw = [json.loads(line) for line in run("raw.jsonl").splitlines()]
    smart = [json.loads(line) for line in run("hyp.jsonl", "--smart").splitlines()]
    assert [{k: v for k, v in one.items() if k != "shown"} for one in smart] == raw
    texts = [one["shown"]["text"] for one in smart]
    assert [x for x in texts if x[0].islower() or x[-1] not in ".?!"] == []
    lines = run("hyp.txt", "--smart").splitlines()
    assert lines == [f"{one['id']} {one['shown']['text']}" for one in smart]
    assert main(["format", str(tmp_path / "raw.jsonl")]) == 0
    again = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["shown"] for one in again] == [one["shown"] for one in smart]
    assert main([*given, "--format", "ctm", "--smart"]) == 1
    assert "expected 'text'" in capsys.readouterr().err


def test_subtitles_break_at_marks():
    from wfstdec.io.subtitles import SubtitleOptions, cues

    words = [
        Word(text, i, i + 1, 0, 0) for i, text in enumerate("a b c. d e f".split())
    ]
    [first, second] = cues(words, SubtitleOptions(max_s=5.5))
    assert first.lines == ("a b c.",) and second.lines == ("d e f",)
