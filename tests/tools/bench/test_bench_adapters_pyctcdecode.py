"""The benchmark of pyctcdecode's calls: no speed without the same answers."""

import json
from pathlib import Path

import pytest
from arpa_texts import arpa_of
from prefix_cases import PEER

from tools.bench import adapters_pyctcdecode as bench
from wfstdec import read_arpa

pytestmark = pytest.mark.share


@pytest.fixture
def run(on_tiny_sets):
    """A function that runs the tool."""
    fixed = "--cases dev:tiny dev:none --repeats 2"
    return lambda *given: on_tiny_sets(bench, fixed, *given)


@PEER
def test_a_run_checks_then_times(run, capsys):
    status, report = run("--utterances", "3")
    assert status == 0 and report["faults"] == 0
    found = {(row["case"], row["call"], row["hotwords"] > 0) for row in report["rows"]}
    assert len(found) == len(report["rows"]) == 8
    for row in report["rows"]:
        assert row["same"] == row["utterances"] == 3
        assert len(row["cpu_s"]) == len(row["peer_cpu_s"]) == 2
    assert str(Path.home()) not in json.dumps(report)
    assert "same" in capsys.readouterr().out


@PEER
def test_answers_that_differ_are_not_timed(run, monkeypatch, capsys):
    monkeypatch.setattr(bench, "text_of", lambda answer: f"{answer} {next(numbers)}")
    numbers = iter(range(10_000))
    monkeypatch.setattr(bench, "SAME_SCORE", -1.0)
    status, report = run("--utterances", "2", "--calls", "decode")
    assert status == 1 and report["faults"] == 8
    assert not any("ratio" in row for row in report["rows"])
    assert "ANSWERS ARE WRONG" in capsys.readouterr().out


def test_words_are_spelled_by_their_phones(tmp_path):
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("two\tt u\ntoo\tt u\ntoo\tt o\nx\tk s\nodd\tq\n", "utf-8")
    spelled = bench.spelled_words(lexicon, ["t", "u", "o", "k", "s"], None)
    assert spelled == {"two": "tu", "too": "tu", "x": "ks"}
    arpa = tmp_path / "lm.arpa"
    words = "-99 <s> -0.5; -1 </s>; -1.5 two -0.25; -1.25 too -0.125; -2 x 0; -3 none"
    arpa.write_text(arpa_of(words, "-0.5 <s> two; -0.25 <s> too; -0.75 too x"))
    out = tmp_path / "spelled.arpa"
    assert bench.spelled_arpa(arpa, spelled, out) == ["ks", "tu"]
    model = read_arpa(out)
    assert set(model.words) == {"<s>", "</s>", "tu", "ks"}
    assert [len(table) for table in model.ngrams] == [4, 2]
    assert model.ngrams[1].backoff.tolist() == [0, 0]
