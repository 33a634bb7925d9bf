"""`wfstdec compare` and `wfstdec tune`, in this process, on small real files."""

import sys

import numpy as np
import pytest
from cli_files import ARPA, LEXICON, SENTENCES, TOKENS, build, logprobs_of, wfstdec

from wfstdec.compare import load_comparison

TRIE = ["--tokens", "tokens.txt", "--lexicon", "lexicon.txt", "--lm", "lm.arpa"]
TRIE += ["--separator", "<wb>"]
SPEECH = ["--logprobs", "x.npz", "--ref", "ref.txt"]


@pytest.fixture
def files(tmp_path):
    """A folder with all that the commands read; `rare` is never said."""
    (tmp_path / "tokens.txt").write_text("".join(f"{t}\n" for t in TOKENS))
    (tmp_path / "lexicon.txt").write_text(LEXICON)
    (tmp_path / "lm.arpa").write_text(ARPA)
    (tmp_path / "names.txt").write_text("cab\t4\n")
    arrays = {utt: logprobs_of(text) for utt, text in SENTENCES.items()}
    np.savez(tmp_path / "x.npz", **arrays)
    (tmp_path / "ref.txt").write_text("utt2 ab c\nutt1 cab\nutt3 ab\n")
    build(tmp_path, "--quiet")
    return tmp_path


def compare(folder, *more):
    return wfstdec(folder, "compare", *SPEECH, "--repeats", "1", *more)


def test_both_decoders_to_a_table_a_file_and_a_plot(files, capsys):
    pytest.importorskip("matplotlib")
    given = ["--graph", "graph.npz", *TRIE, "--wfst", "beam=5,inf", "max_active=none"]
    given += ["--trie", "beam_size=1,50", "--no-peers", "--boost", "names.txt"]
    given += ["--json", "c.json", "--plot", "c.svg", "--word-insertion", "0.5"]
    assert compare(files, *given) == 0
    out, err = capsys.readouterr()
    comparison = load_comparison(files / "c.json")
    series = [(one.series, one.label) for one in comparison.points]
    assert series == [
        ("WFST", "beam 5"), ("WFST", "beam inf"),
        ("WFST + names", "beam 5"), ("WFST + names", "beam inf"),
        ("trie", "beam_size 1"), ("trie", "beam_size 50"),
        ("trie + names", "beam_size 1"), ("trie + names", "beam_size 50"),
    ]  # fmt: skip
    for one in comparison.points:
        assert one.series in out and one.label in out
    widest = comparison.points[1], comparison.points[5]
    assert [one.wer for one in widest] == [25.0, 25.0]  # "ab" of utt3 is heard as "c"
    assert all(one.phrases.f_score == 1.0 for one in widest)  # "cab", of the boosts
    assert comparison.searches["WFST"].options["word_insertion"] == 0.5
    assert comparison.searches["trie"].options["word_insertion"] == 0.5
    inputs = comparison.searches["trie"].inputs
    assert inputs.keys() == {"tokens", "lexicon", "lm"}
    assert (files / "c.svg").read_text().count("beam_size 50") == 2
    assert "WFST, beam 5: %WER 25.00, RTFx " in err


def test_phrases_of_a_file_and_peers_that_are_installed(files, capsys):
    pytest.importorskip("kaldi_decoder")
    (files / "said.txt").write_text("ab c\nab\n")
    given = ["--graph", "graph.npz", "--wfst", "beam=9", "--phrases", "said.txt"]
    assert compare(files, *given, "--json", "c.json") == 0
    comparison = load_comparison(files / "c.json")
    assert any(one.search.startswith("kaldi-decoder") for one in comparison.points)
    assert "without the peer pyctcdecode" in capsys.readouterr().err
    [first, *_] = comparison.points
    assert (first.phrases.hits, first.phrases.in_references) == (2, 3)


def test_a_trie_without_a_lexicon_decodes_tokens(files, capsys):
    tokens = ["--tokens", "tokens.txt", "--separator", "<wb>", "--no-peers"]
    (files / "ref.txt").write_text("utt2 ab c\nutt1 cab\nutt3 c\n")
    assert compare(files, *tokens, "--trie", "beam_size=20", "--quiet") == 0
    assert " 0.00 " in capsys.readouterr().out


