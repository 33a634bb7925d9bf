"""Ticks of the trie search by phase: clocks that count, runs that are joined."""

import json

import pytest

from tools.bench import trie_phases
from wfstdec.jit.cache import KernelCache


def test_clocks_count_calls_and_ticks(monkeypatch):
    """Code has the address of this process's counts: it is neither kept nor loaded."""
    for name in ("load_overload", "save_overload"):
        monkeypatch.setattr(KernelCache, name, lambda *_: None)
    trie_phases.TICKS[-1] = 0
    trie_phases.empty_clocks(len(trie_phases.TICKS) - 1, 10)
    ticks, calls = trie_phases.TICKS[-1]
    assert calls == 10 and 0 < ticks < 10**9


def test_functions_that_are_timed_exist():
    for functions in (*trie_phases.STEPS.values(), *trie_phases.PARTS.values()):
        found = []

        def keep(one, found=found):
            found.append(one)
            return one

        trie_phases.change(trie_phases.ROOM, functions, keep)
        assert found, functions


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A function that joins what variants say: here they are not started."""

    def run(said):
        def start(function, variant, args):
            row = {"case": "x", "setting": "8:32:max", "answers": "a", "frame": 100.0}
            return [row | {"host": 7.0} | said.get(variant, {})]

        monkeypatch.setattr(trie_phases, "in_own_process", start)
        output = tmp_path / "run.json"
        status = trie_phases.main(["--output", str(output)])
        return status, json.loads(output.read_text())["rows"] if status == 0 else []

    return run


def test_variants_are_joined(run, capsys):
    said = {
        "steps": {"merge": 20.0, "frame": 130.0},
        "parts": {"model": 9.0, "model calls": 0.5},
        trie_phases.LISTED: {"frame": 79.5},
    }
    status, (row,) = run(said)
    assert status == 0
    assert row["frame"] == 100 and row["merge"] == 20 and row["model"] == 9
    assert row[trie_phases.LISTED] == -20.5
    assert "-20" in capsys.readouterr().out  # ns, whole


def test_answers_that_differ_tell_nothing(run, capsys):
    status, _ = run({trie_phases.LISTED: {"answers": "b"}})
    assert status == 1
    told = capsys.readouterr().out
    assert "ANSWERS DIFFER" in told and "ns for a frame" not in told
