"""The GPU benchmark, on the emulation: answers first, Riva's and ours, no GPU."""

import dataclasses
import shutil

import pytest
import riva_stand_in
from emulated_gpu import Emulated

from tools.bench import gpu
from tools.bench import gpu_report as report
from tools.peers import riva as riva_peer
from wfstdec.trie.gpu.layout import PHASES
from wfstdec.wfst.gpu.layout import PHASES as WFST_PHASES

pytestmark = [pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")]


@pytest.fixture
def run(on_tiny_sets):
    def run(*given, device=None):
        fixed = "--lms tiny --repeats 2 --threads 32"
        return on_tiny_sets(gpu, fixed, *given, gpu=device or Emulated())

    return run


@pytest.fixture
def riva(monkeypatch):
    """An imitation of riva-asrlib-decoder, which a test may change."""
    module = riva_stand_in.module()
    monkeypatch.setattr(riva_peer, "import_peer", lambda *_: module)
    return module


POINTS = ["--settings", "100:9", "2:4", "--batches", "1", "8", "--boosted", "0", "3"]


@pytest.mark.share
def test_a_run_without_riva(run, capsys):
    status, written = run(*POINTS)
    assert status == 0
    rows = written["rows"]
    output = capsys.readouterr().out
    settings = [(100, 9.0, 0), (100, 9.0, 3), (2, 4.0, 0), (2, 4.0, 3)]
    ours = [row for row in rows if row["decoder"] == "ours"]
    keys = ("max_active", "beam", "boosted", "batch", "dtype")
    assert [tuple(row[key] for key in keys) for row in ours] == [
        (*setting, batch, dtype)
        for setting in settings
        for batch in (1, 8)
        for dtype in ("float32", "float16")
    ]
    cpu = [row for row in rows if row["decoder"] == "cpu"]
    assert [tuple(row[key] for key in keys[:4]) for row in cpu] == [
        (*setting, batch) for setting in settings for batch in (1, 8)
    ]
    for row in ours:
        assert row["differ"] == 0 and len(row["event_s"]) == len(row["wall_s"]) == 2
        rtfx = row["audio_s"] / row["event_s"][0]
        assert row["rtfx"] == pytest.approx(rtfx, rel=0.02)
        frames = row["us_per_frame"] * row["longest_frames"] / 1e6
        assert frames == pytest.approx(row["event_s"][0])
        assert row["looked_per_frame"] >= row["entries_per_frame"] > 0
        assert row["gb_per_s"] > 0 and row["wer"] >= 0 and row["search_ms"] > 0
        assert row["shared_share"] == 1 and row["spilled_share"] == 0
        # In emulation the clock counts barriers of blocks.
        assert tuple(row["phases_us"]) == WFST_PHASES
        assert row["phases_us"]["emit"] > 0 and row["phases_us"]["settle"] > 0
    assert {row["batches"] for row in ours if row["batch"] == 8} == {2}
    assert written["machine"]["gpu"] == "none"
    assert written["machine"]["riva-asrlib-decoder"] is None
    assert "nothing was compared with riva" in output and "us/frame" in output
    assert "us of a frame and block" in output


@pytest.mark.share
def test_processes_of_the_cpu(run):
    status, written = run("--settings", "100:9", "--batches", "16", "--boosted", "0")
    threads, processes = written["rows"][:2]
    assert status == 0 and processes["decoder"] == "cpu processes"
    assert threads["wer"] == processes["wer"] and processes["rtfx"] > 0


def test_no_time_without_the_cpus_answers(run, capsys):
    narrow = {"max_active": 1, "beam": 0.1}
    device = Emulated(lambda options: dataclasses.replace(options, **narrow))
    status, written = run("--settings", "100:9", "--batches", "8", device=device)
    assert status == 1 and device.timed == 0
    ours = [row for row in written["rows"] if row["decoder"] == "ours"]
    assert len(ours) == 4
    assert all(row["differ"] > 0 and "rtfx" not in row for row in ours)
    assert "hypotheses are not the CPU's, no time is given" in capsys.readouterr().out


@pytest.mark.share
def test_riva_beside_ours(run, riva, capsys):
    status, written = run(*POINTS)
    assert status == 0
    theirs = [row for row in written["rows"] if row["decoder"] == "riva"]
    assert len(theirs) == 2 * 2  # settings, batches
    assert not any(row["boosted"] for row in theirs)
    for row in theirs:
        costs = row["costs"]
        assert costs["utterances"] == 6 and costs["texts_differ"] == 0
        assert costs["ours_lower"] == costs["theirs_lower"] == 0
        assert costs["theirs_total"] == pytest.approx(costs["ours_total"], rel=1e-6)
    output = capsys.readouterr().out
    assert "latency: " in output and "throughput: " not in output  # batches 1 and 8
    ours = [row for row in written["rows"] if row["decoder"] == "ours"]
    pairs = report.compared(written["rows"])
    assert len(pairs) == len({(row["beam"], row["batch"]) for row in ours})


TRIE = ["--trie", "16:8", "70:9", "--batches", "1", "8", "--boosted", "0"]


@pytest.mark.share
def test_the_trie_beside_the_cpu(run, capsys):
    status, written = run(*TRIE, "--settings", "100:9")
    rows, output = written["rows"], capsys.readouterr().out
    assert status == 0
    points = [(s, b, batch) for s, b in ((16, 8.0), (70, 9.0)) for batch in (1, 8)]
    for decoder in ("trie", "cpu trie"):
        chosen = [row for row in rows if row["decoder"] == decoder]
        found = [(row["beam_size"], row["beam"], row["batch"]) for row in chosen]
        assert found == points
        for row in chosen:
            assert len(row["event_s"]) == 2 and row["rtfx"] > 0 and row["wer"] >= 0
    for row in rows:
        if row["decoder"] == "trie":
            assert row["differ"] == 0
            assert row["threads"] == (32 if row["beam_size"] == 16 else 128)
            # In emulation the clock counts barriers of blocks: a warp has none.
            assert tuple(row["phases_us"]) == PHASES
            least = min(row["phases_us"][name] for name in PHASES[:4])
            assert (least > 0) == (row["threads"] == 128)
            assert row["candidates_per_frame"] >= row["entries_per_frame"] > 0
            assert row["active_per_frame"] > 0 and row["frames"] > 0
        if row["decoder"] == "cpu trie":
            assert row["threads"] >= 1
    assert len(report.compared(rows, "trie", "cpu trie")) == 4
    assert "nothing was compared with riva" in output
