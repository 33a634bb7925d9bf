"""Texts that do not pair, and how sure a WER is: commands on files, as users run them.

A reference in another case, ids with an ending, words that cannot be spelt, and what
`wfstdec tune` says at the end.
"""

import json
import shlex

import numpy as np
import pytest
from cli_files import wfstdec
from noisy_files import BARE, SPEECH, TRIE, decoded, word_errors, write_noisy

from wfstdec.cli.main import main
from wfstdec.compare import load_comparison
from wfstdec.io import read_text, write_text
from wfstdec.lattice import save_lattices
from wfstdec.metrics import score_texts

WFST = ["--graph", "graph.npz", "--wfst", "beam=20"]
FORMS = {
    "upper.txt": lambda name, words: (name, map(str.upper, words)),
    "wav.txt": lambda name, words: (name + ".wav", words),
    "written.txt": lambda name, words: (name, _written(list(words))),
    "half.txt": lambda name, words: (name if int(name[3:]) % 2 else name + "-x", words),
}


def _written(words):
    """A text as people write it: a capital first, a stop behind the last word."""
    words = [words[0].capitalize(), *words[1:]]
    return [*words[:-1], words[-1] + "."]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = write_noisy(tmp_path_factory.mktemp("texts"))
    references = read_text(folder / "ref.txt")
    for file, form in FORMS.items():
        write_text(folder / file, dict(form(*item) for item in references.items()))
    decoded(folder, "--graph", "graph.npz")  # to hyp.txt
    return folder


def score(folder, ref, *more):
    return wfstdec(folder, "score", "--ref", ref, "--hyp", "hyp.txt", *more)


def test_score_of_a_text_in_another_case_is_an_error_that_names_ignore_case(
    files, capsys
):
    assert score(files, "upper.txt") == 1
    out, err = capsys.readouterr()
    assert not out and "with --ignore-case: " in err and "0 % of the words of " in err
    assert score(files, "ref.txt") == 0
    expected = capsys.readouterr().out
    assert score(files, "upper.txt", "--ignore-case") == 0
    assert capsys.readouterr().out == expected
    assert score(files, "written.txt", "--normalize") == 0
    assert capsys.readouterr().out == expected


def test_score_of_a_text_in_part_written_otherwise_is_a_warning(files, capsys):
    assert score(files, "written.txt") == 0
    out, err = capsys.readouterr()
    assert out.startswith("%WER ")
    assert err.startswith("warning: ") and "--normalize" in err


def test_score_of_other_ids_is_an_error_that_says_what_they_have(files, capsys):
    assert score(files, "wav.txt") == 1
    out, err = capsys.readouterr()
    assert not out
    assert "like 'utt0.wav', those of --hyp look like 'utt0'" in err
    assert "'utt0.wav' of --ref seems to be 'utt0' of --hyp" in err
    assert score(files, "half.txt") == 0
    out, err = capsys.readouterr()
    assert "24 utterances, 12 without a hypothesis" in out and "utt0-x utt2-x" in out
    assert "'utt0-x' of --ref seems to be 'utt0' of --hyp" in err


