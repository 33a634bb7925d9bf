"""Subtitles and TextGrids, read back by readers that share nothing with the writers."""

from types import SimpleNamespace

import made_hypotheses
import numpy as np
import pytest
from timed_readers import read_srt, read_textgrid, read_vtt

from wfstdec.errors import FormatError, OptionError
from wfstdec.io import FORMATS, SubtitleOptions, open_results, result_writer
from wfstdec.io.results import ENDINGS, format_named, read_text
from wfstdec.io.subtitles import cues, srt_text, textgrid_text, vtt_text
from wfstdec.search.hypothesis import Token, Word

SHIFT = 0.02


def words_at(*spans):
    """Words from (text, first frame, end frame)."""
    return [
        Word(text, first * SHIFT, end * SHIFT, first, end) for text, first, end in spans
    ]


def random_words(rng, count):
    """Words with pauses of all lengths, now and then without frames."""
    at, spans = 0, []
    for _ in range(count):
        at += int(rng.choice([0, 1, 5, 20, 60], p=[0.4, 0.3, 0.15, 0.1, 0.05]))
        length = int(rng.integers(0, 40)) if rng.random() < 0.98 else 500
        text = "".join(rng.choice(list("abc&<>\"é'"), rng.integers(1, 14)))
        spans.append((text, at, at + length))
        at += length
    return words_at(*spans)


def timed(words, tokens=(), num_frames=None):
    """Imitate a hypothesis with what a TextGrid is made of."""
    frames = max((word.end_frame for word in words), default=0)
    return SimpleNamespace(
        words=words,
        tokens=tokens,
        num_frames=frames if num_frames is None else num_frames,
        frame_shift_s=SHIFT,
    )


WORDS = words_at(("the", 50, 60), ("cat", 62, 80), ("&", 130, 131), ("<sat>", 140, 165))


def test_an_example_by_hand():
    assert srt_text(WORDS) == (
        "1\n00:00:01,000 --> 00:00:02,000\nthe cat\n\n"
        "2\n00:00:02,600 --> 00:00:03,600\n& <sat>\n"
    )
    assert vtt_text(WORDS) == (
        "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\nthe cat\n\n"
        "00:00:02.600 --> 00:00:03.600\n&amp; &lt;sat&gt;\n"
    )
    assert srt_text([]) == "" and vtt_text([]) == "WEBVTT\n"


CHINESE = words_at(("我们", 0, 9), ("用", 10, 19), ("TV", 20, 39), ("机", 40, 60))


@pytest.mark.parametrize(
    ("join", "text"),
    [(None, "我们用 TV 机"), ("", "我们用TV机"), (" ", "我们 用 TV 机")],
)
def test_words_are_joined_as_their_script_or_the_user_wants(join, text, tmp_path):
    options = SubtitleOptions(join=join)
    hypothesis = made_hypotheses.hypothesis(CHINESE)
    assert hypothesis.spaced_text == "我们 用 TV 机"
    assert result_writer("text", subtitles=options)("u", [hypothesis]) == f"u {text}\n"
    assert text in result_writer("srt", subtitles=options)("u", [hypothesis])
    assert join or hypothesis.text == "我们用 TV 机"
    path = tmp_path / "hyp.jsonl"
    path.write_text(result_writer("jsonl")("u", [hypothesis]), "utf-8")
    assert read_text(path) == {"u": ("我们", "用", "TV", "机")}


def test_a_wide_character_is_two():
    [cue] = cues(words_at(*(("天", i, i + 1) for i in range(30))))
    assert cue.lines == ("天" * 15, "天" * 15)
    assert len(list(cues(words_at(*(("天", i, i + 1) for i in range(43)))))) == 2


def test_times_are_exact_to_the_millisecond_over_days():
    words = words_at(("late", 2**25 + 1, 2**25 + 103))
    [(start, end, _)] = read_vtt(vtt_text(words))
    assert (start, end) == (20 * (2**25 + 1), 20 * (2**25 + 103))
    assert read_srt(srt_text(words)) == read_vtt(vtt_text(words))
    assert srt_text(words).startswith("1\n186:24:48,660 --> ")


def test_lines_are_as_even_as_they_can_be():
    words = words_at(
        *((text, i, i + 1) for i, text in enumerate("a bb ccc dddd e".split()))
    )
    [cue] = cues(words, SubtitleOptions(max_chars=9))
    assert cue.lines == ("a bb ccc", "dddd e")
    [cue] = cues(words_at(("a" * 50, 0, 1)))
    assert cue.lines == ("a" * 50,)


def test_a_cue_that_is_too_long_is_cut_at_the_longest_pause_of_its_second_half():
    spans = [("word", 30 * i, 30 * i + 28) for i in range(12)]
    spans[9:] = [(text, first + 10, end + 10) for text, first, end in spans[9:]]
    found = list(cues(words_at(*spans)))
    assert [sum(len(line.split()) for line in cue.lines) for cue in found] == [9, 3]


