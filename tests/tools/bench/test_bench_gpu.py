"""The GPU benchmark, on the emulation: answers first, Riva's beside ours, no GPU."""

import dataclasses
import importlib.util
import shutil
import types

import numpy as np
import pytest
import riva_stand_in
from emulated_gpu import Emulated

from tools.bench import data, gpu, gpu_device, gpu_trie
from tools.bench import gpu_report as report
from tools.bench.cases import Case
from tools.bench.gpu_device import Gpu, padded
from tools.bench.gpu_measure import Bench, as_given
from tools.peers import riva as riva_peer
from wfstdec import Lexicon, TrieDecoder, TrieOptions
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
def test_a_worse_peer_is_seen(run, riva):
    class Narrow(riva_stand_in.Decoder):
        def __init__(self, config, *files):
            config.online_opts.decoder_opts.max_active = 1
            super().__init__(config, *files)

    riva.BatchedMappedDecoderCuda = Narrow
    status, written = run("--settings", "100:30", "--batches", "8")
    assert status == 0
    (row,) = [row for row in written["rows"] if row["decoder"] == "riva"]
    assert row["costs"]["ours_lower"] > 0 == row["costs"]["theirs_lower"]


@pytest.mark.share
def test_a_peer_that_breaks_takes_nothing_with_it(run, riva, capsys):
    class Broken(riva_stand_in.Decoder):
        def decode_nbest(self, padded, lengths):
            raise RuntimeError("kaldi::KaldiFatalError")

    riva.BatchedMappedDecoderCuda = Broken
    status, written = run("--settings", "100:9", "--batches", "8")
    assert status == 1
    (row,) = [row for row in written["rows"] if row["decoder"] == "riva"]
    assert row["failed"] == "riva-asrlib-decoder failed: kaldi::KaldiFatalError"
    assert sum("rtfx" in row for row in written["rows"]) == 2 * (1 + 2)
    assert "KaldiFatalError" in capsys.readouterr().out


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


@pytest.mark.share
def test_halves_are_compared_with_what_the_cpu_finds_in_halves(run):
    points = ["--settings", "100:9", "--batches", "8", "--boosted", "0"]
    status, written = run("--sets", "hard", *points)  # rounding changes its numbers
    ours = [row for row in written["rows"] if row["decoder"] == "ours"]
    assert [row["dtype"] for row in ours] == ["float32", "float16"]
    assert status == 0 and not any(row["differ"] for row in ours)
    speech = data.load_set("hard", data.RECIPE, 1)
    (x,) = speech.logprobs.values()
    assert (as_given(x, "float16") != x).any() and (as_given(x, "float32") == x).all()


@pytest.mark.share
def test_long_recordings(run):
    _, written = run("--long", "0.5", "0.9", "--settings", "100:9", "--batches", "2")
    ours = [row for row in written["rows"] if row["decoder"] == "ours"]
    names = {row["set"]: row["audio_s"] for row in ours}
    assert set(names) == {"dev, 0.5 s long", "dev, 0.9 s long"}


