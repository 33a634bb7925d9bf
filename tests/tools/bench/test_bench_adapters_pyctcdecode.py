"""The benchmark of pyctcdecode's calls: no speed without the same answers."""

import json
from pathlib import Path

import pytest
from prefix_cases import PEER

from tools.bench import adapters_pyctcdecode as bench

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
