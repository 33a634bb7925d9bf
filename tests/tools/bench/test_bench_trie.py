"""The benchmark of the trie decoder: no speed without right answers."""

import json
from pathlib import Path

import pytest
from tiny_sets import write_sets

from tools.bench import contestants, trie, trie_checks
from tools.bench.cases import Case, Inputs, make_cases


@pytest.fixture
def bench(on_tiny_sets, monkeypatch):
    """A function that runs the tool with few settings, and these peers."""
    monkeypatch.setattr(trie, "CHECKED", trie.CHECKED[:2])
    every = contestants.TRIE_WORDS
    few = [*every[:2], *every[8:10], every[-1]]
    monkeypatch.setattr(contestants, "TRIE_WORDS", few)
    fixed = "--cases dev:tiny --repeats 2 --peers"
    return lambda *peers: on_tiny_sets(trie, fixed, *peers)


@pytest.fixture
def case(tmp_path):
    """The tiny case, as the tool makes it."""
    write_sets(tmp_path)
    inputs = Inputs(tmp_path, tmp_path / "cache")
    return next(make_cases(["dev:tiny"], inputs))


@pytest.mark.share
def test_a_run_checks_then_times(bench, capsys):
    status, report = bench()
    assert status == 0 and report["faults"] == 0
    decoders = [row["decoder"] for row in report["rows"]]
    assert decoders == ["trie"] * 5 + ["WFST"] * 5
    for row in report["rows"]:
        assert len(row["cpu_s"]) == 2
        best = row["audio_s"] / min(row["cpu_s"])
        assert row["rtfx"] == pytest.approx(best, rel=0.05)
        assert row["gap"] >= 0 and row["sayable"] == 6
    widest = [row for row in report["rows"] if row["setting"]["beam"] >= 17]
    assert [row["gap"] for row in widest] == [0] * len(widest)
    output = capsys.readouterr().out
    assert "WER at the widest beam" in output
    assert str(Path.home()) not in json.dumps(report)


@pytest.mark.parametrize("wrong", ["backend", "language model", "alignment"])
@pytest.mark.share
def test_no_speed_where_answers_are_wrong(bench, monkeypatch, capsys, wrong):
    if wrong == "backend":
        make = Case.trie_decoder

        def narrow(case, options, threads=1, backend="cpu"):
            decoder = make(case, options, threads, backend)
            return decoder if backend == "cpu" else decoder.with_options(lm_scale=0.7)

        monkeypatch.setattr(Case, "trie_decoder", narrow)
    elif wrong == "language model":
        score = trie_checks.NgramScorer.cost
        wrong_cost = lambda self, words: 1.001 * score(self, words)  # noqa: E731
        monkeypatch.setattr(trie_checks.NgramScorer, "cost", wrong_cost)
    else:
        monkeypatch.setattr(trie_checks.TextCosts, "cost", lambda *given: 1e4)
    status, report = bench()
    assert status == 1 and report["faults"] > 0
    assert not any("cpu_s" in row for row in report["rows"])
    output = capsys.readouterr().out
    assert "ANSWERS ARE WRONG" in output and "RTFx  median" not in output


@pytest.mark.peers
@pytest.mark.share
def test_peers_take_part(bench, capsys):
    pytest.importorskip("flashlight.lib.text.decoder")
    status, report = bench("flashlight", "pyctcdecode")
    assert status == 0
    assert any(row["decoder"].startswith("flashlight-text") for row in report["rows"])
    output = capsys.readouterr().out
    assert "flashlight-text" in output.split("RTFx: ")[1]
