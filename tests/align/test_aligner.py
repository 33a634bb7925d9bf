"""The aligner: by hand, on real speech, against full Viterbi, and its errors."""

import re

import numpy as np
import pytest
from real_speech import RECIPE
from viterbi import forced_align

from wfstdec import AlignOptions, ForcedAligner, Lexicon, token_table
from wfstdec.align.search import CHUNK
from wfstdec.errors import LexiconError, LogprobError, OptionError, ShapeError
from wfstdec.io import read_text

LETTERS = token_table(["<blank>", "a", "b", "c", "|"])


def frames(path, sharp=8.0):
    """Log-probs float32 [T, V] of a model that hears one letter in each frame."""
    x = np.zeros((len(path), len(LETTERS)))
    x[np.arange(len(path)), ["-abc|".index(letter) for letter in path]] = sharp
    return (x - np.log(np.exp(x).sum(axis=1, keepdims=True))).astype(np.float32)


def test_an_example_by_hand():
    aligner = ForcedAligner(LETTERS, separator="|", frame_shift_s=0.04)
    alignment = aligner.align(frames("-aab-|-cc-"), "ab c")
    assert alignment.text == "ab c" and alignment.fits and alignment.exact
    first, second = alignment.words
    assert first[:5] == ("ab", 0.04, 0.16, 1, 4) and second[3:5] == (7, 9)
    assert first.confidence == second.confidence == 1.0
    spoken = [(token.text, *token[3:5]) for token in alignment.tokens]
    assert spoken == [("a", 1, 3), ("b", 3, 4), ("|", 5, 6), ("c", 7, 9)]
    assert alignment.word_tokens == ((0, 2), (3, 4))
    assert alignment.positions == (0, 1) and alignment.num_frames == 10
    assert alignment.excess == pytest.approx(0.0, abs=1e-5)


def test_confidence_is_the_mean_ratio_where_somebody_says_something():
    """A word of two letters, of which the model hears the second as another one."""
    alignment = ForcedAligner(LETTERS).align(frames("-a-c-", sharp=2.0), "ab")
    [word] = alignment.words
    a, b = alignment.tokens
    assert a.confidence == 1.0
    assert b.confidence == pytest.approx(np.exp(-2.0), abs=1e-5)
    assert word[3:5] == (1, 4)  # the blank in the middle counts for nothing
    assert word.confidence == pytest.approx(np.exp(-2.0 / 2), abs=1e-5)
    assert alignment.excess == pytest.approx(2.0, abs=1e-5)


def test_words_that_were_not_said_are_named():
    alignment = ForcedAligner(LETTERS, separator="|").align(
        frames("-aba-|-bab-|-cac-"), "aba cbc cac"
    )
    [misfit] = alignment.misfits
    assert (misfit.kind, misfit.first_word, misfit.end_word) == ("weak", 1, 2)
    assert misfit.text == "cbc" and misfit.confidence < 0.01
    assert 6 <= misfit.start_frame < misfit.end_frame <= 11
    assert str(misfit).startswith("weak: word 2 'cbc', 0.")
    assert not alignment.fits


def test_speech_that_the_text_lacks_is_named_and_may_be_put_in():
    aligner = ForcedAligner(LETTERS, separator="|")
    x = frames("-aba-|-bcb-|-cac-")
    [misfit] = aligner.align(x, "aba cac").misfits
    assert misfit[:4] == ("speech", 1, 1, "")
    assert misfit.start_frame <= 7 and misfit.end_frame >= 10
    alignment = aligner.with_options(insert_cost=5.0).align(x, "aba cac")
    [misfit] = alignment.misfits
    assert misfit.kind == "put in" and alignment.total_cost < 6.0
    assert [token.text for token in alignment.tokens].count("b") == 1


def test_words_may_be_left_out():
    aligner = ForcedAligner(LETTERS, separator="|", options=AlignOptions(skip_cost=5.0))
    alignment = aligner.align(frames("-aba-|-cac-"), "bcb aba bb bb cac ccc")
    assert alignment.positions == (1, 4) and alignment.reached_end
    left_out = [(m.kind, m.first_word, m.end_word, m.text) for m in alignment.misfits]
    assert left_out == [
        ("left out", 0, 1, "bcb"),
        ("left out", 2, 4, "bb bb"),
        ("left out", 5, 6, "ccc"),
    ]


def test_a_text_that_is_too_long_says_which_words_were_not_reached():
    alignment = ForcedAligner(LETTERS).align(frames("abc"), "abc abc a")
    assert not alignment.reached_end and not alignment.fits
    assert alignment.misfits[-1].kind == "not reached"
    assert alignment.misfits[-1].end_word == 3


