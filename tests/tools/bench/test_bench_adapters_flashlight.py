"""The benchmark of torchaudio's calls: no speed where answers differ."""

import json
from pathlib import Path

import pytest
from tiny_sets import write_sets

pytest.importorskip("flashlight.lib.text.decoder")

from tools.bench import adapters_flashlight as bench  # noqa: E402

pytestmark = [pytest.mark.peers, pytest.mark.share]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that runs the tool on a tiny set."""
    write_sets(tmp_path)
    settings = {True: [{}, {"log_add": True}], False: [{}]}
    monkeypatch.setattr(bench, "SETTINGS", settings)

    def main():
        fixed = f"--data {tmp_path} --cache {tmp_path}/cache --repeats 2"
        output = tmp_path / "figures.json"
        cases = ["--cases", "dev:tiny", "dev:none", "--output", str(output)]
        status = bench.main([*fixed.split(), *cases])
        return status, json.loads(output.read_text())

    return main


def test_a_run_checks_then_times(run):
    status, report = run()
    assert status == 0 and report["faults"] == 0
    assert [row["setting"] for row in report["rows"][::2]] == [
        {},
        {"log_add": True},
        {},
    ]
    for ours, theirs in zip(report["rows"][::2], report["rows"][1::2], strict=True):
        assert ours["ratio"] > 0 and theirs["ratio"] is None
        assert len(ours["cpu_s"]) == len(theirs["cpu_s"]) == 2
    assert not Path(report["options"]["cases"][0]).is_absolute()


def test_wrong_answers_are_not_timed(run, monkeypatch, capsys):
    right = bench.ours_of

    def wrong(**arguments):
        decode = right(**arguments)
        return lambda emissions: [
            one._replace(score=one.score + 0.1) for one in decode(emissions)
        ]

    monkeypatch.setattr(bench, "ours_of", wrong)
    status, report = run()
    assert status == 1 and report["rows"] == [] and report["faults"] == 18
    assert "ANSWERS ARE WRONG" in capsys.readouterr().out
