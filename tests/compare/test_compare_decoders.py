"""Greedy decoding and saved language models in `wfstdec compare` and `wfstdec tune`.

What they say of a decoder is what `wfstdec decode` gives, scored by other means.
"""

import itertools
import shlex

import pytest
from cli_files import wfstdec
from noisy_files import BARE, SPEECH, TRIE, decoded, word_errors, write_noisy

from wfstdec import GreedyOptions, read_tokens
from wfstdec import compare as library
from wfstdec.cli.main import main
from wfstdec.compare import load_comparison
from wfstdec.compare.running import fingerprint
from wfstdec.errors import OptionError


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_noisy(tmp_path_factory.mktemp("noisy"))


def compare(folder, *more):
    given = ["--repeats", "1", "--quiet", "--json", "c.json"]
    assert wfstdec(folder, "compare", *SPEECH, *given, *more) == 0
    return load_comparison(folder / "c.json")


def tune(folder, capsys, *more):
    assert wfstdec(folder, "tune", *SPEECH, *more) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "%WER" in line]
    [best] = [i for i, line in enumerate(lines) if line.startswith("best of")]
    return lines[:best], lines[best]


def errors_by_name(comparison):
    return {
        (one.series, one.label): one.errors.total
        for one in comparison.points
        if one.search != "trie"
    }


def test_greedy_points_are_what_decode_gives(files):
    lm = ["--lm", str(files / "pieces")]
    grid = ["--greedy", "lm_scale=0.3,2", "blank-penalty=0,0.5"]
    comparison = compare(files, *BARE, *lm, "--trie", "beam_size=9", *grid)
    expected = {}
    for scale, penalty in itertools.product((0.3, 2), (0, 0.5)):
        name = f"lm_scale {scale:g}, blank_penalty {penalty:g}"
        flags = ["--lm-scale", str(scale), "--blank-penalty", str(penalty)]
        found = decoded(files, "--decoder", "greedy", *BARE, *lm, *flags)
        expected["greedy", name] = word_errors(files, found)
    assert errors_by_name(comparison) == expected
    assert len(set(expected.values())) > 2
    for one in comparison.points:
        assert one.search_errors is None  # one width, or none
        assert one.unfinished is not None and one.rtfx > 0
    facts = comparison.searches["greedy"]
    assert facts.options["acoustic_scale"] == 1.0
    assert facts.inputs == {
        "tokens": fingerprint(files / "tokens.txt"),
        "lm": fingerprint(files / "pieces"),
    }
    assert facts.inputs == comparison.searches["trie"].inputs
    assert facts.load_s > 0


@pytest.mark.parametrize("tokens", [BARE, ["--separator", "<wb>"]])
def test_beside_a_lexicon_or_a_graph_alone_greedy_has_no_words_to_go_by(files, tokens):
    """With a lexicon the model is over words; the graph has tokens too."""
    more = ["--lexicon", "lexicon.txt", "--lm", "lm.arpa", "--unk-cost", "9"]
    given = [*tokens, *(more if tokens is BARE else []), "--trie", "beam_size=9"]
    graph = ["--graph", "graph.npz", "--wfst", "beam=9"]
    comparison = compare(files, *graph, *given, "--greedy")
    plain = word_errors(files, decoded(files, "--decoder", "greedy", *BARE))
    errors = errors_by_name(comparison)
    assert errors["greedy", "only setting"] == plain
    assert "lm" not in comparison.searches["greedy"].inputs
    assert errors["WFST", "beam 9"] < plain


def test_greedy_with_a_lexicon_of_phones_is_refused(files, capsys):
    (files / "phones.txt").write_text("one\ta b\ntwo\tc a b\nc\tc\n")
    given = ["--tokens", "tokens.txt", "--lexicon", "phones.txt", "--greedy"]
    assert wfstdec(files, "compare", *SPEECH, *given) == 1
    expected = "--greedy with a lexicon of phones: 1 of 3 entries spell their word"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("given", [TRIE, BARE])