def test_a_beam_that_is_too_narrow_is_widened_and_said(caplog):
    x, text = frames("-aba-|-cac-"), "aba bcb cac"
    narrow = ForcedAligner(LETTERS, separator="|", options=AlignOptions(beam=1.0))
    with caplog.at_level("INFO", "wfstdec.align"):
        alignment = narrow.align(x, text)
    assert "no path reaches the end of the text: again with beam" in caplog.text
    wide = narrow.with_options(beam=1000.0).align(x, text)
    assert alignment.reached_end and alignment.words == wide.words


def test_nothing_said_and_nothing_heard():
    aligner = ForcedAligner(LETTERS, separator="|")
    for x, text in ((frames("---"), ""), (frames(""), [])):
        alignment = aligner.align(x, text)
        assert alignment.words == () and alignment.fits and alignment.reached_end
    alignment = aligner.align(frames(""), "ab")
    assert [m.kind for m in alignment.misfits] == ["not reached"]
    [misfit] = aligner.align(frames("-abc-"), "").misfits
    assert misfit.kind == "speech"


def test_real_speech_against_full_viterbi():
    """The tokens that were found, aligned once more without any pruning."""
    files = RECIPE / "tokens.txt", RECIPE / "lexicon.txt.gz"
    aligner = ForcedAligner(*files, separator="<wb>", g2p=lambda word: ["k ə"])
    ids, blank = aligner.tokens.ids, aligner.tokens.blank
    references = read_text(RECIPE / "refs.txt")
    arrays, known = np.load(RECIPE / "logprobs.npz"), set(aligner._transcriber._known)
    for utterance in sorted(u for u in references if known >= set(references[u]))[:6]:
        x = arrays[utterance].astype(np.float32)
        alignment = aligner.align(x, references[utterance])
        targets = [ids[token.text] for token in alignment.tokens]
        path, total = forced_align(x.astype(np.float64), targets, blank)
        assert alignment.exact
        assert alignment.total_cost == pytest.approx(-total, abs=1e-3)
        spoken = np.full(len(x), blank)
        for token in alignment.tokens:
            spoken[token.start_frame : token.end_frame] = ids[token.text]
        at = np.arange(len(x))  # log-probs are multiples of 1/16: there are ties
        assert x[at, spoken].sum() == pytest.approx(x[at, path].sum(), abs=1e-3)


