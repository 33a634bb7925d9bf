"""The benchmark of the WFST decoder: no speed without equal costs."""

import math

import pytest

pytest.importorskip("kaldi_decoder")

from tools.bench import wfst  # noqa: E402
from tools.bench.costs import compare_costs  # noqa: E402
from wfstdec import WfstOptions
from wfstdec.compare import peers as kaldi_peer  # noqa: E402
from wfstdec.compare.comparison import Outcome  # noqa: E402

pytestmark = pytest.mark.peers

DONE = Outcome("ab", 100.0, True)


@pytest.fixture
def sets(on_tiny_sets):
    """A function that runs the tool: its exit status and rows."""

    def run(*given):
        status, written = on_tiny_sets(wfst, "--lms tiny --repeats 2", *given)
        return status, written["rows"]

    return run


@pytest.mark.share
def test_a_run_compares_then_times(sets, capsys):
    status, rows = sets("--sets", "dev", "hard", "--beams", "7.013", "30.013")
    assert status == 0
    assert [(row["set"], row["setting"]["beam"]) for row in rows] == [
        ("dev", 7.013),
        ("dev", 30.013),
        ("hard", 7.013),
        ("hard", 30.013),
    ]
    for row in rows:
        assert row["costs"]["agree"] and row["costs"]["utterances"] == 6
        assert row["costs"]["largest_difference"] < 1e-5
        assert len(row["cpu_s"]) == len(row["kaldi"]["cpu_s"]) == 2
        slow, fast = min(row["kaldi"]["cpu_s"]), min(row["cpu_s"])
        assert row["ratio"] == pytest.approx(slow / fast, rel=0.05)
        assert row["rtfx"] == pytest.approx(row["audio_s"] / fast, rel=0.05)
        assert row["wer"] == 100 * sum(row["errors"]) / row["words"]
        assert row["active_per_frame"] > 0
    told = capsys.readouterr().out
    assert told.index("costs agree") < told.index("RTFx")
    assert "log-probs times 0.4" in told


@pytest.mark.parametrize("change", ["graph", "options"])
def test_no_speed_where_costs_disagree(sets, monkeypatch, capsys, change):
    if change == "graph":
        scaled = kaldi_peer.scaled_fst
        monkeypatch.setattr(kaldi_peer, "scaled_fst", lambda g, x: scaled(g, 0.999 * x))
    else:
        other = kaldi_peer.FasterDecoder

        def narrow(fst, options):
            return other(fst, WfstOptions(beam=0.5, max_active=2))

        monkeypatch.setattr(kaldi_peer, "FasterDecoder", narrow)
    status, rows = sets("--beams", "30")
    assert status == 1
    assert not rows[0]["costs"]["agree"] and rows[0]["costs"]["worst"]
    assert not any("rtfx" in key or "cpu_s" in key for key in rows[0])
    told = capsys.readouterr().out
    assert "COSTS DISAGREE" in told and "RTFx" not in told


@pytest.mark.parametrize(
    ("ours", "theirs", "lower"),
    [
        (DONE, DONE, (0, 0)),
        (DONE._replace(total_cost=100.0009), DONE, (0, 0)),
        (DONE._replace(total_cost=100.0011), DONE, (0, 1)),
        (DONE._replace(total_cost=99.9989), DONE, (1, 0)),
        (DONE._replace(total_cost=0.0), DONE._replace(total_cost=0.5e-5), (0, 0)),
        (DONE._replace(total_cost=0.0), DONE._replace(total_cost=-2e-5), (0, 1)),
        (DONE, DONE._replace(total_cost=90.0, reached_final=False), (1, 0)),
        (DONE._replace(reached_final=False), DONE, (0, 1)),
        (Outcome("", math.inf, False), Outcome("", math.inf, False), (0, 0)),
        (Outcome("", math.inf, False), Outcome("", 5.0, False), (0, 1)),
        (Outcome("", 5.0, False), Outcome("", math.inf, False), (1, 0)),
    ],
)
def test_one_utterance_that_differs_is_found_among_many(ours, theirs, lower):
    found = compare_costs(["a", "b", "c"], [DONE, ours, DONE], [DONE, theirs, DONE])
    assert (found.ours_lower, found.theirs_lower) == lower
    assert found.agrees == (lower == (0, 0))
    assert [name for name, _, _ in found.worst] == ["b"] * sum(lower)
    assert math.isfinite(found.largest_difference + found.ours_total)
