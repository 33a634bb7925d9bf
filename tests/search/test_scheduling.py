"""Threads, and what backends on the host have in common."""

import threading
import time

import numpy as np
import pytest

from wfstdec import CompiledBoosts, Sessions
from wfstdec.boost.words import compile_word_boosts
from wfstdec.errors import InputError
from wfstdec.search.backend import Reader
from wfstdec.search.threads import HostBackend, Workers

NO_BOOSTS = CompiledBoosts(compile_word_boosts(None, {})[0])


class Adding:
    """A search that adds log-probs up; it fails where they are below -9."""

    def __init__(self, recorded):
        self.recorded, self.total = recorded, 0.0

    def advance(self, logprobs):
        if (logprobs < -9).any():
            raise ZeroDivisionError("too little")
        self.total += float(logprobs.sum())

    def look(self):
        return self.total

    def finish(self):
        return self.total, self.recorded


class AddingBackend(HostBackend):
    def __init__(self):
        super().__init__(2)

    def start(self, options, boosts, *, record=False):
        return Adding(record)


class AddingReader(Reader):
    def hypothesis(self, found):
        return found

    def partial(self, look):
        return look


def frames(*values):
    return np.array([[value, 0] for value in values], np.float32).reshape(-1, 2)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_are_in_order_whoever_made_them(threads):
    with Workers(threads) as workers:
        for count in (0, 1, 7, 40):
            assert workers.map(lambda x: x * x, range(count)) == [
                x * x for x in range(count)
            ]


def test_nothing_goes_on_behind_an_error():
    under_way, main = [], threading.get_ident()

    def work(item):
        if threading.get_ident() == main:
            raise InputError("no good")
        under_way.append(item)
        time.sleep(0.01)
        under_way.remove(item)

    workers = Workers(3)
    with pytest.raises(InputError, match="no good"):
        workers.map(work, range(20))
    assert under_way == []
    assert workers.map(len, ["a", ""]) == [1, 0]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_backend_on_the_host_decodes_and_reads(threads):
    batch = [frames(-1), frames(-2, -3), frames()]
    with Workers(threads) as workers:
        backend, boosts = AddingBackend(), [NO_BOOSTS] * 3
        assert backend.decode(batch, None, boosts, workers=workers) == [
            (-1.0, False),
            (-5.0, False),
            (0.0, False),
        ]
        found = backend.decode(
            *(batch, None, boosts),
            record=True,
            workers=workers,
            read=lambda i, one: (i, *one),
        )
    assert found == [(0, -1.0, True), (1, -5.0, True), (2, 0.0, True)]


@pytest.mark.parametrize("threads", [1, 3])
def test_sessions_need_a_backend_and_a_reader_but_no_decoder(threads):
    def no_lists():
        raise InputError("only the best")

    sessions = Sessions(
        AddingBackend(),
        "options",
        lambda boosts: NO_BOOSTS,
        lambda boosts: AddingReader(),
        threads=threads,
        lattices=False,
        check_nbest=no_lists,
        check_input=lambda frames: None,
    )
    a, b, c = sessions.open(), sessions.open(session="b"), sessions.open()
    sessions.advance({a: frames(-1), "b": frames(-2, -3), c: frames()})
    assert [sessions.partial(one) for one in (a, b, c)] == [-1.0, -5.0, 0.0]
    for one in (b, c):  # other people's errors name the session by a note
        with pytest.raises(ZeroDivisionError) as caught:
            sessions.advance({a: frames(-1), one: frames(-10)})
        assert caught.value.__notes__ == [f"wfstdec: utterance {one!r}"]
    with pytest.raises(InputError, match="only the best"):
        sessions.close_nbest(a)
    assert sessions.close("b") == (-5.0, False) and len(sessions) == 2