def test_an_hour_in_pieces_is_the_same_as_whole():
    """Chunks, memory-mapped files: nothing changes; the rest is kept of the trace."""
    x = np.concatenate([frames("-aba-|-cac-|")] * (3 * CHUNK // 12 + 1))
    text = "aba cac " * (len(x) // 12)
    alignment = ForcedAligner(LETTERS, separator="|").align(x, text)
    assert alignment.fits and len(alignment.words) == 2 * (len(x) // 12)
    for i, word in enumerate(alignment.words):
        start = 12 * (i // 2) + 1 + 6 * (i % 2)
        assert word[3:5] == (start, start + 3)


def test_log_probs_of_all_kinds(tmp_path):
    x = frames("-aab-|-cc-")
    aligner = ForcedAligner(LETTERS, separator="|")
    expected = aligner.align(x, "ab c").words
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for other in (x.astype(np.float64), x.astype(np.float16), mapped):
        assert [w[:5] for w in aligner.align(other, "ab c").words] == [
            w[:5] for w in expected
        ]
    torch = pytest.importorskip("torch")
    assert aligner.align(torch.tensor(x), "ab c").words == expected


def test_words_that_the_lexicon_lacks():
    def says(word):
        return {"xyz": ["a b", ("c", "c")], "none": [], "bad": ["a x"], "b": ["a |"]}[
            word
        ]

    given = {"tokens": LETTERS, "separator": "|"}
    lexicon = Lexicon(("ab",), ((2, 2, 1),), np.zeros(1, np.float32))
    plain = ForcedAligner(lexicon=lexicon, unknown="error", **given)
    with pytest.raises(LexiconError, match=r"1 words .*: 'xyz' \(word 2\); expected"):
        plain.align(frames("-ab-"), "ab xyz")
    given["unknown"] = "error"
    spelt = ForcedAligner(lexicon=lexicon, g2p="spelling", **given)
    assert spelt.align(frames("-b-ba|cab"), "ab cab").fits
    with pytest.raises(LexiconError, match="1 words .*: 'xyz'"):
        spelt.align(frames("-ab-"), "ab xyz")
    asked = ForcedAligner(lexicon=lexicon, g2p=says, **given)
    for emitted, excess in (("b-ba|ab-", 0.0), ("b-ba|c-c", 0.0), ("b-ba|ac-", 8.0)):
        alignment = asked.align(frames(emitted), "ab xyz")
        assert alignment.excess == pytest.approx(excess, abs=1e-4)
    for word, message in (
        ("none", "1 words that the lexicon does not have: 'none'"),
        ("bad", "g2p has names that are no tokens: 'x' in 1 ('bad')"),
        ("b", "a pronunciation of 'b' has '|' in it, expected neither the blank nor"),
    ):
        with pytest.raises(LexiconError, match=re.escape(message)):
            asked.align(frames("-ab-"), word)


@pytest.mark.parametrize("emitted", ["-ab-|-cc-|b-b", "ab|c|bb", "ab|ccccccc|-b-b"])
def test_a_word_that_cannot_be_spelled_is_any_speech(emitted, caplog):
    """As if the model had a token for it, a little less probable than the best one."""
    x = frames(emitted)
    alignment = ForcedAligner(LETTERS, separator="|").align(x, "ab 2014 bb")
    best = x.max(axis=1, keepdims=True) - np.float32(0.3)
    with_star = token_table([*LETTERS.names, "*"])
    words = ("ab", "2014", "bb")
    lexicon = Lexicon(words, ((1, 2), (5,), (2, 2)), np.zeros(3, np.float32))
    other = ForcedAligner(with_star, lexicon, separator="|").align(
        np.concatenate([x, best], axis=1), "ab 2014 bb"
    )
    assert alignment.total_cost == other.total_cost
    assert [w[:5] for w in alignment.words] == [w[:5] for w in other.words]
    assert alignment.words[1].confidence is None and "'2014'" in caplog.text
    [misfit] = [one for one in alignment.misfits if one.kind == "unknown"]
    assert (misfit.text, misfit.first_word) == ("2014", 1) and not alignment.fits
    assert misfit[6:8] == alignment.words[1][3:5]
    assert ForcedAligner(LETTERS, separator="|").align(
        x, "ab <star> bb"
    ).words == tuple(
        one._replace(text="<star>") if one.text == "2014" else one
        for one in alignment.words
    )


def test_real_speech_with_unknown_words_keeps_the_times_of_the_others():
    """Every fifth word is a number that cannot be spelled."""
    texts = read_text(RECIPE / "refs.txt")
    given = {"lexicon": RECIPE / "lexicon.txt.gz", "separator": "<wb>"}
    aligner = ForcedAligner(RECIPE / "tokens.txt", **given)
    moved = []
    with np.load(RECIPE / "logprobs.npz") as file:
        for name in file.files[:12]:
            text = texts[name]
            changed = [w if i % 5 != 2 else f"{i}%" for i, w in enumerate(text)]
            expected = aligner.align(file[name], text).words
            found = aligner.align(file[name], changed).words
            assert [one.text for one in found] == changed
            pairs = zip(expected, found, strict=True)
            moved += [abs(a.start_frame - b.start_frame) for a, b in pairs]
    assert np.mean(np.array(moved) <= 2) > 0.95


@pytest.mark.parametrize("separator", ["|", None])
@pytest.mark.parametrize("text", ["ab c", "aab bba", "a", "a 7 a"])
def test_frames_that_are_missing_are_counted(text, separator):
    aligner = ForcedAligner(LETTERS, separator=separator)
    found = [
        aligner.align(np.full((frames, 5), np.log(0.2)), f"c {text}")
        for frames in range(1, 14)
    ]
    missing = [one.missing_frames for one in found]
    assert missing[0] > 0 and missing[-1] == 0
    assert missing == [max(0, missing[0] - i) for i in range(len(found))]
    assert [one.reached_end for one in found] == [not n for n in missing]
    assert f"{missing[0]} frames missing" in repr(found[0])
    assert found[0].to_dict()["missing_frames"] == missing[0]


def test_errors():
    aligner = ForcedAligner(LETTERS)
    with pytest.raises(ShapeError, match=r"3 axes, expected \[T, V\]"):
        aligner.align(np.zeros((1, 2, 5)), "a")
    with pytest.raises(ShapeError, match="V=4 tokens, expected V=5"):
        aligner.align(np.zeros((2, 4)), "a")
    x = np.full((CHUNK + 5, 5), -1.0)
    x[CHUNK + 3, 2] = np.nan
    with pytest.raises(LogprobError, match=f"nan in frame {CHUNK + 3}"):
        aligner.align(x, "a")
    with pytest.raises(LexiconError, match="2 words"):  # no word can be spelled
        aligner.align(np.zeros((2, 5)), "2014 x")
    with pytest.raises(OptionError, match="unknown='star'"):
        ForcedAligner(LETTERS, unknown="star")
    with pytest.raises(OptionError, match="frame_shift_s=0"):
        ForcedAligner(LETTERS, frame_shift_s=0)
    with pytest.raises(OptionError, match="topology 'other'"):
        ForcedAligner(LETTERS, topology="other")
    for name, value in (("beam", -1), ("skip_cost", -1), ("misfit_below", 2)):
        with pytest.raises(OptionError, match=f"{name}={value}, expected"):
            aligner.with_options(**{name: value})
