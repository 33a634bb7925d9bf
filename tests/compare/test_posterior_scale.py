"""Tuning the scale of posteriors, and scoring confidences: where the truth is known."""

import json

import numpy as np
import pytest
from text_graphs import text_graph

from wfstdec import WfstDecoder
from wfstdec.cli.main import main
from wfstdec.compare import (
    judge_all,
    plot_reliability,
    score_confidences,
    tune_posterior_scale,
)
from wfstdec.compare.quality import by_speaker, measure
from wfstdec.errors import FormatError, OptionError
from wfstdec.io import read_confidences
from wfstdec.lattice import save_lattices

GRAPH = text_graph("0 1 a A 0\n0 1 b B 0\n1 0")


def drawn(truth, count, seed=0):
    """Lattices of two words, and the right one by posteriors of scale `truth`."""
    rng = np.random.default_rng(seed)
    apart = rng.uniform(0, 6, count)
    frames = [np.array([[-20, 0, -d]], np.float32) for d in apart]
    found = WfstDecoder(GRAPH, backend="cpu", threads=1).decode_lattice(frames)
    right = rng.random(count) < 1 / (1 + np.exp(-truth * apart))
    names = [f"s{i % 6}-{i}" for i in range(count)]
    texts = [("A",) if one else ("B",) for one in right]
    lattices = dict(zip(names, found, strict=True))
    return lattices, dict(zip(names, texts, strict=True))


@pytest.mark.parametrize("truth", [0.25, 0.6, 1.0])
@pytest.mark.share(keep=1)
def test_the_scale_that_things_were_drawn_by_is_found(truth):
    lattices, references = drawn(truth, 1500)
    given, others = by_speaker(lattices)
    assert len(given) == len(others) == 750 and not set(given) & set(others)
    tuning = tune_posterior_scale(judge_all(lattices, references, given))
    assert tuning.best.scale == pytest.approx(truth, rel=0.25)
    assert tuning.best.quality.nce == max(t.quality.nce for t in tuning.trials)
    tested = judge_all(lattices, references, others)
    found = measure(tested, tuning.best.scale)
    assert found.quality.nce > measure(tested, 4 * truth).quality.nce
    for one in found.quality.bins:  # as sure as they are right, within three sigmas
        sigma = np.sqrt(one.confidence * (1 - one.confidence) / one.words)
        assert one.right == pytest.approx(one.confidence, abs=3 * sigma + 0.02)


def test_scales_and_speakers_that_cannot_be():
    lattices, references = drawn(0.5, 20)
    judged = judge_all(lattices, references)
    assert len(tune_posterior_scale(judged, [0.5]).trials) == 1
    with pytest.raises(OptionError, match="expected some above 0"):
        tune_posterior_scale(judged, [0.0, 1.0])
    with pytest.raises(OptionError, match="2 utterances of 1 speaker"):
        by_speaker(["a-1", "a-2"])
    with pytest.raises(FormatError, match="utterance 's0-0' has no reference"):
        judge_all(lattices, {})


def test_by_the_command_line(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    lattices, references = drawn(0.5, 400)
    save_lattices(tmp_path / "x.lat", lattices)
    lines = [f"{name} {' '.join(words)}\n" for name, words in references.items()]
    (tmp_path / "ref.txt").write_text("".join(lines))
    tune = "tune", "--posterior-scale", "--ref", str(tmp_path / "ref.txt")
    files = "--lattices", str(tmp_path / "x.lat")
    drawing = "--reliability", str(tmp_path / "x.svg")
    assert main([*tune, *files, *drawing, "--quiet"]) == 0
    best, tuned, plain = capsys.readouterr().out.splitlines()
    assert best.startswith("best of 14: posterior_scale 0.")
    assert tuned.split(":")[0] == f"on others, {best.split(': ')[1]}"
    assert plain.startswith("on others, posterior_scale 1: NCE ")
    assert "share of words" in (tmp_path / "x.svg").read_text()
    test = "--test-lattices", files[1], "--test-ref", tune[-1]
    assert main([*tune, *files, *test, "--quiet"]) == 0
    assert "(400 words" in capsys.readouterr().out
    for argv, message in (
        (tune, "--posterior-scale without --lattices"),
        ((*tune, *files, *test[:2]), "--test-lattices and --test-ref"),
        (("tune", "--wfst", *tune[2:], *files), "--lattices without --posterior-scale"),
        (("tune", "--wfst", *tune[2:]), "neither --logprobs nor --audio"),
    ):
        assert main([*argv]) == 1
        assert message in capsys.readouterr().err


WORDS = {"x": [("a", 0.9), ("b", 0.2)], "y": [("c", 0.8)]}
LINES = {
    "x.ctm": "x 1 0.000 0.100 a 0.900\nx 1 0.100 0.100 b 0.200\ny 1 0.0 0.1 c 0.8\n",
    "x.jsonl": "".join(
        json.dumps(
            {"id": name, "words": [{"word": w, "confidence": c} for w, c in words]}
        )
        + "\n"
        for name, words in WORDS.items()
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_score_tells_how_good_confidences_are(name, tmp_path, capsys):
    (tmp_path / name).write_text(LINES[name])
    assert read_confidences(tmp_path / name) == WORDS
    (tmp_path / "ref").write_text("x a q\ny c\n")
    (tmp_path / "hyp").write_text("x a b\ny c\n")
    argv = ["score", "--ref", str(tmp_path / "ref"), "--hyp", str(tmp_path / "hyp")]
    assert main([*argv, "--confidences", str(tmp_path / name)]) == 0
    whole = -(2 / 3 * np.log2(2 / 3) + 1 / 3 * np.log2(1 / 3))
    nce = 1 + np.log2([0.9, 0.8, 0.8]).mean() / whole
    line = f"NCE {nce:.3f}, AUC 1.000 (3 words, 66.7 % right)"
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert main([*argv, "--reliability", "x.svg"]) == 1
    assert "--reliability without --confidences" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["x 1 0.0 0.1 a", "x 1 0.0 0.1 a 1.5", '{"id": "x", "words": [{}]}', "{"]
)
def test_lines_without_confidences_are_named(line, tmp_path):
    (tmp_path / "x.ctm").write_text(LINES["x.ctm"] + line)
    with pytest.raises(FormatError, match="x.ctm:4: not a readable .*words with"):
        read_confidences(tmp_path / "x.ctm")


def test_no_words_and_another_ending():
    with pytest.raises(FormatError, match="no words, expected some"):
        score_confidences({"x": ["a"]}, {"y": [("a", 0.5)]})
    pytest.importorskip("matplotlib")
    bins = score_confidences({"x": ["a"], "y": []}, WORDS).bins
    figure = plot_reliability({"some": bins})
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [2, len(bins)]
    with pytest.raises(OptionError, match="expected .png or .svg"):
        plot_reliability({"some": bins}, "x.pdf")