@pytest.mark.parametrize("seed", range(20))
def test_random_words_keep_the_rules_and_come_back(seed):
    rng = np.random.default_rng(seed)
    words = random_words(rng, 400)
    options = SubtitleOptions(
        max_chars=int(rng.choice([10, 42])),
        max_lines=int(rng.integers(1, 4)),
        max_s=float(rng.choice([2.0, 7.0])),
    )
    found = read_srt(srt_text(words, options))
    assert found == read_vtt(vtt_text(words, options))
    texts = [" ".join(lines).split(" ") for _, _, lines in found]
    assert [text for cue in texts for text in cue] == [word.text for word in words]
    at = 0
    for (start, end, lines), texts_ in zip(found, texts, strict=True):
        inside = words[at : at + len(texts_)]
        at += len(texts_)
        assert start == round(inside[0].start_s * 1000)
        assert end >= round(inside[-1].end_s * 1000)
        assert len(lines) <= options.max_lines or len(inside) == 1
        assert all(len(line) <= options.max_chars or " " not in line for line in lines)
        lasts = inside[-1].end_s - inside[0].start_s
        assert lasts <= options.max_s + 1e-6 or len(inside) == 1
        pauses = [b.start_s - a.end_s for a, b in zip(inside, inside[1:], strict=False)]
        assert max(pauses, default=0.0) < options.pause_s
    for (start, end, _), (following, *_) in zip(found, found[1:], strict=False):
        assert end <= max(following, start + 1)


@pytest.mark.parametrize("seed", range(20))
def test_textgrids_come_back(seed):
    words = random_words(np.random.default_rng(seed), 60)
    tokens = [Token(*word[:5]) for word in words if word.start_frame < word.end_frame]
    end, tiers = read_textgrid(textgrid_text(timed(words, tokens, 10_000)))
    assert end == 200.0 and list(tiers) == ["words", "tokens"]
    shown = [text for *_, text in tiers["words"] if text]
    assert " ".join(shown) == " ".join(word.text for word in words)
    intervals = [interval for interval in tiers["tokens"] if interval[2]]
    expected = [(round(t.start_s, 6), round(t.end_s, 6), t.text) for t in tokens]
    assert intervals == expected


def test_an_empty_textgrid():
    end, tiers = read_textgrid(textgrid_text(timed([])))
    assert end == SHIFT
    assert tiers == {"words": [(0.0, SHIFT, "")], "tokens": [(0.0, SHIFT, "")]}


@pytest.mark.share
def test_long_files_take_linear_time():
    words = random_words(np.random.default_rng(0), 60_000)
    assert len(read_srt(srt_text(words))) > 1000


def test_formats_by_name():
    assert set(ENDINGS) == set(FORMATS)
    for name, ending in ENDINGS.items():
        assert format_named(None, f"folder.x/file{ending}") == name
        assert format_named(name, "x.ctm") == name
    assert format_named(None, "x.textgrid") == "textgrid"
    assert format_named(None) == format_named(None, "hyp") == "text"
    with pytest.raises(OptionError, match="format='docx', expected one of 'text'"):
        format_named("docx")


def test_subtitle_options():
    write = result_writer("srt", subtitles=SubtitleOptions(pause_s=0.1))
    assert len(read_srt(write("u", [timed(WORDS)]))) == 3
    for wrong in ({"max_chars": 0}, {"max_lines": 0}, {"max_s": 0}, {"pause_s": -1}):
        with pytest.raises(OptionError, match="expected"):
            SubtitleOptions(**wrong)


def write_all(path, format, count=2):
    write = result_writer(format)
    with open_results(path, format, write) as results:
        for i in range(count):
            results.put(f"u{i}", [timed(WORDS, WORDS)])


def test_a_folder_of_one_file_each(tmp_path):
    for format, ending in (("srt", ".srt"), ("vtt", ".vtt"), ("textgrid", ".TextGrid")):
        write_all(tmp_path / format, format)
        names = sorted(path.name for path in (tmp_path / format).iterdir())
        assert names == [f"u0{ending}", f"u1{ending}"]
        write_all(tmp_path / f"one{ending}", format, count=1)
        assert (tmp_path / f"one{ending}").read_text() == (
            tmp_path / format / f"u0{ending}"
        ).read_text()
        with pytest.raises(OptionError, match="several utterances for one"):
            write_all(tmp_path / f"two{ending}", format)
        assert not (tmp_path / f"two{ending}").exists()
    with pytest.raises(OptionError, match="for one srt file, standard output"):
        write_all(None, "srt")
    with open_results(tmp_path / "srt", "srt", result_writer("srt")) as results:
        with pytest.raises(FormatError, match="'a/b' for a file in"):
            results.put("a/b", [timed(WORDS)])
    with pytest.raises(FormatError, match="cannot write"):
        write_all(tmp_path / "no" / "where", "srt")
