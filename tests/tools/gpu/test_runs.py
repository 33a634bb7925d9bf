"""Runs on a GPU, rehearsed without one."""

import json
import sys

import pytest

from tools.gpu import short


@pytest.mark.share
def test_the_experiments_of_the_papers(tmp_path, capsys):
    pytest.importorskip("torch")
    from tools.gpu import papers

    output = tmp_path / "papers.json"
    words = ["--device", "cpu", "--profile", "small", "--output", str(output)]
    assert papers.main([*words, "--cache", str(tmp_path)]) == 0
    rows = json.loads(output.read_text())["rows"]
    assert {row["table"] for row in rows} == set(papers.TABLES)
    assert all(row["rtfx"] > 0 and not row.get("differ") for row in rows)


def test_the_trie_finds_the_tokens_that_were_put_in(tmp_path):
    pytest.importorskip("torch")
    from tools.gpu import tokens

    output = tmp_path / "tokens.json"
    words = ["--device", "cpu", "--frames", "40", "--batches", "1", "2"]
    assert tokens.main([*words, "--points", "16:20", "--output", str(output)]) == 0
    rows = json.loads(output.read_text())["rows"]
    assert len(rows) == 4 and all(row["errors"] == 0 for row in rows)
    assert not any(row.get("differ") for row in rows)


def test_parts_of_a_short_run(tmp_path, monkeypatch, capsys):
    """Each has a limit, what they wrote is kept, and what was done is not repeated."""
    program = "import sys, time; print('began', flush=True); time.sleep(%s)"
    (tmp_path / "brief.py").write_text(program % 0)
    (tmp_path / "endless.py").write_text(program % 1000)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    parts = {
        "good": short.Part(60, [["brief"], ["brief"]]),
        "late": short.Part(1, [["endless"]]),
        "wrong": short.Part(60, [["no_such_module"]]),
    }
    monkeypatch.setattr(short, "PARTS", parts)
    words = [str(tmp_path / "out"), "--parts"]
    assert short.main([*words, "good"]) == 0
    assert short.main([*words, *parts]) == 1
    figures = json.loads((tmp_path / "out" / "figures.json").read_text())
    found = {name: figures[name]["status"] for name in parts}
    assert found == {"good": [0, 0], "late": ["limit"], "wrong": [1]}
    log = (tmp_path / "out" / "log.txt").read_text()
    assert log.count("began") == 3 and "No module named" in log
    assert "good" not in capsys.readouterr().out.split("late")[-1]


def test_every_part_is_a_module():
    assert all(
        process[0] == "pytest" or process[0].startswith("tools.")
        for part in short.PARTS.values()
        for process in part.processes
    )
    assert sys.executable in short.arguments_of(
        short.parse_arguments(["out"]), "tests", short.PARTS["tests"].processes[0]
    )
