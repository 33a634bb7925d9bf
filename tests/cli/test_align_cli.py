"""`wfstdec align`, and the formats of `wfstdec decode`, from files to files."""

import json

import numpy as np
import pytest
from cli_files import build, logprobs_of, wfstdec, write_files
from timed_readers import read_srt, read_textgrid, read_vtt

CTM = """\
utt2 1 0.000 0.100 ab 1.000
utt2 1 0.180 0.040 c 1.000
utt1 1 0.000 0.160 cab 1.000
utt3 1 0.000 0.040 c 1.000
"""


@pytest.fixture
def files(tmp_path):
    write_files(tmp_path)
    (tmp_path / "one.txt").write_text("utt2 ab c\n")
    np.savez(tmp_path / "one.npz", utt2=logprobs_of("a b | c"))
    return tmp_path


def align(folder, *more, text="ref.txt", logprobs="x.npz", lexicon=True):
    given = ["--tokens", "tokens.txt", "--separator", "<wb>", "--ref", text]
    given += ["--lexicon", "lexicon.txt"] if lexicon else []
    return wfstdec(folder, "align", *given, "--logprobs", logprobs, *more)


def test_all_utterances_to_a_ctm_by_its_name(files, capsys):
    assert align(files, "--output", "x.ctm") == 0
    assert (files / "x.ctm").read_text() == CTM
    err = capsys.readouterr().err
    assert "aligned 3 utterances, 0.5 s of audio in" in err and "0 have misfits" in err


def test_json_lines_have_tokens_and_misfits(files, capsys):
    (files / "ref.txt").write_text("utt2 ab cab c\nutt9 ab\n")
    assert align(files, "--output", "x.jsonl") == 0
    [line] = (files / "x.jsonl").read_text().splitlines()
    read = json.loads(line)
    assert read["id"] == "utt2" and read["text"] == "ab cab c" and read["exact"]
    assert [word["position"] for word in read["words"]] == [0, 1, 2]
    assert [t["token"] for t in read["words"][1]["tokens"]] == ["c", "a", "b"]
    assert read["words"][0]["confidence"] == 1.0
    assert read["words"][1]["confidence"] < 0.2
    [misfit] = read["misfits"]
    assert misfit["kind"] == "weak" and misfit["text"] == "cab"
    err = capsys.readouterr().err
    assert "utt2: weak: word 2 'cab', " in err
    assert "2 without text: utt1 utt3" in err
    assert "1 without logprobs: utt9" in err


def test_subtitles_and_textgrids(files):
    one = {"text": "one.txt", "logprobs": "one.npz"}
    assert align(files, "--output", "x.srt", **one) == 0
    assert read_srt((files / "x.srt").read_text()) == [(0, 1000, ["ab c"])]
    more = ["--subtitle-pause", "0.04", "--subtitle-chars", "20"]
    assert align(files, "--output", "x.vtt", *more, **one) == 0
    assert len(read_vtt((files / "x.vtt").read_text())) == 2
    assert align(files, "--output", "x.TextGrid", **one) == 0
    _, tiers = read_textgrid((files / "x.TextGrid").read_text())
    assert [text for *_, text in tiers["words"] if text] == ["ab", "c"]
    assert [text for *_, text in tiers["tokens"] if text] == ["a", "b", "<wb>", "c"]
    folder = str(files / "grids")
    assert align(files, "--output", folder, "--format", "textgrid") == 0
    assert len(list((files / "grids").iterdir())) == 3


def test_decode_writes_the_same_formats(files, capsys):
    build(files, "--quiet")
    given = ["--graph", "graph.npz", "--logprobs", "one.npz", "--quiet", "--output"]
    for name, read in (("x.srt", read_srt), ("x.vtt", read_vtt)):
        assert wfstdec(files, "decode", *given, name) == 0
        assert [lines for *_, lines in read((files / name).read_text())] == [["ab c"]]
    assert wfstdec(files, "decode", *given, "x.TextGrid") == 0
    _, tiers = read_textgrid((files / "x.TextGrid").read_text())
    assert [text for *_, text in tiers["tokens"] if text] == ["a", "b", "<wb>", "c"]
    assert wfstdec(files, "decode", *given, "x.ctm") == 0
    assert (files / "x.ctm").read_text().startswith("utt2 1 0.000 0.")
    capsys.readouterr()
    given[3] = "x.npz"
    assert wfstdec(files, "decode", *given, "y.srt") == 1
    assert "several utterances for one srt file" in capsys.readouterr().err
    assert wfstdec(files, "decode", *given, "y.ctm", "--subtitle-chars", "9") == 1
    assert "--subtitle-chars with format ctm, expected srt or vtt" in (
        capsys.readouterr().err
    )


def test_words_by_spelling_and_costs_of_what_does_not_fit(files, capsys):
    (files / "ref.txt").write_text("utt2 ab bq c\n")
    assert align(files, "--output", "x.ctm", "--unknown", "error") == 1
    message = "utterance 'utt2': the text has 1 words that the lexicon does not have"
    assert message in capsys.readouterr().err
    assert align(files, "--output", "y.ctm") == 0
    assert "any speech: 'bq'" in capsys.readouterr().err
    assert [line.split()[4] for line in (files / "y.ctm").open()] == ["ab", "bq", "c"]
    (files / "ref.txt").write_text("utt2 ab bc c\n")
    more = ["--output", "x.jsonl", "--g2p", "spelling", "--skip-cost", "3", "--exact"]
    assert align(files, *more, "--insert-cost", "3") == 0
    read = json.loads((files / "x.jsonl").read_text().splitlines()[0])
    assert [word["position"] for word in read["words"]] == [0, 2]
    assert [(m["kind"], m["text"]) for m in read["misfits"]] == [("left out", "bc")]
    assert align(files, "--output", "x.ctm", "--quiet", lexicon=False) == 0
    assert "bc" in (files / "x.ctm").read_text()
