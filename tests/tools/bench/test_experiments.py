"""The experiments: their word lists, and each of them on a small recipe."""

import gzip
import json
import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli_files import ARPA, recipe_of, write_files

from tools.bench import experiments
from tools.bench.boost import beam_size, list_size, lm, magnitude, weights
from tools.bench.boost.__main__ import COMMANDS
from tools.bench.boost.__main__ import main as boost
from wfstdec import PhraseOptions
from wfstdec.errors import WfstdecError


@pytest.fixture(autouse=True)
def quiet_again():
    """Set back the log levels that the tool's flags set: other tests read logs."""
    loggers = [logging.getLogger(name) for name in ("wfstdec", "wfstdec.compare")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def recipe(tmp_path):
    """The files of a recipe; of its words all but `rare` are said."""
    recipe = recipe_of(write_files(tmp_path))
    text = ARPA.replace("ngram 1=5", "ngram 1=6")
    text = text.replace("-99\t<s>", "-1.7\trare\n-99\t<s>")
    (recipe / "lm.arpa").write_text(text)
    (recipe / "lm.arpa.gz").write_bytes(gzip.compress(text.encode()))
    return recipe


def run(experiment, recipe, *more):
    given = ["--data", str(recipe), "--cache", str(recipe), "--case", "dev:lm"]
    given += ["--repeats", "1", "--output", str(recipe / "run.json"), *more]
    assert experiment.main(given) == 0
    report = json.loads((recipe / "run.json").read_text())
    assert report["tool"] == f"tools.bench.boost.{Path(experiment.__file__).stem}"
    assert report["machine"]["cpu"] and str(recipe) not in json.dumps(report)
    return report["rows"]


def case_of(references, words=(), arpa=None):
    speech = SimpleNamespace(references=references)
    ways = [tuple(word) for word in words]
    lexicon = SimpleNamespace(words=words, pronunciations=ways)
    return SimpleNamespace(speech=speech, lexicon=lexicon, arpa=arpa)


def test_accurate_lists_are_said_and_inaccurate_ones_are_not():
    references = {"u": ("a", "b", "of"), "v": ("c",), "w": ("of",)}
    rare = set("abcdefgh")
    lists = magnitude.word_lists(case_of(references), rare, 3, seed=1)
    assert lists["accurate"] == {"u": ["a", "b"], "v": ["c"], "w": []}
    for utterance, words in lists["inaccurate"].items():
        assert len(set(words)) == 3 and set(words) <= rare
        assert not set(words) & set(references[utterance])
    assert set(lists["inaccurate"]["w"]) == {"a", "b", "c"}  # of others first
    again = magnitude.word_lists(case_of(references), rare, 3, seed=1)
    assert again == lists


def test_lists_of_all_sizes_hold_each_other_and_the_same_keys(recipe):
    references = {"u": ("ab", "c"), "v": ("cab",)}
    case = case_of(references, ("ab", "c", "cab", "rare"), recipe / "lm.arpa")
    assert experiments.rare_words(case, common=4) == ["rare"]
    assert experiments.rare_words(case, common=0) == ["ab", "c", "cab", "rare"]
    said = list_size.said_phrases(case, {"c", "rare"})
    assert said == {"u": ["ab c", "c"], "v": []}
    assert list_size.unsaid_phrases(case, {"c", "rare"}) == ["rare"]
    args = SimpleNamespace(seed=1, common=0, keys=2, sizes=[2, 3, 9], own=False)
    scored, lists = list_size.lists_of(case, args)
    assert len(scored) == 2 and set(scored) <= {"ab", "c", "cab", "ab c"}
    assert list(lists) == [2, 3]
    for utterance in references:
        assert lists[2][utterance] == scored
        assert lists[3][utterance] == [*scored, "rare"]
    assert lists[3]["u"] is lists[3]["v"]  # compiled once
    case.lexicon.pronunciations[3] = ("a", "b")  # as "ab", which is not rare now
    args = SimpleNamespace(seed=1, common=1, keys=2, sizes=[2, 3], own=False)
    assert list(list_size.lists_of(case, args)[1]) == [2]


def test_lists_of_their_own_hold_what_the_utterance_says(recipe):
    references = {"u": ("ab", "c"), "v": ("cab",), "w": ()}
    case = case_of(references, ("ab", "c", "cab", "rare"), recipe / "lm.arpa")
    args = SimpleNamespace(seed=1, common=0, keys=1, sizes=[1, 3], own=True)
    scored, lists = list_size.lists_of(case, args)
    assert sorted(scored) == ["ab", "ab c", "c", "cab"]
    assert lists[1] == {"u": ["ab", "ab c", "c"], "v": ["cab"], "w": ["rare"]}
    assert lists[3] == {"u": ["ab", "ab c", "c"], "v": ["cab", "rare"], "w": ["rare"]}


def test_rare_words_that_sound_like_others():
    words = ("right", "wright", "rite", "u", "you", "you")
    ways = ((1, 2), (1, 2), (1, 2), (3,), (4, 3), (3,))
    case = SimpleNamespace(lexicon=SimpleNamespace(words=words, pronunciations=ways))
    rare = {"wright", "rite", "u"}
    assert experiments.like_others(case, rare) == rare
    assert experiments.like_others(case, rare | {"right"}) == {"u"}
    assert experiments.like_others(SimpleNamespace(lexicon=None), rare) == set()


@pytest.mark.share
def test_magnitudes(recipe):
    more = ["--common", "0", "--magnitudes", "1", "2", "--beams", "9"]
    rows = run(magnitude, recipe, *more)
    kinds = [(row["search"], row["list"], row["magnitude"]) for row in rows]
    lists = [("none", 0.0)] + [
        (kind, m) for kind in ("accurate", "inaccurate") for m in (1.0, 2.0)
    ]
    assert kinds == [(name, *one) for name in ("WFST", "trie") for one in lists]
    assert all(row["wer"] == 0.0 and row["f"] == 1.0 for row in rows[:3])


def test_what_could_not_be_written_is_said_at_once():
    for experiment in (beam_size, list_size, magnitude):
        with pytest.raises(WfstdecError, match="no/run.json: cannot write: no such"):
            experiment.main(["--data", "no", "--output", "no/run.json"])


def test_lists_of_words_need_a_lexicon(recipe):
    case = ["--data", str(recipe), "--cache", str(recipe), "--case", "dev:pieces"]
    with pytest.raises(WfstdecError, match="expected a synthetic set"):
        list_size.main(case)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.share
def test_list_sizes(recipe, own):
    more = ["--common", "0", "--sizes", "2", "3", "--keys", "2", "--own"]
    rows = run(list_size, recipe, *(more if own else more[:-1]))
    assert [(row["list"], row["size"]) for row in rows[:7]] == [
        ("none", 0), ("word", 2), ("unnumbered", 2), ("token", 2),
        ("word", 3), ("unnumbered", 3), ("token", 3),
    ]  # fmt: skip
    assert len(rows) == 14 and rows[0]["compile_s"] is None
    assert rows[1]["compile_s"] >= 0 == rows[0]["wer"]


@pytest.mark.share
def test_magnitudes_of_one_list(recipe):
    more = ["--common", "0", "--magnitudes", "1", "--beams", "9", "--for-all"]
    rows = run(magnitude, recipe, *more)
    kinds = [(row["list"], row["magnitude"]) for row in rows[:3]]
    assert kinds == [("none", 0.0), ("accurate", 1.0), ("inaccurate", 1.0)]


@pytest.mark.share
def test_boosts_and_a_language_model(recipe):
    rows = run(lm, recipe, "--common", "0", "--magnitudes", "1", "--own", "2")
    assert [(row["search"], row["lm"], row["magnitude"]) for row in rows] == [
        (f"{search}, {model}", model, nats)
        for model in ("no LM", "lm")
        for search in ("WFST", "trie")
        for nats in (0.0, 1.0)
    ]
    assert all(row["wer"] == 0.0 and row["f"] == 1.0 for row in rows)


@pytest.mark.share
def test_how_credit_is_spread(recipe):
    more = ["--common", "0", "--magnitudes", "1", "--no-peer", "--others", "1"]
    rows = run(weights, recipe, *more)
    assert [(row["search"], row["magnitude"]) for row in rows] == [
        (f"trie, {spread}", nats)
        for spread in ("words", "totals", "tree", "uniform")
        for nats in (0.0, 1.0)
    ]
    assert all(row["wer"] == 0.0 and row["words"] == 4 for row in rows)


@pytest.mark.parametrize("name", ["totals", "tree", "uniform"])
def test_a_word_of_the_mean_length_is_worth_its_nats(name):
    options = weights.SPREADS[name]
    given = {}

    class Compiler:
        def compile(self, numbers):
            given.update(numbers)

    decoder = SimpleNamespace(phrase_compiler=lambda *_, **__: Compiler())
    assert weights.Spread(options, 3, None)(decoder, None) is None
    weights.Spread(options, 3, None)(decoder, {"abc": 5.0})
    base = 1.0 if options.weights_are_totals else float(options.base(3)[-1])
    assert given["abc"] * base == pytest.approx(5.0)
    assert PhraseOptions(uniform=True).base(3)[-1] == 3.0


def test_hotwords_are_given_to_the_peer():
    asked = []
    decoder = SimpleNamespace(decode=lambda rows, **given: asked.append(given) or "a")
    peer = SimpleNamespace(
        name="peer", decoder=decoder, settings=lambda: [{"beam_width": 25}]
    )
    search = weights.Hotwords(peer, 25)
    [setting] = search.settings
    found = search.prepare(setting)([np.zeros((1, 2))] * 2, [None, {"a": 2.0}])
    assert [one.text for one in found] == ["a", "a"]
    assert asked[0] == setting
    assert asked[1] == setting | {"hotwords": ["a"], "hotword_weight": 2.0}


@pytest.mark.share
def test_beams(recipe):
    more = "--common 0 --beams 5 9 --beam-sizes 4 --merges sum".split()
    rows = run(beam_size, recipe, *more)
    assert [(row["search"], row["list"]) for row in rows] == [
        ("WFST", None), ("WFST", None), ("WFST", "list"), ("WFST", "list"),
        ("trie, merge sum", None), ("trie, merge sum", "list"),
    ]  # fmt: skip
    assert [rows[i]["setting"] for i in (1, 4)] == [{"beam": 9.0}, {"beam_size": 4}]


def test_every_experiment_is_a_command(capsys):
    files = Path(lm.__file__).parent.glob("[a-z]*.py")
    assert {path.stem.replace("_", "-") for path in files} == {*COMMANDS}
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            boost([name, "--help"])
        told = capsys.readouterr().out
        assert ended.value.code == 0 and f"tools.bench.boost {name} [-h]" in told
