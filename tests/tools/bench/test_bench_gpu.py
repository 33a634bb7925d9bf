"""The GPU benchmark, on the emulation: answers first, Riva's beside ours, no GPU."""

import dataclasses
import shutil
import types

import numpy as np
import pytest
import riva_stand_in
from emulated_gpu import Emulated

from tools.bench import gpu
from tools.bench import gpu_report as report
from tools.bench.gpu_device import padded
from tools.peers import riva as riva_peer
from wfstdec import TrieDecoder, TrieOptions
from wfstdec.trie.gpu.layout import PHASES

pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"),
]


@pytest.fixture
def run(on_tiny_sets):
    """A function that runs the tool."""

    def run(*given, device=None):
        fixed = "--lms tiny --repeats 2 --threads 32"
        return on_tiny_sets(gpu, fixed, *given, gpu=device or Emulated())

    return run


@pytest.fixture
def riva(monkeypatch):
    """A stand-in for riva-asrlib-decoder, which a test may change."""
    module = riva_stand_in.module()
    monkeypatch.setattr(riva_peer, "import_peer", lambda *_: module)
    return module


POINTS = ["--settings", "100:9", "2:4", "--batches", "1", "8", "--boosted", "0", "3"]


@pytest.mark.share
def test_a_run_without_riva(run, capsys):
    status, written = run(*POINTS)
    assert status == 0
    rows = written["rows"]
    told = capsys.readouterr().out
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
    assert [tuple(row[key] for key in keys[:3]) for row in cpu] == settings
    for row in ours:
        assert row["differ"] == 0 and len(row["event_s"]) == len(row["wall_s"]) == 2
        rtfx = row["audio_s"] / row["event_s"][0]
        assert row["rtfx"] == pytest.approx(rtfx, rel=0.02)
        frames = row["us_per_frame"] * row["longest_frames"] / 1e6
        assert frames == pytest.approx(row["event_s"][0])
        assert row["looked_per_frame"] >= row["entries_per_frame"] > 0
        assert row["gb_per_s"] > 0 and row["wer"] >= 0 and row["search_ms"] > 0
        assert row["shared_share"] == 1 and row["spilled_share"] == 0
    assert {row["batches"] for row in ours if row["batch"] == 8} == {2}
    assert written["machine"]["gpu"] == "none"
    assert written["machine"]["riva-asrlib-decoder"] is None
    assert "nothing was compared with riva" in told and "us/frame" in told


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
    status, written = run(*POINTS, "--lattice-beams", "1", "8")
    assert status == 0
    theirs = [row for row in written["rows"] if row["decoder"].startswith("riva")]
    assert len(theirs) == 2 * 2 * 2 * 2  # settings, batches, lattice beams, calls
    assert not any(row["boosted"] for row in theirs)
    for row in theirs:
        if row["decoder"] == "riva mbr":
            assert "costs" not in row and row["wer"] >= 0
            continue
        costs = row["costs"]
        assert costs["utterances"] == 6 and costs["texts_differ"] == 0
        assert costs["ours_lower"] == costs["theirs_lower"] == 0
        assert costs["theirs_total"] == pytest.approx(costs["ours_total"], rel=1e-6)
    told = capsys.readouterr().out
    assert "latency: " in told and "throughput: " not in told  # batches 1 and 8
    assert "riva mbr" in told
    ours = [row for row in written["rows"] if row["decoder"] == "ours"]
    pairs = report.compared(written["rows"])
    assert len(pairs) == len({(row["beam"], row["batch"]) for row in ours})


@pytest.mark.share
def test_a_run_that_is_cut_off_goes_on(run, riva, capsys):
    arguments = ("--settings", "100:9", "--batches", "8")
    status, written = run(*arguments, "--minutes", "0")
    assert status == 4 and written["rows"] == []
    assert "left out for --minutes: go on with --resume" in capsys.readouterr().out
    device = Emulated()
    _, written = run(*arguments, "--only", "ours", device=device)
    before = written["rows"]
    ours = sum(row["decoder"] == "ours" for row in before)
    assert device.timed == 2 * ours  # whole, search alone; the CPU by another clock
    device = Emulated()
    _, written = run(*arguments, "--resume", device=device)
    assert device.timed == 2 and written["rows"][: len(before)] == before
    assert [row["decoder"] for row in written["rows"][len(before) :]] == [
        "riva",
        "riva mbr",
    ]


TRIE = ["--trie", "16:8", "70:9", "--batches", "1", "8", "--boosted", "0"]


class Nemo:
    """A stand-in for `NemoPeer` that searches as we do on the CPU, or worse.

    Only the first call of a search says what its graphs are: they are made there.
    """

    mode = "full_graph"

    def __init__(self, inputs, **worse):
        assert inputs.lexicon is None and inputs.graph is None
        self.inputs, self.worse, self.made = inputs, worse, []

    def to_gpu(self):
        pass

    def pad(self, utterances):
        batch = padded(utterances, "float32")
        return batch.logprobs, list(batch.lengths)

    def search(self, setting):
        inputs, self.made = self.inputs, [*self.made, setting]
        options = TrieOptions(
            beam=setting["beam_threshold"],
            beam_size=setting["beam_size"],
            lm_scale=inputs.lm_scale,
            **self.worse,
        )
        decoder = TrieDecoder(
            tokens=inputs.tokens,
            lm=inputs.arpa,
            separator=inputs.separator,
            options=options,
        )

        def run(logprobs, lengths):
            run.cuda_graphs_mode = self.mode
            found = decoder.decode(logprobs, np.asarray(lengths))
            labels = np.zeros((len(found), 1, 4))
            return types.SimpleNamespace(
                found=found, transcript_wb=labels, flatten_sort_=lambda score_norm: None
            )

        run.cuda_graphs_mode = None
        return run

    def read(self, beams, lengths):
        return [(one.text, -one.total_cost) for one in beams.found]


@pytest.mark.share
def test_the_trie_beside_the_cpu_and_nemo(run, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "NemoPeer", Nemo)
    status, written = run(*TRIE, "--settings", "100:9")
    rows, told = written["rows"], capsys.readouterr().out
    assert status == 0
    points = [
        (lm, size, beam, batch)
        for lm in ("tiny", "tokens")
        for size, beam in ((16, 8.0), (70, 9.0))
        for batch in (1, 8)
    ]
    keys = ("lm", "beam_size", "beam", "batch")
    for decoder, wanted in (
        ("trie", points),
        ("cpu trie", points),
        ("nemo", points[len(points) // 2 :]),
    ):
        chosen = [row for row in rows if row["decoder"] == decoder]
        assert [tuple(row[key] for key in keys) for row in chosen] == wanted
        for row in chosen:
            assert len(row["event_s"]) == 2 and row["rtfx"] > 0
            # Phones are no words: their errors would mean nothing.
            assert ("wer" in row) == (row["lm"] == "tiny")
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
        if row["decoder"] == "nemo":
            costs = row["costs"]
            assert costs["utterances"] == 3, "every other one, the rest is learned from"
            assert costs["ours_lower"] == costs["theirs_lower"] == 0
            assert row["cuda_graphs_mode"] == "full_graph"
    # Of the same case and utterances all three.
    of_tokens = {(row["set"], row["note"]) for row in rows if row["lm"] == "tokens"}
    assert len(of_tokens) == 1
    assert len(report.compared(rows, "trie", "nemo")) == 4
    assert len(report.compared(rows, "trie", "cpu trie")) == 8
    assert "trie: nothing was compared with NeMo at what is asked" in told  # batch 8
    assert "nothing was compared with riva" in told
