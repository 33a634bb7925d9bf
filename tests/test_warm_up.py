"""Kernels compiled before anyone waits for them."""

import json
import os
import signal
import sys

import pytest
from processes import python

from wfstdec import warm_up as module
from wfstdec.cli import warm_up as command
from wfstdec.cli.main import main
from wfstdec.errors import BackendError
from wfstdec.warm_up import ALL, USUAL, warm_up

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
    said = dict(line.split() for line in capfd.readouterr().err.splitlines())
    assert said["wfst-a"] == said["wfst-b"] != said["trie"]
    assert str(os.getpid()) not in said.values()


def _tell_process(name):
    return lambda: print(name, os.getpid(), file=sys.stderr, flush=True)


def test_all_ways_are_more_than_the_usual_ones():
    assert USUAL.keys() < ALL.keys()