@pytest.mark.parametrize(
    "words",
    [["--settings", "7000"], ["--settings", "a:b"], ["--batches", "0"], ["--long"]],
)
def test_arguments_that_make_no_sense(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        gpu.parse_arguments(["--output", "x.json", *words])
    assert "error" in capsys.readouterr().err


def test_profiles():
    full = gpu.parse_arguments(["--output", "x", "--profile", "full"])
    assert len(full.settings) == 16 and len(full.lms) == 2
    assert set(full.settings) >= {(1000, 8.0), (10000, 17.0)}
    small = gpu.parse_arguments(
        ["--output", "x", "--profile", "small", "--batches", "3"]
    )
    assert (small.batches, small.repeats) == ([3], 1)


def test_the_batches_of_a_point():
    names = [f"u{i}" for i in range(50)]
    rows, said = dict.fromkeys(names, np.zeros((1, 2))), dict.fromkeys(names, ())
    speech = data.SpeechSet(rows, said, name="", recipe=None)
    bench = Bench(Case(speech, "", None, 0.8, None), None, None, None)
    assert [len(batch) for batch in bench.batches(1)] == [1] * 16
    assert len({name for (name,) in bench.batches(1)}) == 16
    assert [len(batch) for batch in bench.batches(8)] == [8] * 2
    (large,) = bench.batches(120)
    assert large[:50] == large[50:100] and len(large) == 120


# ----------------------------------------------------------------------- CUDA's clock
def test_times_are_those_of_events_around_whole_calls(monkeypatch):
    """On a stand-in for CuPy whose clock goes on by what is run."""
    clock, ran = [0.0], []

    class Event:
        def record(self):
            self.at = clock[0]

        def synchronize(self):
            ran.append("synchronize")

    def work():
        ran.append("work")
        clock[0] += len(ran)

    device = types.SimpleNamespace(id=0, synchronize=lambda: None)
    cuda = types.SimpleNamespace(
        Event=Event,
        Device=lambda: device,
        get_elapsed_time=lambda start, end: 1e3 * (end.at - start.at),
    )
    stand_in = types.SimpleNamespace(cupy=types.SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(gpu_device, "CupyDevice", lambda *_, **__: stand_in)
    timing = Gpu().time(work, 3)
    assert ran == ["work", *["work", "synchronize"] * 3]
    assert timing.event_s == [2.0, 4.0, 6.0] and timing.median_s == 4.0
    assert len(timing.wall_s) == 3 and max(timing.wall_s) < 1


def test_what_is_asked_is_asked_at_an_equal_word_error_rate():
    base = {"set": "s", "lm": "l", "max_active": 7, "beam": 9.0, "boosted": 0}
    base |= {"event_s": [1.0], "wer": 5.0, "dtype": "float32", "decoder": "ours"}
    rows = [
        base | {"batch": 128},
        base | {"batch": 128, "decoder": "riva", "event_s": [7.0]},
        base | {"batch": 128, "decoder": "riva mbr", "event_s": [6.0], "wer": 4.9},
        base | {"batch": 1},
        base | {"batch": 1, "decoder": "riva", "event_s": [12.0]},
    ]
    throughput, latency = report.verdicts(rows)
    assert throughput == (
        "throughput: 6.0 to 6.0 times Riva's over 1 points, 5 asked; the word error "
        "rate is equal or lower at 0 of them"
    )
    assert latency.startswith("latency: 12.0 to 12.0 times Riva's over 1 points, 10 ")
    assert latency.endswith("at 1 of them")


# ---------------------------------------------------------------- the trie, and NeMo's
TRIE = ["--trie", "16:8", "70:9", "--batches", "1", "8", "--boosted", "0"]
NO_WFST = [*TRIE, "--settings", "100:9", "--only", "ours"]


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
            assert tuple(row["phases_us"]) == tuple(row["predicted_us"]) == PHASES
            assert min(row["predicted_us"].values()) > 0
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


@pytest.mark.share
def test_a_trie_that_is_not_the_cpus_has_no_time(run, monkeypatch, capsys):
    class Wrong(Emulated):
        def trie_backend(self, space):
            backend = super().trie_backend(space)
            decode = backend.decode

            def narrow(utterances, options, boosts, **more):
                options = dataclasses.replace(options, beam_size=1, beam=0.5)
                return decode(utterances, options, boosts, **more)

            backend.decode = narrow
            return backend

    device = Wrong()
    status, written = run(*NO_WFST, device=device)
    assert status == 1
    tries = [row for row in written["rows"] if row["decoder"] == "trie"]
    wrong = [row for row in tries if row["differ"]]
    assert wrong and all("rtfx" not in row for row in wrong)
    assert "hypotheses are not the CPU's, no time is given" in capsys.readouterr().out


@pytest.mark.parametrize("mode", [None, "no_while_loops"])
def test_nemo_without_its_graphs_has_no_row(run, monkeypatch, capsys, mode):
    monkeypatch.setattr(gpu, "NemoPeer", Nemo)
    monkeypatch.setattr(Nemo, "mode", mode)
    status, written = run(*TRIE, "--settings", "100:9", "--only", "nemo")
    assert status == 0 and written["rows"] == []
    assert f"NeMo's CUDA graphs: {mode}, not full_graph" in capsys.readouterr().out


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("nemo", "torch"))), reason="needs NeMo"
)
def test_nemo_itself_has_the_costs_of_the_trie(run, monkeypatch):
    """On the CPU, where its search is no graph: that is said to be enough here."""

    class Tensors(Emulated):
        def tensor(self, array):
            return importlib.import_module("torch").as_tensor(array)

    monkeypatch.setattr(gpu.NemoPeer, "to_gpu", lambda self: None)
    monkeypatch.setattr(gpu_trie, "WHOLE", "None")
    words = ["--trie", "16:20", "--batches", "1", "8", "--only", "nemo"]
    status, written = run(*words, device=Tensors())
    assert status == 0 and [row["batch"] for row in written["rows"]] == [1, 8]
    for row in written["rows"]:
        costs = row["costs"]
        assert costs["utterances"] == 3 and "texts_differ" not in costs
        assert costs["ours_lower"] == costs["theirs_lower"] == 0


