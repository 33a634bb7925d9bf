"""The benchmark of torchaudio's calls: no speed where answers differ."""

from pathlib import Path

import pytest

pytest.importorskip("flashlight.lib.text.decoder")

from tools.bench import adapters_flashlight as bench  # noqa: E402

pytestmark = [pytest.mark.peers, pytest.mark.share]


@pytest.fixture
def run(on_tiny_sets, monkeypatch):
    """A function that runs the tool with few settings."""
    settings = {True: [{}, {"log_add": True}], False: [{}]}
    monkeypatch.setattr(bench, "SETTINGS", settings)
    return lambda: on_tiny_sets(bench, "--repeats 2 --cases dev:tiny dev:none")


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
