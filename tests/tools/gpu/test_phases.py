"""The phase profile, on the emulation, whose clock counts barriers."""

import shutil

import pytest
from emulated_gpu import Emulated

from tools.gpu import phases
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
        assert found["emit"] >= 3 and found["recombine"] >= 2 and found["settle"] >= 1.9
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