def test_open_words_are_compared_and_tuned(files, capsys, given):
    """With a lexicon and without one, where words come from the costs alone."""
    more = ["--lm", "lm.arpa", "--unk-cost", "5", "--open-vocabulary", "-9", "0"]
    comparison = compare(files, *given, *more, "--trie", "beam_size=64")
    flags = ["--decoder", "trie", "--beam-size", "64"]
    found = decoded(files, *flags, *given, *more)
    [point] = [one for one in comparison.points if one.search == "trie"]
    assert point.errors.total == word_errors(files, found)
    known = {"ab", "cab", "c", "rare"}
    assert any(word not in known for words in found.values() for word in words)
    inputs = comparison.searches["trie"].inputs
    assert inputs["open_vocabulary"].startswith("OpenVocabulary(word_cost=-9.0")
    capsys.readouterr()
    one = ["--trie", "beam_size=64", "--max-trials", "2"]
    _, best = tune(files, capsys, *given, *more, *one)
    assert "lm_scale" in best and "word_insertion" in best


def test_without_a_graph_the_wfst_is_made_of_the_files_of_the_trie(files, capsys):
    more = ["--lm", "lm.arpa", "--trie", "beam_size=9", "--boost", "a.txt"]
    (files / "a.txt").write_text("cab\t4\n")
    wfst = ["--wfst", "beam=9", "max_active=2,none"]
    made = compare(files, *TRIE, *more, *wfst)
    assert made.searches.keys() == {"WFST", "trie"}
    graph = compare(files, "--graph", "graph.npz", *TRIE, *more, *wfst)
    assert errors_by_name(made) == errors_by_name(graph)
    capsys.readouterr()
    tuned = [*TRIE, *more[:2], *wfst[:2], "--max-trials", "2"]
    assert wfstdec(files, "tune", *SPEECH, *tuned) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert "--lexicon" in line and "--graph" not in line
    assert main(shlex.split(line)[1:]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 24


def test_all_searches_get_the_values_of_flags(files):
    given = ["--graph", "graph.npz", *TRIE, "--lm", "lm.arpa", "--greedy"]
    given += ["--lm-scale", "0.7", "--word-insertion", "0.2", "--frame-shift", "0.5"]
    given += ["--wfst", "beam=9", "--trie", "beam_size=9", "--json", "c.json"]
    given += ["--utterances", "5", "--repeats", "2", "--quiet"]
    assert wfstdec(files, "compare", *SPEECH, *given) == 0
    comparison = load_comparison(files / "c.json")
    facts = comparison.facts
    assert (facts["utterances"], facts["repeats"]) == (5, 2)
    for one in comparison.points:
        assert len(one.cpu_s) == 2 and one.audio_s == facts["audio_s"]
        options = comparison.searches[one.search].options
        assert options["lm_scale"] == 0.7
        assert options.get("word_insertion", 0.2) == 0.2
    speech = library.read_speech(files / "x.npz", files / "ref.txt", limit=5)
    assert facts["audio_s"] == sum(map(len, speech.logprobs.values())) * 0.5


def test_a_search_makes_what_the_decoder_is(files):
    """From objects as from files, with a blank by name and costs for the unknown."""
    tokens = read_tokens(files / "tokens.txt")
    for one in (tokens, files / "tokens.txt"):
        models = library.Models(
            tokens=one,
            lm=files / "pieces.arpa",
            blank="<blank>",
            unk_cost=3.0,
            separator="<wb>",
            frame_shift_s=0.5,
        )
        [search] = models.greedy_searches(GreedyOptions(lm_scale=0.7), {})
        decoder = search.make(search.base)
        assert decoder.threads == 1 and decoder.frame_shift_s == 0.5
        assert decoder.options.lm_scale == 0.7 and decoder.tokens == tokens
    with pytest.raises(OptionError, match="lm_scale=-1"):
        models.greedy_searches(GreedyOptions(), {"lm_scale": [1, -1]})


def test_fingerprints_of_folders_say_what_is_in_them(tmp_path):
    found = set()
    for name, text in (("a", "x"), ("a", "y"), ("b", "y")):
        folder = tmp_path / f"{name}{text}"
        folder.mkdir()
        (folder / name).write_text(text)
        assert fingerprint(folder) == fingerprint(folder)
        found.add(fingerprint(folder))
    assert len(found) == 3


GRAPH = ["--graph", "graph.npz"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "neither --graph nor --tokens, expected one"),
        ([*GRAPH, "--plot", "c.pdf"], "plot 'c.pdf', expected .png"),
        ([*GRAPH, "--wfst", "beams=1"], "grid 'beams=1', expected one"),
        ([*GRAPH, "--utterances", "2", "--ref", "lexicon.txt"], "no utterance"),
        ([*GRAPH, "--oracle", "0"], "oracle=0, expected 1 or more"),
        ([*GRAPH, "--oracle", "-1"], "oracle=-1, expected 1 or more"),
        (["--greedy"], "neither tokens nor a graph, expected a token table"),
        (["--greedy", "beam=3", *BARE], "grid 'beam=3', expected one of acoustic_sca"),
        ([*BARE, "--lm", "words", "--greedy"], "a language model over 4 words, expect"),
        ([*BARE, "--lm", "no.lm"], "no.lm: cannot read: No such file"),
        (["--boost", "a.txt", "a.txt"], "two boost lists called 'a'"),
        (["--boost", "bad.txt"], "bad.txt:1: the bonus of 'ab c' is 'three', expected"),
        (["--phrase-unit", "token"], "--phrase-unit without --boost, expected both"),
        ([*BARE, "--boost", "a.txt", "--phrase-unit", "word"], "unit='word', expected"),
    ],
)
def test_what_cannot_be_compared_is_one_line(files, capsys, given, message):
    if "--plot" in given:
        pytest.importorskip("matplotlib")
    (files / "a.txt").write_text("cab\t4\n")
    (files / "bad.txt").write_text("ab c\tthree\n")
    named = [str(files / one) if one == "words" else one for one in given]
    assert wfstdec(files, "compare", *SPEECH, *named) == 1
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("wfstdec compare: ") and message in line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--wfst", "beam=8"], "nothing given, expected a graph, or tokens, lexi"),
        (["--trie", "beam_size=8"], "the trie decoder without tokens, expected a"),
        (["--trie", "beam_size=8,9", *TRIE], "several settings to tune, expected one"),
        (["--greedy"], "neither tokens nor a graph, expected a token table"),
        (["--greedy", *TRIE], "--greedy with --lexicon, expected tokens alone"),
        (["--greedy", "lm_scale=1,2", *BARE], "several settings to tune, expected one"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(files, capsys, given, message):
    assert wfstdec(files, "tune", *SPEECH, *given) == 1
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_greedy_is_tuned_by_its_blank_penalty(files, capsys):
    lm = ["--lm", str(files / "pieces")]
    ranges = ["--lm-scale-range", "0", "1", "--insertion-range", "-1", "0.5"]
    given = ["--greedy", *BARE, *lm, *ranges, "--max-trials", "26"]
    trials, best = tune(files, capsys, *given)
    scales, penalties = (0, 0.25, 0.5, 0.75, 1), (-1, -0.625, -0.25, 0.125, 0.5)
    expected = []
    for scale, penalty in [(1, 0), *itertools.product(scales, penalties)]:
        flags = ["--lm-scale", str(scale), "--blank-penalty", str(penalty)]
        found = decoded(files, "--decoder", "greedy", *BARE, *lm, *flags)
        wrong = word_errors(files, found)
        expected.append((wrong, f"lm_scale {scale:g}, blank_penalty {penalty:g}: "))
    for (wrong, name), trial in zip(expected, trials, strict=True):
        assert trial.startswith(name) and trial.endswith(f" ({wrong} errors)")
    least = min(wrong for wrong, _ in expected)
    assert best.startswith("best of 26: ") and f" ({least} errors)" in best


def test_without_a_model_there_is_no_scale_to_tune(files, capsys):
    for which, name in (("--greedy", "blank_penalty"), ("--trie", "token_insertion")):
        trials, _ = tune(files, capsys, which, *BARE, "--max-trials", "5")
        assert [trial.split(": ")[0] for trial in trials] == [
            f"{name} {value}"
            for value in (0, -4, -2, 2, 4)  # the default first
        ]


def test_a_trie_is_tuned_with_its_options_and_a_saved_model(files, capsys):
    given = ["--trie", "beam_size=2", "merge=sum", "--max-trials", "3", *TRIE]
    saved, _ = tune(files, capsys, *given, "--lm", str(files / "words"))
    plain, _ = tune(files, capsys, *given, "--lm", "lm.arpa")
    assert saved == plain
    flags = ["--decoder", "trie", *TRIE, "--lm", str(files / "words")]
    flags += ["--lm-scale", "0.2", "--word-insertion=-4"]
    narrow = decoded(files, *flags, "--beam-size", "2", "--merge", "sum")
    assert saved[1].endswith(f"({word_errors(files, narrow)} errors)")
    assert word_errors(files, decoded(files, *flags)) != word_errors(files, narrow)
