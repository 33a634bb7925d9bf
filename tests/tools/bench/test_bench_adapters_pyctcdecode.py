"""The benchmark of pyctcdecode's calls: no speed without the same answers."""

import json
from pathlib import Path

import pytest
from prefix_cases import PEER
from tiny_sets import write_sets

from tools.bench import adapters_pyctcdecode as bench
from wfstdec import read_arpa

pytestmark = pytest.mark.share


@pytest.fixture
def run(tmp_path):
    """A function that runs the tool on a tiny set."""
    write_sets(tmp_path)

    def main(*arguments):
        fixed = f"--data {tmp_path} --cache {tmp_path}/cache --cases dev:tiny dev:none"
        output = tmp_path / "figures.json"
        status = bench.main(
            [*fixed.split(), *arguments, "--output", str(output), "--repeats", "2"]
        )
        return status, json.loads(output.read_text())

    return main


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
    arpa.write_text(
        "\\data\\\nngram 1=6\nngram 2=3\n\n\\1-grams:\n-99\t<s>\t-0.5\n-1\t</s>\n"
        "-1.5\ttwo\t-0.25\n-1.25\ttoo\t-0.125\n-2\tx\t0\n-3\tnone\n\n\\2-grams:\n"
        "-0.5\t<s> two\n-0.25\t<s> too\n-0.75\ttoo x\n\n\\end\\\n",
        "utf-8",
    )
    out = tmp_path / "spelled.arpa"
    assert bench.spelled_arpa(arpa, spelled, out) == ["ks", "tu"]
    model = read_arpa(out)
    assert set(model.words) == {"<s>", "</s>", "tu", "ks"}
    assert [len(table) for table in model.ngrams] == [4, 2]
    assert model.ngrams[1].backoff.tolist() == [0, 0]
