"""The phase profile, on the emulation, whose clock counts barriers."""

import importlib.util
import json
import shutil
import types

import pytest
from emulated_gpu import Emulated

from tools.gpu import MISSING_STATUS, OK_STATUS, UNFINISHED_STATUS, phases, tokens
from wfstdec.wfst.gpu.layout import PHASES

pytestmark = pytest.mark.share

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


@pytest.fixture
def run(on_tiny_sets):
    """A function that runs the tool: its exit status and rows."""

    def run(*words, gpu=None):
        fixed = "--repeats 1 --resume --beam 7 --lm tiny"
        status, told = on_tiny_sets(phases, fixed, *words, gpu=gpu or Emulated())
        return status, told["rows"]

    return run


@needs_compiler
def test_every_phase_at_every_batch_and_block_size(run, capsys, tmp_path):
    words = "--batches 1 3 --threads 32 64".split()
    status, rows = run(*words)
    assert status == 0
    points = [(row["decoder"], row["batch"], row["threads"]) for row in rows]
    ours = [point for point in points if point[0] == "ours"]
    assert sorted(ours) == [("ours", b, t) for b in (1, 3) for t in (32, 64)]
    assert [point[:2] for point in points[:2]] == [("cpu", 1), ("cpu", 3)]
    for row in rows[2:]:
        found = row["phases_us"]
        assert tuple(found) == PHASES
        # The clock counts barriers; a frame has three to emit, and so on.
        assert found["emit"] >= 3 and found["recombine"] >= 2 and found["settle"] >= 3.9
        assert found["close"] > 0 and row["frames"] > 0 and row["rtfx"] > 0
    told = capsys.readouterr().out
    assert "us of a frame and block by phase" in told
    again = run(*words)[1]
    assert again == rows, "a run that is resumed takes no time anew"


@needs_compiler
def test_no_times_where_an_answer_is_not_the_cpus(run, capsys):
    spoiled = Emulated(lambda options: type(options)(beam=0.5, max_active=1))
    status, rows = run("--batches", "2", "--threads", "32", gpu=spoiled)
    wrong = [row for row in rows if row["decoder"] == "ours"]
    assert status == 1 and wrong[0]["differ"] > 0
    assert "phases_us" not in wrong[0] and "rtfx" not in wrong[0]
    assert "hypotheses are not the CPU's" in capsys.readouterr().out
    status, rows = run("--batches", "2", "--threads", "32")
    assert status == 0 and len(rows) == 2, "a point that was wrong is done again"


@needs_compiler
def test_the_time_that_it_may_take(run, capsys):
    words = "--batches", "1", "--threads", "32"
    status, rows = run(*words, "--minutes", "0")
    assert (status, rows) == (UNFINISHED_STATUS, [])
    assert "2 points left out for --minutes" in capsys.readouterr().out
    status, rows = run(*words)
    assert status == OK_STATUS and len(rows) == 2, "a later run goes on with them"


def row(**more):
    figures = dict.fromkeys(PHASES, 1.0)
    base = {"decoder": "ours", "batch": 8, "threads": 128, "ms_per_batch": 1.5}
    return base | {"rtfx": 10.0, "phases_us": figures} | more


def test_others_stand_in_the_same_table(tmp_path, capsys):
    file, other = tmp_path / "ours.json", tmp_path / "riva.json"
    file.write_text(json.dumps({"rows": [row(), row(batch=1)]}))
    riva = {"decoder": "riva", "batch": 8, "ms_per_batch": 2.0, "rtfx": 7.0}
    other.write_text(json.dumps({"rows": [riva, {"decoder": "riva", "failed": "x"}]}))
    absent = str(tmp_path / "absent.json")
    assert phases.main(["--table", str(file), str(other), absent]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " 1.00 " in lines[2]
    assert [line.split()[0] for line in lines[2:]] == ["ours", "ours", "riva"]
    assert f" {len(PHASES)}.00 " in lines[2]


def read_grams(path):
    """The n-grams of an ARPA file by order, and the counts that it says."""
    grams, counts, order = {}, [], 0
    for line in path.read_text().splitlines():
        if line.startswith("ngram "):
            counts.append(int(line.partition("=")[2]))
        elif line.startswith("\\") and line.endswith("-grams:"):
            order = int(line[1:-7])
        elif "\t" in line:
            grams.setdefault(order, []).append(tuple(line.split("\t")[1].split()))
    return grams, counts


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("nemo", "torch"))), reason="needs NeMo"
)
def test_nemo_takes_that_model(monkeypatch):
    peer = tokens.make_peer()
    assert peer._lm.max_order == 6
    search, found = tokens.searcher(peer, 4, 2, "cpu", frames=6)
    assert len(found()) == 2
    assert tokens.row_of(search, found, 2, 1) is None, "no CUDA graphs, no row"


def test_nemo_without_cuda_gives_no_row(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tokens, "make_peer", None)  # not called: the device is first
    no_cuda = types.SimpleNamespace(is_available=lambda: False)
    torch = types.SimpleNamespace(cuda=no_cuda)
    monkeypatch.setattr(tokens, "import_peer", lambda *_: torch)
    output = tmp_path / "nemo.json"
    assert tokens.main(["--output", str(output)]) == MISSING_STATUS
    assert "torch has no CUDA" in capsys.readouterr().out and not output.exists()