def test_a_nemo_that_finds_worse_is_seen(run, monkeypatch):
    def narrow(inputs):
        return Nemo(inputs, token_top_k=1)

    monkeypatch.setattr(gpu, "NemoPeer", narrow)
    _, written = run(*TRIE, "--settings", "100:9", "--only", "nemo")
    rows = written["rows"]
    assert rows and all(row["costs"]["theirs_lower"] == 0 for row in rows)
    assert any(row["costs"]["ours_lower"] > 0 or row["batch"] == 1 for row in rows)


def test_what_is_asked_of_the_trie():
    base = {"set": "s", "lm": "tokens", "beam": 8.0, "decoder": "trie"}
    rows = [
        base | {"beam_size": size, "batch": batch, "event_s": [1.0]} | other
        for size, batch, times in ((16, 32, 25.0), (16, 128, 30.0), (32, 32, 3.0))
        for other in (
            {},
            {"decoder": "nemo", "event_s": [times]},
            {"decoder": "cpu trie", "event_s": [times / 10], "threads": 16},
        )
    ]
    first, second, last = report.verdicts(rows)
    assert first == (
        "trie: 25.0 to 30.0 times NeMo's over 2 points of size 16 from batch 32 on, 20 "
        "asked"
    )
    assert second == (
        "trie: 0.3 to 3.0 times 16 threads of the CPU over 3 points from batch 32 on"
    )
    assert last == "nothing was compared with riva-asrlib-decoder"


def test_a_model_over_tokens_adds_up(tmp_path):
    """Behind every history the probabilities of all tokens are one."""
    said = [["a", "b", "a", "c"], ["b"], ["a", "b", "b", "a"]]
    path = tmp_path / "tokens.arpa"
    gpu_trie.write_token_lm(said, ["a", "b", "c", "d"], path)
    probabilities, backoffs = {}, {}
    for line in path.read_text().splitlines():
        number, tab, rest = line.partition("\t")
        if tab:
            words, _, backoff = rest.partition("\t")
            gram = tuple(words.split())
            probabilities[gram] = 10 ** float(number)
            backoffs[gram] = 10 ** float(backoff or 0)

    def probability(history, token):
        if (*history, token) in probabilities:
            return probabilities[*history, token]
        return backoffs.get(history, 1.0) * probability(history[1:], token)

    histories = {gram for gram in backoffs if len(gram) < gpu_trie.ORDER}
    assert len(histories) > 10
    for history in histories - {gram for gram in histories if "</s>" in gram}:
        total = sum(probability(history, t) for t in ("a", "b", "c", "d", "</s>"))
        assert total == pytest.approx(1.0, abs=1e-4), history
    # By hand: 12 tokens with </s>, 4 kinds, 5 tokens that there are.
    assert probabilities["d",] == pytest.approx(4 / 5 / 16, rel=1e-4)


def test_references_are_spelled():
    lexicon = Lexicon(("ab", "ab", "c"), ((1, 2), (2,), (3,)), np.zeros(3, np.float32))
    names = ["-", "a", "b", "c", "|"]
    said = [("ab", "c"), ("no",), ("c",)]
    found = gpu_trie.sentences(said, lexicon, names, "|")
    assert found == [["a", "b", "|", "c"], ["c"]]
    assert gpu_trie.sentences(said, lexicon, names, None) == [["a", "b", "c"], ["c"]]
