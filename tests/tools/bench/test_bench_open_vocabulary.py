"""The benchmark of open vocabulary: no speed without the same bits."""

import json
from pathlib import Path

import pytest
from tiny_sets import ARPA

from tools.bench import open_vocabulary as bench
from tools.bench.contestants import settings

pytestmark = pytest.mark.share


@pytest.fixture
def run(on_tiny_sets, tmp_path, monkeypatch):
    """A function that runs the tool with one setting, and costs of 1 and 0."""
    with_unk = ARPA.replace("ngram 1=5", "ngram 1=6").replace(
        "-0.5\tc", "-2\t<unk>\n-0.5\tc"
    )
    (tmp_path / "lm" / "tiny.arpa.gz").write_text(with_unk)
    few = settings("beam:beam_size:merge=8.0:16:sum")
    monkeypatch.setattr(bench, "SETTINGS", few)
    return lambda: on_tiny_sets(bench, "--cases dev:tiny --repeats 2 --costs 1:0")


def test_a_run_checks_then_times(run):
    status, report = run()
    assert status == 0 and report["faults"] == 0
    decoders = [row["decoder"] for row in report["rows"]]
    assert {bench.LEXICON, bench.OPEN} <= set(decoders)
    for row in report["rows"]:
        assert len(row["cpu_s"]) == 2
        assert row["costs"] == [1, 0]
    plain = report["rows"][decoders.index(bench.LEXICON)]
    assert plain["new_words"] == 0
    assert str(Path.home()) not in json.dumps(report)


def test_backends_that_differ_are_not_timed(run, monkeypatch, capsys):
    faults = ["  tiny: the backends differ"]
    monkeypatch.setattr(bench, "compare_backends", lambda *_: faults)
    status, report = run()
    assert status == 1 and report["faults"] == 1 and report["rows"] == []
    assert "the backends differ" in capsys.readouterr().out


def test_a_ratio_is_of_the_fastest_point_that_is_no_worse():
    def row(decoder, wer, seconds, **setting):
        made = {"case": "x", "decoder": decoder, "setting": setting}
        return made | {"wer": wer, "cpu_s": [seconds, 2 * seconds]}

    rows = [
        row(bench.LEXICON, 7.0, 0.01, beam=1.0),  # has no open words
        row(bench.OPEN, 8.0, 0.1, beam=2.0),
        row(bench.OPEN, 7.0, 0.2, beam=3.0),
        row(bench.SPELLED, 6.0, 0.4, beam=4.0),
        row("theirs", 7.0, 1.0, width=25),
        row("theirs", 7.0, 9.0, width=500),  # no better than 25, and slower
        row("theirs", 5.0, 3.0, width=50),
    ]
    (_, good, none), more = bench.report(rows)
    assert "WER 7.00, 5.0 x" in good and "none as good" in none
    assert [one["ours"] for one in more["verdicts"]] == [{"beam": 3.0}, None]
    assert more["verdicts"][0]["ratio"] == 5