def test_a_correct_text_without_spaces_has_no_character_errors(tmp_path, capsys):
    (tmp_path / "ref.txt").write_text("a 今天天气很好\nb 你好\n", "utf-8")
    (tmp_path / "hyp.txt").write_text("a 今 天 天 气 很 好\nb 你\n", "utf-8")
    both = ["--ref", str(tmp_path / "ref.txt"), "--hyp", str(tmp_path / "hyp.txt")]
    assert main(["score", *both, "--characters"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("%CER 12.50 [ 1 / 8, 0 ins, 1 del, 0 sub ]\n%SER 50.00")
    assert "95 % interval of the CER" in out


def test_score_has_an_interval_of_the_wer(files, capsys):
    assert score(files, "ref.txt") == 0
    found = score_texts(*(read_text(files / f) for f in ("ref.txt", "hyp.txt")))
    line = f"95 % interval of the WER: {found.interval} (bootstrap over 24 utterances)"
    assert line in capsys.readouterr().out
    assert found.interval.low < found.wer < found.interval.high


def test_score_compares_lists_lattices_and_confidences_by_the_same_rules(files, capsys):
    flags = ["decode", "--graph", "graph.npz", "--logprobs", "x.npz", "--nbest", "3"]
    flags += ["--format", "jsonl", "--lattices", "x.lat", "--confidence", "--quiet"]
    assert wfstdec(files, *flags, "--output", "x.jsonl") == 0
    more = ["--nbest-lists", "x.jsonl", "--lattices", "x.lat"]
    more += ["--confidences", "x.jsonl"]
    assert score(files, "ref.txt", *more) == 0
    expected = capsys.readouterr().out
    assert expected.count("best in") == 2 and "NCE" in expected
    for ref, rule in (("upper.txt", "--ignore-case"), ("written.txt", "--normalize")):
        assert score(files, ref, *more, rule) == 0
        assert capsys.readouterr().out == expected


def align(folder, text, *more):
    flags = ["--tokens", "tokens.txt", "--separator", "<wb>", "--logprobs", "x.npz"]
    return wfstdec(
        *(folder, "align", *flags, "--ref", text, "--output", "x.ctm", *more)
    )


def test_align_of_a_text_in_another_case_says_how_many_words_are_known(files, capsys):
    (files / "x.ctm").unlink(missing_ok=True)
    lexicon = ["--lexicon", "lexicon.txt"]
    assert align(files, "upper.txt", *lexicon) == 1
    err = capsys.readouterr().err
    assert "0 % of the words of the texts are words of the lexicon as they are" in err
    assert "100 % with --ignore-case" in err
    assert not (files / "x.ctm").exists()
    assert align(files, "ref.txt", *lexicon, "--quiet") == 0
    expected = (files / "x.ctm").read_text()
    assert align(files, "upper.txt", *lexicon, "--ignore-case", "--quiet") == 0
    found = (files / "x.ctm").read_text()
    assert found != expected and found.lower() == expected  # words as the text has them
    assert align(files, "written.txt", *lexicon, "--normalize", "--quiet") == 0
    found = (files / "x.ctm").read_text().replace(". ", " ")
    assert found.lower() == expected.replace(". ", " ")


def test_align_without_a_lexicon_spells_words_in_the_case_of_the_tokens(files, capsys):
    assert align(files, "ref.txt", "--quiet") == 0
    expected = (files / "x.ctm").read_text()
    assert align(files, "upper.txt", "--quiet") == 1
    assert "in another case: --ignore-case" in capsys.readouterr().err
    assert align(files, "upper.txt", "--ignore-case", "--quiet") == 0
    assert (files / "x.ctm").read_text().lower() == expected


def test_align_of_other_ids_is_an_error_and_no_empty_file(files, capsys):
    (files / "x.ctm").unlink(missing_ok=True)
    assert align(files, "wav.txt", "--lexicon", "lexicon.txt") == 1
    err = capsys.readouterr().err
    assert "'utt0.wav' of the texts seems to be 'utt0' of the log-probs" in err
    assert not (files / "x.ctm").exists()
    assert align(files, "half.txt", "--lexicon", "lexicon.txt") == 0
    err = capsys.readouterr().err
    assert "12 without text: utt0" in err and "'utt0-x' of the texts seems" in err


@pytest.mark.parametrize("command", ["compare", "tune"])
def test_compare_and_tune_refuse_texts_that_do_not_pair(files, capsys, command):
    more = ["--max-trials", "1"] if command == "tune" else []
    given = ["--logprobs", "x.npz", *WFST, *more, "--quiet"]
    assert wfstdec(files, command, *given, "--ref", "wav.txt") == 1
    assert "'utt0.wav' of wav.txt seems to be 'utt0' of" in capsys.readouterr().err
    assert wfstdec(files, command, *given, "--ref", "upper.txt") == 1
    assert "% with --ignore-case" in capsys.readouterr().err
    given.remove("--quiet")
    assert wfstdec(files, command, *given, "--ref", "half.txt") == 0
    err = capsys.readouterr().err
    assert "12 utterances of half.txt are not in x.npz: utt0-x utt2-x" in err


def test_compare_ignores_case_and_keeps_intervals(files, capsys):
    given = ["--repeats", "1", "--json", "c.json", "--oracle", "2"]
    points = []
    for ref, rule in (("ref.txt", []), ("upper.txt", ["--ignore-case"])):
        speech = ["--logprobs", "x.npz", "--ref", ref, *rule]
        assert wfstdec(files, "compare", *speech, *WFST, *given) == 0
        points += load_comparison(files / "c.json").points
    plain, upper = points
    assert (plain.errors, plain.kept) == (upper.errors, upper.kept)
    assert plain.wer_interval.low < plain.wer < plain.wer_interval.high
    assert str(plain.wer_interval) in capsys.readouterr().out
    kept = json.loads((files / "c.json").read_text())
    assert kept["facts"]["words_compared"] == "--ignore-case"
    assert kept["points"][0]["wer_interval"] == list(upper.wer_interval)
    del kept["points"][0]["wer_interval"]  # as older files
    (files / "c.json").write_text(json.dumps(kept))
    assert load_comparison(files / "c.json").points[0].wer_interval is None


def test_plots_of_wer_have_error_bars(files):
    pytest.importorskip("matplotlib")
    from wfstdec.compare.plotting import plot

    given = [*SPEECH, *WFST, "--repeats", "1", "--json", "c.json"]
    assert wfstdec(files, "compare", *given, "--plot", "c.svg") == 0
    comparison = load_comparison(files / "c.json")
    [axes] = plot(comparison).axes
    [bars] = axes.containers
    [[[x, low], [_, high]]] = bars.lines[2][0].get_segments()
    [point] = comparison.points
    assert (x, low, high) == pytest.approx((point.rtfx, *point.wer_interval))
    assert (files / "c.svg").read_text().count("LineCollection") == 1


def test_compare_greedy_with_a_list_without_numbers(files, capsys):
    """Phrases without numbers are worth what `decode --phrases` makes of them."""
    (files / "bare.txt").write_text("cab\nab c\n")
    given = [*SPEECH, *BARE, "--greedy", "--trie", "beam_size=16"]
    given += ["--boost", "bare.txt"]
    more = ["--repeats", "1", "--json", "c.json"]
    assert wfstdec(files, "compare", *given, *more) == 0
    points = {one.series: one for one in load_comparison(files / "c.json").points}
    flags = ["--decoder", "greedy", *BARE, "--phrases", "bare.txt"]
    found = word_errors(files, decoded(files, *flags))
    assert points["greedy + bare"].errors.total == found
    assert found != points["greedy"].errors.total
    trie = ["--decoder", "trie", *BARE, "--beam-size", "16", "--phrases", "bare.txt"]
    assert points["trie + bare"].errors.total == word_errors(
        files, decoded(files, *trie)
    )


def test_compare_greedy_says_that_pronunciations_have_no_place(files, capsys):
    entry = {"text": "cab", "pronunciations": ["c a b b"], "bonus": 3.0}
    (files / "said.jsonl").write_text(json.dumps(entry) + "\n")
    (files / "three.txt").write_text("cab\t3\n")
    totals = []
    for boosts in ("said.jsonl", "three.txt"):
        given = [*SPEECH, *BARE, "--greedy", "--boost", boosts, "--json", "c.json"]
        assert wfstdec(files, "compare", *given, "--repeats", "1") == 0
        totals.append([p.errors for p in load_comparison(files / "c.json").points])
    assert totals[0] == totals[1]
    assert "pronunciations of cab and others in a list are left" in (
        capsys.readouterr().err
    )


def test_build_spell_leaves_out_and_counts_words_that_cannot_be_spelt(files, capsys):
    given = ["--tokens", "tokens.txt", "--separator", "<wb>", "--lm", "lm.arpa"]
    given += ["--output", "spelt.npz", "--spell"]
    (files / "words.txt").write_text("ab\ncab\nc\n42nd\nnaïve\n")
    assert wfstdec(files, "build", *given, "words.txt") == 0
    err = capsys.readouterr().err
    assert "words.txt: 2 of 5 words cannot be spelt with the tokens and are left" in err
    assert "'42nd', 'naïve'" in err
    (files / "good.txt").write_text("ab\ncab\nc\n")
    whole = (files / "spelt.npz").read_bytes()
    assert wfstdec(files, "build", *given, "good.txt") == 0
    assert (files / "spelt.npz").read_bytes() == whole
    assert "cannot be spelt" not in capsys.readouterr().err
    (files / "bad.txt").write_text("AB\nCAB\nC\nc\n7\n")
    assert wfstdec(files, "build", *given, "bad.txt") == 1
    err = capsys.readouterr().err
    assert "4 of 5 words cannot be spelt" in err and "in the other case for 3" in err


def tuned(folder, capsys, *which, boost=()):
    """Run `tune`: its output, and the errors of the command that it ends with."""
    capsys.readouterr()
    speech = ["--max-trials", "8", *SPEECH, *boost]
    assert wfstdec(folder, "tune", *which, *speech, "--quiet") == 0
    *lines, command = capsys.readouterr().out.splitlines()
    program, name, *flags = shlex.split(command)
    assert (program, name) == ("wfstdec", "decode")
    found = decoded(folder, *flags)
    return lines, word_errors(folder, found)


@pytest.mark.parametrize(
    "which",
    [
        ["--graph", "graph.npz", "--wfst", "beam=7", "max_active=none"],
        [*TRIE, "--lm", "lm.arpa", "--trie", "beam_size=9", "merge=sum"],
        [*BARE, "--lm", "pieces.arpa", "--greedy"],
    ],
    ids=["wfst", "trie", "greedy"],
)
def test_tune_ends_with_a_command_that_gives_the_best_wer(files, capsys, which):
    (files / "own.txt").write_text("cab\t2\n")
    lines, errors = tuned(files, capsys, *which, boost=["--boost", "own.txt"])
    assert lines[0].startswith("best of ") and f"({errors} errors)" in lines[0]
    assert lines[-1] == "to decode with it:"
    assert lines[1].startswith("95 % interval: ")
    assert lines[2].startswith("without tuning: lm_scale 1, ")
    assert lines[3].startswith("gain on this data: ") and "chance" in lines[3]


def test_tune_says_the_default_setting_though_it_was_not_tried(files, capsys):
    ranges = ["--lm-scale-range", "0.3", "0.5", "--insertion-range", "1", "2"]
    given = ["--max-trials", "1", *SPEECH, *WFST, "--plot", "t.svg"]
    pytest.importorskip("matplotlib")
    assert wfstdec(files, "tune", *given, *ranges) == 0
    out = capsys.readouterr().out
    plain = word_errors(files, decoded(files, "--graph", "graph.npz", "--beam", "20"))
    setting = "without tuning: lm_scale 1, word_insertion 0"
    assert f"{setting}: " in out and f"({plain} errors)" in out
    assert "cut short after 1 trials: nearby settings may be better" in out
    assert "word_insertion" in (files / "t.svg").read_text()


def test_graphs_of_names_that_a_shell_would_cut_are_quoted(files, capsys):
    (files / "a graph.npz").write_bytes((files / "graph.npz").read_bytes())
    which = ["--graph", str(files / "a graph.npz"), "--wfst", "beam=7"]
    lines, errors = tuned(files, capsys, *which)
    assert f"({errors} errors)" in lines[0]


def test_a_list_that_the_command_cannot_take_as_phrases_is_said(files, capsys):
    for text in ('{"boosts": {"cab": 2.0}}\n', "cab\t2\nab\n"):
        (files / "mixed.txt").write_text(text)
        given = [*BARE, "--greedy", *SPEECH, "--boost", "mixed.txt", "--quiet"]
        assert wfstdec(files, "tune", *given, "--max-trials", "1") == 0
        *lines, command = capsys.readouterr().out.splitlines()
        assert "mixed.txt is left out below: it is no list for" in lines[-2]
        assert "mixed" not in command


@pytest.mark.parametrize("form", ["npz", "ark", "scp"])
@pytest.mark.parametrize(
    "command",
    [
        ["decode", "--decoder", "greedy", *BARE, "--output", "none.txt"],
        ["decode", "--graph", "graph.npz", "--output", "none.txt"],
        ["align", *TRIE, "--ref", "ref.txt", "--output", "none.jsonl"],
        ["compare", "--ref", "ref.txt", "--graph", "graph.npz"],
        ["tune", "--ref", "ref.txt", "--graph", "graph.npz"],
    ],
    ids=lambda command: command[0],
)
def test_input_without_utterances_is_an_error(files, capsys, command, form):
    if form == "npz":
        np.savez(files / "empty.npz")
    else:
        (files / f"empty.{form}").write_bytes(b"")
    assert wfstdec(files, *command, "--logprobs", f"empty.{form}") == 1
    printed = capsys.readouterr().err
    assert f"empty.{form}: no utterance in it, expected at least one" in printed


@pytest.mark.parametrize(
    "command",
    [
        ["rescore", "--output", "none.txt", "--lm", "lm.arpa"],
        ["tune", "--ref", "ref.txt", "--posterior-scale", "1"],
    ],
    ids=lambda command: command[0],
)
def test_lattices_of_no_utterance_are_an_error(files, capsys, command):
    save_lattices(files / "empty.lat", {})
    assert wfstdec(files, *command, "--lattices", "empty.lat") == 1
    assert "no utterance " in capsys.readouterr().err
