"""Ctrl-C: within two seconds, as what the handler raises, and all runs on after it."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from random_graphs import dense_graph
from wfst_searches import NO_BOOSTS, bits

from wfstdec import WfstDecoder, WfstOptions
from wfstdec.search import threads as interrupts
from wfstdec.search.threads import (
    CallBudget,
    DeferredSignals,
    Workers,
    check,
    pass_through,
)
from wfstdec.wfst.cpu.backend import CpuBackend

ROOT = Path(__file__).parents[2]


def interrupt(number=signal.SIGINT):
    os.kill(os.getpid(), number)


class Slowly:
    """A search that takes a hundredth of a second for a frame, and remembers them."""

    def __init__(self, stop_at=None):
        self.seen, self.stop_at = [], stop_at

    def advance(self, part):
        self.seen.extend(part)
        if self.stop_at is not None and len(self.seen) >= self.stop_at:
            interrupt()
            self.stop_at = None
        time.sleep(0.0005 * len(part))


def test_what_a_handler_raises_waits_for_the_next_check():
    done = []
    with pytest.raises(KeyboardInterrupt), DeferredSignals() as held:
        interrupt()
        done.append("went on")
        held.check()
        done.append("and further")
    assert done == ["went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_that_raise_nothing_stop_nothing():
    """Handlers of servers only note that they should end."""
    signals = []
    before = signal.signal(signal.SIGTERM, lambda *given: signals.append(given[0]))
    try:
        with DeferredSignals() as held:
            interrupt(signal.SIGTERM)
            assert signals == [signal.SIGTERM]
            held.check()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_of_a_timeout_is_heard():
    def too_late(*_):
        raise TimeoutError("too late")

    before = signal.signal(signal.SIGALRM, too_late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(TimeoutError, match="too late"), Workers(2) as workers:
            workers.map(lambda _: time.sleep(0.01), range(1000))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_other_threads_hear_of_nothing():
    def work():
        with DeferredSignals():
            interrupt_heard.wait()
            check()
            found.append("done")

    found, interrupt_heard = [], threading.Event()
    thread = threading.Thread(target=work)
    thread.start()
    with pytest.raises(KeyboardInterrupt), DeferredSignals():
        interrupt()
    interrupt_heard.set()
    thread.join()
    assert found == ["done"]


@pytest.mark.parametrize("threads", [1, 3])
def test_all_threads_stop_and_work_again(threads):
    begun = []

    def work(item):
        begun.append(item)
        if len(begun) == 5:
            interrupt()
        time.sleep(0.01)

    with Workers(threads) as workers:
        with pytest.raises(KeyboardInterrupt):
            workers.map(work, range(1000))
        assert len(begun) < 20
        assert workers.map(len, ["a", "", "bc"]) == [1, 0, 2]


def test_a_thread_that_does_not_stop_is_left_alone_and_waited_for_later():
    """`KeyboardInterrupt` comes although a thread, one that compiles, continues."""
    began, ended = threading.Event(), []
    main = threading.get_ident()

    def work(item):
        if threading.get_ident() == main:
            began.wait()
            interrupt()
        else:
            began.set()
            time.sleep(2.0)
            ended.append(item)

    with Workers(2) as workers:
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            workers.map(work, range(2))
        assert time.monotonic() - start < 1.9
        assert not ended
        assert workers.map(len, ["a", ""]) == [1, 0]
        assert ended


def test_a_search_stops_between_parts_and_goes_on():
    search, pace = Slowly(stop_at=200), CallBudget()
    chunk = np.arange(3000)
    with pytest.raises(KeyboardInterrupt), DeferredSignals():
        pass_through(search, chunk, pace)
    done = len(search.seen)
    assert 200 <= done < 3000
    pass_through(search, chunk[done:], pace)
    assert search.seen == chunk.tolist()


def test_calls_of_kernels_are_short_and_not_shorter():
    pace = CallBudget()
    pace.note(pace.frames, 18.0)  # it compiled
    for _ in range(6):
        pace.note(pace.frames, pace.frames * 1e-5)
    assert pace.frames == 10_000
    pace.note(3, 0.001)  # a small chunk says little
    assert pace.frames == 10_000
    pace.note(10_000, 1.0)
    assert pace.frames == 1000


def test_kernels_in_parts_find_the_same_bits(monkeypatch):
    """Groups that are cut anywhere, also within utterances."""
    rng = np.random.default_rng(24)
    graph, options = dense_graph(rng, 6), WfstOptions(beam=3.0)
    lengths = [0, 30, 300, 1, 0, 200, 7]
    batch = [np.log(rng.dirichlet([0.3] * 3, n)).astype(np.float32) for n in lengths]
    backend = CpuBackend(graph)
    expected = [
        bits(path)
        for path in backend.decode_group(batch, options, NO_BOOSTS, CallBudget())
    ]
    for frames in (1, 7, 30, 31, 331):
        monkeypatch.setattr(CallBudget, "note", lambda *_: None)
        monkeypatch.setattr(interrupts, "FIRST_FRAMES", frames)
        found = backend.decode_group(batch, options, NO_BOOSTS, CallBudget())
        assert list(map(bits, found)) == expected


def test_a_session_that_was_interrupted_goes_on(monkeypatch):
    """`partial` tells how far it has come."""
    rng = np.random.default_rng(25)
    decoder = WfstDecoder(dense_graph(rng, 6), WfstOptions(beam=3.0), threads=1)
    logprobs = np.log(rng.dirichlet([0.3] * 3, 400)).astype(np.float32)
    [expected] = decoder.decode([logprobs])
    sessions = decoder.sessions()
    one = sessions.open()
    note = CallBudget.note
    monkeypatch.setattr(
        CallBudget, "note", lambda self, *given: interrupt() or note(self, *given)
    )
    with pytest.raises(KeyboardInterrupt):
        sessions.advance({one: logprobs})
    monkeypatch.undo()
    done = sessions.partial(one).num_frames
    assert 0 < done < 400
    sessions.advance({one: logprobs[done:]})
    assert sessions.close(one) == expected


@pytest.mark.parametrize("kind", ["wfst", "trie", "greedy", "others"])
@pytest.mark.share(keep=2)
def test_ctrl_c_in_python(kind):
    """Issue 24: 18 s later, when all was done, or as a SystemError."""
    child = ROOT / "tests" / "support" / "interrupted.py"
    done = subprocess.run(
        [sys.executable, child, kind],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, textwrap.indent(done.stderr, "  ")
