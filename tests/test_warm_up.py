"""Kernels compiled before anyone waits for them."""

import json
import os
import signal
import sys

import pytest
from processes import python

from wfstdec import warm_up as module
from wfstdec.cli import graphs as command
from wfstdec.cli.main import main
from wfstdec.errors import BackendError
from wfstdec.warm_up import ALL, warm_up

WARM = """
import json, warnings
from wfstdec import warm_up
from wfstdec.jit.linking import Entry
waited = []
found = Entry.compile
Entry.compile = lambda self, types: waited.append(self.__name__) or found(self, types)
decoder = warm_up._wfst()
decoder.warm_up({"ab": 1.0}, lattices=False)
warm = len(waited)
logprobs = warm_up._logprobs()
for one in decoder.decode([logprobs, logprobs], boosts=[None, {"ba": 2.0}]):
    one.words, one.total_cost
sessions = decoder.sessions()
one = sessions.open({"cab": 1.0})
sessions.advance({one: logprobs[:3]})
sessions.partial(one)
sessions.close(one).words
print(json.dumps([warm, waited[warm:]]))
"""


def test_no_session_waits_for_kernels_after_warm_up():
    done = python("-c", WARM)
    warm, waited = json.loads(done.stdout or f"[0, [{done.stderr!r}]]")
    assert warm > 10 and waited == []


def test_the_command_runs_ways_in_processes_of_their_own(monkeypatch, capsys):
    monkeypatch.setattr(command, "USUAL", {"greedy": ALL["greedy"]})
    assert main(["warm-up"]) == 0
    assert "1 ways warm" in capsys.readouterr().out


def test_a_way_that_fails_is_named_with_its_error():
    with pytest.raises(BackendError, match="'no such way' failed: KeyError"):
        warm_up(["greedy", "no such way"])


def test_a_branch_that_is_killed_is_named(monkeypatch, capfd):
    monkeypatch.setitem(ALL, "greedy", lambda: os.kill(os.getpid(), signal.SIGKILL))
    monkeypatch.setitem(ALL, "trie-nothing", lambda: None)
    monkeypatch.setattr(module, "_graph", lambda: None)
    assert not module._run_in_branches(["greedy", "trie-nothing"])
    assert capfd.readouterr().err == "greedy ended with -9\n"


def test_ways_that_are_alike_run_in_one_process(monkeypatch, capfd):
    for name in ("wfst-a", "trie", "wfst-b"):
        monkeypatch.setitem(ALL, name, _tell_process(name))
    monkeypatch.setattr(module, "_graph", lambda: None)
    assert module._run_in_branches(["wfst-a", "trie", "wfst-b"])
    printed = dict(line.split() for line in capfd.readouterr().err.splitlines())
    assert printed["wfst-a"] == printed["wfst-b"] != printed["trie"]
    assert str(os.getpid()) not in printed.values()


def _tell_process(name):
    return lambda: print(name, os.getpid(), file=sys.stderr, flush=True)


GIB = 2**30


@pytest.mark.parametrize(
    ("free", "group", "limits", "expected"),
    [
        (64 * GIB, "0::/", {}, 8),
        (4 * GIB, "0::/", {}, 2),
        (GIB // 2, "0::/", {}, 1),
        (64 * GIB, "0::/", {"memory.max": "max"}, 8),
        (64 * GIB, "0::/a/b", {"a/memory.max": 4 * GIB, "a/b/memory.max": "max"}, 2),
        (64 * GIB, "4:memory:/a", {"memory/memory.limit_in_bytes": 2 * GIB}, 1),
        (64 * GIB, "", {"memory.max": GIB}, 8),  # no line: no group
    ],
)
def test_fewer_processes_compile_where_memory_is_short(
    free, group, limits, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    files = {"proc/meminfo": f"MemFree: 1 kB\nMemAvailable: {free // 1024} kB\n"}
    files["proc/self/cgroup"] = group + "\n" if group else ""
    files |= {f"groups/{name}": f"{limit}\n" for name, limit in limits.items()}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    proc, groups = str(tmp_path / "proc"), str(tmp_path / "groups")
    assert module.most_processes(proc, groups) == expected


def test_without_proc_the_cores_decide(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert module.most_processes(str(tmp_path), str(tmp_path)) == 8
