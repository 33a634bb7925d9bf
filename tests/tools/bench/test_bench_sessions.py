"""The benchmark of sessions: what it says of partial results and of rounds."""

from dataclasses import replace

import pytest

from tools.bench import sessions
from wfstdec import Decoder

pytestmark = pytest.mark.share


@pytest.fixture
def run(on_tiny_sets):
    """A function that runs the tool: its rows."""
    fixed = "--lm tiny --repeats 2 --counts 1 3 --chunk-ms 100 --minutes 0.1 --beams 9"

    def run(*given):
        status, written = on_tiny_sets(sessions, f"{fixed} --threads 1", *given)
        assert status == 0
        return written["rows"]

    return run


@pytest.mark.parametrize("decoder", ["wfst", "trie"])
def test_a_run(run, decoder):
    rows = run("--decoder", decoder)
    assert [row["kind"] for row in rows] == ["latency", *["round"] * 2, *["long"] * 2]
    latency, *rounds = rows[:3]
    assert latency["words"] > latency["only_in_the_end"]
    assert latency["settled_after_s"]["mean"] >= latency["shown_after_s"]["mean"]
    assert [row["sessions"] for row in rounds] == [1, 3]
    assert all(len(row["rounds_ms"]) == 2 for row in rounds)
    for row in rows[3:]:
        assert list(row["at"]) == ["0.0 min", "0.01 min", "0.05 min", "0.1 min"]


def test_a_result_that_differs_stops_the_run(run, monkeypatch):
    decode = Decoder.decode

    def other(self, *arguments, **named):
        found = decode(self, *arguments, **named)
        return [replace(one, total_cost=-1.0) for one in found]

    monkeypatch.setattr(Decoder, "decode", other)
    with pytest.raises(AssertionError, match="not that of the whole"):
        run()
