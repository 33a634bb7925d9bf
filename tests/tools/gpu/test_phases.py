"""The phase profile, on the emulation, whose clock counts barriers."""

import json
import shutil

import pytest
from emulated_gpu import Emulated
from tiny_sets import write_sets

from tools.gpu import phase_report, phases, tokens
from tools.gpu.model import Work, predicted
from wfstdec.text.symbols import read_tokens
from wfstdec.wfst.gpu.layout import PHASES

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


@pytest.fixture
def run(tmp_path):
    """Runs the tool on a small folder: (exit status, rows, what is in the file)."""
    write_sets(tmp_path)
    output = tmp_path / "phases.json"

    def run(*words, gpu=None):
        fixed = f"--data {tmp_path} --cache {tmp_path}/cache --repeats 1 --resume "
        fixed += f"--output {output} --beam 7 --lm tiny"
        status = phases.main([*fixed.split(), *words], gpu=gpu or Emulated())
        return status, json.loads(output.read_text())["rows"]

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
        assert tuple(found) == PHASES == tuple(row["predicted_us"])
        # The clock counts barriers; a frame has three to emit, and so on.
        assert found["emit"] >= 3 and found["recombine"] >= 2 and found["settle"] >= 3.9
        assert found["close"] > 0 and row["frames"] > 0 and row["rtfx"] > 0
        assert row["predicted_us"]["emit"] >= 0.9
    told = capsys.readouterr().out
    assert "in brackets the model's prediction" in told
    assert told.count("(") > 2 * len(PHASES)
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
def test_the_time_that_it_may_take(run):
    _, rows = run("--batches", "1", "--threads", "32", "--minutes", "0")
    assert rows == []


def row(**more):
    figures = dict.fromkeys(PHASES, 1.0)
    base = {"decoder": "ours", "batch": 8, "threads": 128, "ms_per_batch": 1.5}
    return base | {"rtfx": 10.0, "phases_us": figures, "predicted_us": figures} | more


def test_others_stand_in_the_same_table(tmp_path, capsys):
    file, other = tmp_path / "ours.json", tmp_path / "riva.json"
    file.write_text(json.dumps({"rows": [row(), row(batch=1)]}))
    riva = {"decoder": "riva", "batch": 8, "ms_per_batch": 2.0, "rtfx": 7.0}
    other.write_text(json.dumps({"rows": [riva, {"decoder": "riva", "failed": "x"}]}))
    absent = str(tmp_path / "absent.json")
    assert phases.main(["--table", str(file), str(other), absent]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "1.00 (1.00)" in lines[2]
    assert [line.split()[0] for line in lines[2:]] == ["ours", "ours", "riva"]
    assert f"{len(PHASES)}.00 ({len(PHASES)}.00)" in lines[2]


def test_the_picture(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    rows = [row(batch=b, threads=t) for b in (1, 8) for t in (128, 512)]
    path = tmp_path / "phases.png"
    phase_report.plot(rows, path, matplotlib)
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_the_prediction_is_the_reviews():
    """13 : 7000 with 512 threads: 8 to 11 us, as was estimated."""
    found = predicted(Work(arcs=977, ranks=1.3), 512)
    assert 7.0 < sum(found.values()) < 11.0
    assert (found["bound"], found["recombine"], found["settle"]) == (0.6, 1.0, 1.0)
    assert found["close"] == pytest.approx(2.2 * 1.3)
    assert found["emit"] == pytest.approx(0.9 + 0.5 * 977 / 512, abs=1e-3)
    narrow = predicted(Work(arcs=977, ranks=1.3), 128)
    assert narrow["emit"] > found["emit"]


def test_the_language_model_that_nemo_is_timed_with(tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("<blank>\na\nb\n")
    table, arpa = read_tokens(path), tmp_path / "uniform.arpa"
    tokens.uniform_arpa(table, arpa)
    lines = arpa.read_text().splitlines()
    assert "ngram 1=4" in lines
    costs = {line.split("\t")[1]: line.split("\t")[0] for line in lines if "\t" in line}
    assert set(costs) == {"<s>", "</s>", "a", "b"}
    assert costs["a"] == costs["b"] == costs["</s>"] == "-0.477121"
