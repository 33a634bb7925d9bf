"""`wfstdec compare` and `wfstdec tune`, in this process, on small real files."""

import shlex
import sys

import numpy as np
import pytest
from cli_files import build, wfstdec, write_files
from spoken import SpokenEncoder, spoken, write_wav

from wfstdec.cli.main import main
from wfstdec.compare import encode_speech, load_comparison
from wfstdec.errors import AudioError

TRIE = ["--tokens", "tokens.txt", "--lexicon", "lexicon.txt", "--lm", "lm.arpa"]
TRIE += ["--separator", "<wb>"]
SPEECH = ["--logprobs", "x.npz", "--ref", "ref.txt"]


@pytest.fixture
def files(tmp_path):
    """A folder with all that the commands read; no utterance has `rare`."""
    write_files(tmp_path)
    (tmp_path / "names.txt").write_text("cab\t4\n")
    (tmp_path / "ref.txt").write_text("utt2 ab c\nutt1 cab\nutt3 ab\n")
    build(tmp_path, "--quiet")
    return tmp_path


def compare(folder, *more):
    return wfstdec(folder, "compare", *SPEECH, "--repeats", "1", *more)


def test_both_decoders_to_a_table_a_file_and_a_plot(files, capsys):
    pytest.importorskip("matplotlib")
    given = ["--graph", "graph.npz", *TRIE, "--wfst", "beam=5,inf", "max_active=none"]
    given += ["--trie", "beam_size=1,50", "--boost", "names.txt"]
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
    assert [one.wer for one in widest] == [25.0, 25.0]  # "ab" of utt3 is found as "c"
    assert all(one.phrases.f_score == 1.0 for one in widest)  # "cab", of the boosts
    assert comparison.searches["WFST"].options["word_insertion"] == 0.5
    assert comparison.searches["trie"].options["word_insertion"] == 0.5
    inputs = comparison.searches["trie"].inputs
    assert inputs.keys() == {"tokens", "lexicon", "lm"}
    facts = comparison.facts
    assert {"cpu", "cores", "python", "numpy", "wfstdec"} <= facts["machine"].keys()
    assert facts["date"].count("-") == 2 and facts["utterances"] == 3
    assert facts["speech"] and comparison.searches["WFST"].inputs.keys() == {"graph"}
    assert (files / "c.svg").read_text().count("beam_size 50") == 2
    assert "WFST, beam 5: %WER 25.00, RTFx " in err


def test_phrases_of_a_file(files):
    (files / "said.txt").write_text("ab c\nab\n")
    given = ["--graph", "graph.npz", "--wfst", "beam=9", "--phrases", "said.txt"]
    assert compare(files, *given, "--json", "c.json") == 0
    [first, *_] = load_comparison(files / "c.json").points
    assert (first.phrases.hits, first.phrases.in_references) == (2, 3)


def test_a_plot_without_matplotlib_is_refused_before_anything_runs(
    files, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert compare(files, "--graph", "no.npz", "--plot", "c.png") == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def test_a_graph_alone_is_tuned_with_the_wfst(files, capsys):
    more = ["--max-trials", "1"]
    assert wfstdec(files, "tune", *SPEECH, "--graph", "graph.npz", *more) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("wfstdec decode --graph ") and "graph.npz" in last
    assert wfstdec(files, "tune", *SPEECH, *more) == 1
    assert "no --graph and none of --wfst, --trie" in capsys.readouterr().err


def test_the_best_of_what_was_kept(files, capsys):
    """The figures of a list and a lattice are those of `decode` and `score`."""
    given = ["--graph", "graph.npz", *TRIE, "--wfst", "beam=8"]
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
        scored = ["score", "--ref", "ref.txt", "--hyp", "x.txt", "--lattices", "x.lat"]
        decoded = ["decode", *flags, "--logprobs", "x.npz", "--beam", "8"]
        assert wfstdec(files, *decoded, "--output", "x.txt") == 0
        capsys.readouterr()
        assert wfstdec(files, *scored, "--nbest-lists", "x.jsonl") == 0
        printed, _ = capsys.readouterr()
        lists, lattices = (line for line in printed.splitlines() if "best in" in line)
        assert lists.startswith(f"%WER {point.kept.list_wer:.2f} [")
        assert lattices.startswith(f"%WER {point.kept.lattice_wer:.2f} [")


def test_audio_in_place_of_log_probs(files, capsys, monkeypatch):
    """The log-probs of a CTC model; the command that tune prints transcribes."""
    (files / "in").mkdir()
    for name, words in (("utt1", ["cab"]), ("utt2", ["ab", "c"]), ("utt3", ["ab"])):
        write_wav(files / f"in/{name}.wav", spoken(words))
    monkeypatch.setattr("spoken.encoder", SpokenEncoder(), raising=False)
    audio = ["--audio", f"{files}/in", "--model", "spoken:encoder"]
    ref = ["--ref", "ref.txt"]
    lm = ["--lexicon", "lexicon.txt", "--lm", "lm.arpa", "--separator", "<wb>"]
    given = [*audio, *ref, *lm, "--repeats", "1", "--json", "c.json"]
    assert wfstdec(files, "compare", *given) == 0
    points = load_comparison(files / "c.json").points
    assert {one.series for one in points} == {"WFST", "trie"}
    assert all(one.wer == 0 for one in points)
    capsys.readouterr()
    assert wfstdec(files, "compare", *audio, *ref, *lm, "--transducer") == 1
    wrong = "--transducer with a model of the family 'ctc', expected 'transducer'"
    assert wrong in capsys.readouterr().err
    trials = ["--trie", "beam_size=8", "--max-trials", "3", "--quiet"]
    of_model = ["--tokens", f"{files}/tokens.txt", "--frame-shift", "0.02"]
    assert wfstdec(files, "tune", *audio, *ref, *lm, *trials, *of_model) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("wfstdec transcribe ")
    assert shlex.join(of_model[2:]) in line and "--tokens" in line
    assert main(shlex.split(line)[1:]) == 0
    lines = set(capsys.readouterr().out.splitlines())
    assert lines == {"utt1 cab", "utt2 ab c", "utt3 ab"}


def test_audio_has_its_own_seconds_and_name(files, monkeypatch):
    """Whisper's frames are always of 30 s."""
    (files / "ref.txt").write_text("a cab\nb ab\n")
    encoder = SpokenEncoder()
    recordings = {"a": spoken(["cab"]), "b": spoken(["ab"])}
    monkeypatch.setattr(encoder, "encode", lambda given: [np.zeros((1500, 5))])
    speech = encode_speech(encoder, recordings, files / "ref.txt")
    samples = sum(map(len, recordings.values()))
    assert speech.audio_s == samples / encoder.spec.sample_rate
    monkeypatch.undo()
    recordings["b"] = np.zeros(0, np.float32)
    with pytest.raises(AudioError, match="utterance 'b'"):
        encode_speech(encoder, recordings, files / "ref.txt")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--ref ref.txt", "neither --logprobs nor --audio"),
        ("--ref ref.txt --audio in", "--audio and no --model"),
        ("--ref ref.txt --audio in --model m.json --logprobs x.npz", "and --logprobs"),
        ("--ref ref.txt --logprobs x.npz --language de", "--language without --audio"),
    ],
)
def test_what_is_decoded_is_said_once(files, capsys, given, message):
    assert wfstdec(files, "compare", *given.split(), *TRIE) == 1
    assert message in capsys.readouterr().err