@pytest.mark.parametrize(
    "given, message",
    [
        ([], "neither --graph nor --tokens, expected one"),
        (["--graph", "graph.npz", "--plot", "c.pdf"], "plot 'c.pdf', expected .png"),
        (["--graph", "graph.npz", "--wfst", "beams=1"], "grid 'beams=1', expected one"),
        (["--boost", "names.txt", "names.txt"], "two boost lists called 'names'"),
        (
            ["--graph", "graph.npz", "--utterances", "2", "--ref", "lexicon.txt"],
            "no utterance",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_line(files, capsys, given, message):
    if "--plot" in given:
        pytest.importorskip("matplotlib")
    assert compare(files, *given, "--no-peers") == 1
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("wfstdec compare: ") and message in line


def test_a_plot_without_matplotlib_is_refused_before_anything_runs(
    files, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert compare(files, "--graph", "no.npz", "--plot", "c.png") == 1
    assert "pip install matplotlib" in capsys.readouterr().err


@pytest.mark.parametrize(
    "which",
    [["--wfst", "beam=20", "--graph", "graph.npz"], ["--trie", "beam_size=50", *TRIE]],
)
def test_tuning_either_decoder(files, capsys, which):
    assert wfstdec(files, "tune", *SPEECH, *which, "--max-trials", "30") == 0
    *trials, best, plain = [
        line for line in capsys.readouterr().out.splitlines() if "%WER" in line
    ]
    assert len(trials) <= 30
    assert trials[0].startswith("lm_scale 1, word_insertion 0: %WER ")
    assert trials[1].startswith("lm_scale 0.2, word_insertion -4: %WER ")
    assert plain == f"without tuning: {trials[0]}"
    shown = best.removeprefix(f"best of {len(trials)}: ")
    assert shown in trials
    wers = [float(trial.split("%WER ")[1].split()[0]) for trial in trials]
    assert float(shown.split("%WER ")[1].split()[0]) == min(wers)


def test_a_graph_alone_is_tuned_with_the_wfst(files, capsys):
    more = ["--max-trials", "1"]
    assert wfstdec(files, "tune", *SPEECH, "--graph", "graph.npz", *more) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("wfstdec decode --graph ") and "graph.npz" in last
    assert wfstdec(files, "tune", *SPEECH, *more) == 1
    assert "no --graph and none of --wfst, --trie" in capsys.readouterr().err


def test_tuning_says_when_the_best_is_on_the_border_or_there_was_no_time(files, capsys):
    given = ["--wfst", "beam=20", "--graph", "graph.npz", "--quiet"]
    ranges = ["--lm-scale-range", "0.5", "1", "--insertion-range", "60", "80"]
    assert wfstdec(files, "tune", *SPEECH, *given, *ranges, "--max-trials", "26") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("best of 26: ")
    assert "word_insertion 60 is the lower end of its range: look beyond it" in lines
    assert lines[-3] == "cut short after 26 trials: better ones may be near"


def test_without_a_lexicon_token_insertion_is_tuned(files, capsys):
    given = ["--trie", "--tokens", "tokens.txt", "--separator", "<wb>"]
    assert wfstdec(files, "tune", *SPEECH, *given, "--max-trials", "5") == 0
    assert "token_insertion -4" in capsys.readouterr().out


@pytest.mark.parametrize(
    "given, message",
    [
        (["--wfst", "beam=8"], "the WFST decoder without a graph, expected one"),
        (["--trie", "beam_size=8"], "the trie decoder without tokens, expected a"),
        (["--trie", "beam_size=8,9", *TRIE], "several settings to tune, expected one"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(files, capsys, given, message):
    assert wfstdec(files, "tune", *SPEECH, *given) == 1
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_the_best_of_what_was_kept(files, capsys):
    """The figures of a list and a lattice are those of `decode` and `score`."""
    given = ["--graph", "graph.npz", *TRIE, "--wfst", "beam=8", "--no-peers"]
    given += ["--trie", "beam=8", "merge=max,sum", "--json", "c.json", "--oracle", "3"]
    assert compare(files, *given) == 0
    out, _ = capsys.readouterr()
    assert "best of list %" in out and "WER of the best of 3 texts" in out
    wfst, trie, summed = load_comparison(files / "c.json").points
    assert summed.kept is None
    trie_flags = ["--decoder", "trie", *TRIE]
    for point, flags in ((wfst, ["--graph", "graph.npz"]), (trie, trie_flags)):
        assert point.kept.lattice_wer <= point.kept.list_wer <= point.wer
        decoded = ["decode", *flags, "--logprobs", "x.npz", "--beam", "8", "--nbest"]
        decoded += ["3", "--format", "jsonl", "--lattices", "x.lat"]
        assert wfstdec(files, *decoded, "--output", "x.jsonl") == 0
        scored = ["score", "--ref", "ref.txt", "--hyp", "x.hyp", "--lattices", "x.lat"]
        decoded = ["decode", *flags, "--logprobs", "x.npz", "--beam", "8"]
        assert wfstdec(files, *decoded, "--output", "x.hyp") == 0
        capsys.readouterr()
        assert wfstdec(files, *scored, "--nbest-lists", "x.jsonl") == 0
        told, _ = capsys.readouterr()
        lists, lattices = (line for line in told.splitlines() if "best in" in line)
        assert lists.startswith(f"%WER {point.kept.list_wer:.2f} [")
        assert lattices.startswith(f"%WER {point.kept.lattice_wer:.2f} [")


@pytest.mark.parametrize("given", ["0", "-1"])
def test_no_texts_to_look_at(files, capsys, given):
    assert compare(files, "--graph", "graph.npz", "--no-peers", "--oracle", given) == 1
    assert f"oracle={given}, expected 1 or more" in capsys.readouterr().err
