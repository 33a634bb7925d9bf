"""The benchmark of sessions: what it says of partial results and of rounds."""

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from tools.bench import sessions
from wfstdec import Decoder, Hypothesis, Partial
from wfstdec.search.hypothesis import Word

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


def partial(words, num_settled, num_frames):
    told = tuple(Word(text, 0.0, 0.1, 0, 1) for text in words.split())
    return Partial(told, num_settled, num_settled, num_frames, 0, 0.0)


def test_latencies_by_hand(monkeypatch):
    """The first word is shown after 10 frames, changed, and right again after 30."""
    words = tuple(
        Word(text, 0.0, 0.02 * end, 0, end) for text, end in (("a", 5), ("b", 28))
    )
    seen = [partial("a", 0, 10), partial("c d", 0, 20), partial("a b", 1, 30)]

    others = [field.name for field in fields(Hypothesis) if field.name != "words"]
    hypothesis = Hypothesis(words, **dict.fromkeys(others, 0))
    decoder = SimpleNamespace(frame_shift_s=0.02, decode=lambda _: [hypothesis])
    monkeypatch.setattr(sessions, "follow", lambda *_: (seen, hypothesis))
    row = sessions.measure_latency(decoder, [np.zeros((40, 3))], 10)
    assert row["words"] == 2 and row["only_in_the_end"] == 0
    assert row["shown_after_s"]["mean"] == pytest.approx((0.1 + 0.04) / 2)
    assert row["settled_after_s"]["mean"] == pytest.approx((0.5 + 0.24) / 2)
    assert row["changes_per_word"] == (1 + 2) / 2
