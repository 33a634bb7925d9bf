"""The benchmark of segments: what it tells, and that it compares before it does."""

from dataclasses import replace

import pytest

from tools.bench import segments
from wfstdec import Sessions

pytestmark = pytest.mark.share


@pytest.fixture
def run(on_tiny_sets):
    """A function that runs the tool: its rows."""
    flags = "--lm tiny --repeats 1 --minutes 0.3 --beams 0.5 --every-s 1 --chunk-ms 200"

    def run():
        status, written = on_tiny_sets(segments, flags)
        assert status == 0
        return written["rows"]

    return run


def test_a_run(run):
    (row,) = run()
    assert row["minutes"] == 0.3 and row["words"] > 0
    for how in segments.HOWS:
        assert len(row[how]["kept_mb"]) == 10 and row[how]["cpu_s"] >= 0
    assert row["segments"]["segments"] >= 1
    assert row["segments"]["delay_s"]["most"] > 0
    assert row["segments"]["length_s"]["most"] >= 1


def test_a_segment_that_differs_stops_the_run(run, monkeypatch):
    settled = Sessions.settled_lattices

    def other(self, session, **named):
        found = settled(self, session, **named)
        for one in found:
            one.arcs["acoustic_cost"] += 1
        return [replace(one) for one in found]

    monkeypatch.setattr(Sessions, "settled_lattices", other)
    with pytest.raises(AssertionError, match="not those of the whole"):
        run()
