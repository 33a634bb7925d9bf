"""The CPU benchmark: no speed without equal costs, whatever makes them differ."""

import json
import math

import numpy as np
import pytest
from tiny_sets import write_sets

pytest.importorskip("kaldi_decoder")

import bench_cpu  # noqa: E402
import bench_data  # noqa: E402
import bench_measure  # noqa: E402
import bench_report  # noqa: E402
from bench_compare import Outcome, compare  # noqa: E402

from wfstdec.compare.peers import kaldi as kaldi_peer

pytestmark = pytest.mark.peers

DONE = Outcome(100.0, True, "ab")


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """A folder laid out as the project's data, and a function that runs the tool."""
    write_sets(tmp_path)

    def run(*arguments):
        fixed = f"--data {tmp_path} --cache {tmp_path}/cache --lms tiny --repeats 2"
        output = tmp_path / "figures.json"
        words = [*fixed.split(), "--output", str(output), *arguments]
        status = bench_cpu.main(words)
        return status, json.loads(output.read_text())["rows"]

    return run


def test_a_run_compares_then_times(sets, capsys):
    status, rows = sets("--sets", "dev", "hard", "--beams", "7.013", "30.013")
    assert status == 0
    assert [(row["set"], row["beam"]) for row in rows] == [
        ("dev", 7.013),
        ("dev", 30.013),
        ("hard", 7.013),
        ("hard", 30.013),
    ]
    for row in rows:
        assert row["costs"]["agree"] and row["costs"]["utterances"] == 6
        assert row["costs"]["largest_difference"] < 1e-5
        assert len(row["ours_cpu_s"]) == len(row["kaldi_cpu_s"]) == 2
        slow, fast = min(row["kaldi_cpu_s"]), min(row["ours_cpu_s"])
        assert row["ratio_min"] == pytest.approx(slow / fast, rel=0.05)
        assert row["wer_line"].startswith(f"%WER {row['wer']:.2f} ")
        assert row["candidates_per_frame"] >= row["active_per_frame"] > 0
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
            return other(fst, bench_cpu.WfstOptions(beam=0.5, max_active=2))

        monkeypatch.setattr(kaldi_peer, "FasterDecoder", narrow)
    status, rows = sets("--beams", "30")
    assert status == 1
    assert not rows[0]["costs"]["agree"] and rows[0]["costs"]["worst"]
    assert not any("rtfx" in key or "cpu_s" in key for key in rows[0])
    told = capsys.readouterr().out
    assert "COSTS DISAGREE" in told and "RTFx" not in told


def test_topologies_stand_below_each_other(sets, capsys):
    status, rows = sets("--topologies", "normal", "compact", "--beams", "30.013")
    assert status == 0 and [row["topology"] for row in rows] == ["normal", "compact"]
    assert rows[0]["graph"]["arcs"] != rows[1]["graph"]["arcs"]
    assert "Topologies" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ours", "kaldi", "lower"),
    [
        (DONE, DONE, (0, 0)),
        (DONE._replace(cost=100.0009), DONE, (0, 0)),
        (DONE._replace(cost=100.0011), DONE, (0, 1)),
        (DONE._replace(cost=99.9989), DONE, (1, 0)),
        (DONE._replace(cost=0.0), DONE._replace(cost=0.5e-5), (0, 0)),
        (DONE._replace(cost=0.0), DONE._replace(cost=-2e-5), (0, 1)),
        (DONE, DONE._replace(cost=90.0, reached_final=False), (1, 0)),
        (DONE._replace(reached_final=False), DONE, (0, 1)),
        (Outcome(math.inf, False, ""), Outcome(math.inf, False, ""), (0, 0)),
        (Outcome(math.inf, False, ""), Outcome(5.0, False, ""), (0, 1)),
        (Outcome(5.0, False, ""), Outcome(math.inf, False, ""), (1, 0)),
    ],
)
def test_one_utterance_that_differs_is_found_among_many(ours, kaldi, lower):
    found = compare(["a", "b", "c"], [DONE, ours, DONE], [DONE, kaldi, DONE])
    assert (found.ours_lower, found.kaldi_lower) == lower
    assert found.agrees == (lower == (0, 0))
    assert [name for name, _, _ in found.worst] == ["b"] * sum(lower)
    assert math.isfinite(found.largest_difference + found.ours_total)


@pytest.mark.parametrize("cost", [[], [math.nan]])
def test_nothing_compared_is_an_error(cost):
    side = [DONE._replace(cost=x) for x in cost]
    with pytest.raises(ValueError, match="costs of"):
        compare(["a"] * len(cost), side, side)


def test_a_rate_is_rounded_once():
    row = {"wer": 100 * 113 / 833}  # 13.5654: to 13.565 and then to 13.56 is wrong
    assert bench_report.SPEED["WER %"](row) == "13.57"


def test_flattened_frames_are_distributions():
    x = np.log(np.random.default_rng(3).dirichlet(np.ones(9), 5)).astype(np.float32)
    flat = bench_data.flatten(x)
    assert flat.dtype == np.float32
    np.testing.assert_allclose(np.exp(flat).sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(flat[:, 0] - flat[:, 1], 0.4 * (x[:, 0] - x[:, 1]), 1e-4)


def test_a_subset_is_spread_evenly():
    items = [str(i) for i in range(10)]
    assert (
        bench_data.evenly_spaced(items, None)
        == bench_data.evenly_spaced(items, 12)
        == items
    )
    assert bench_data.evenly_spaced(items, 3) == ["1", "5", "8"]


def test_turns_alternate():
    ran, clock = [], iter(range(100))
    functions = {name: lambda name=name: ran.append(name) for name in ("a", "b")}
    seconds = bench_measure.by_turns(functions, 3, lambda: next(clock))
    assert ran == list("abbaab") and seconds == {"a": [1] * 3, "b": [1] * 3}
