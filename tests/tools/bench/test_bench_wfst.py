"""The benchmark of the WFST decoder: no speed without equal costs."""

import pytest

pytest.importorskip("kaldi_decoder")

from tools.bench import wfst  # noqa: E402
from tools.peers import kaldi as kaldi_peer  # noqa: E402
from wfstdec import WfstOptions

pytestmark = pytest.mark.peers


@pytest.fixture
def sets(on_tiny_sets):
    """A function that runs the tool: its exit status and rows."""

    def run(*given):
        status, written = on_tiny_sets(wfst, "--lms tiny --repeats 2", *given)
        return status, written["rows"]

    return run


@pytest.mark.share
def test_a_run_compares_then_times(sets, capsys):
    status, rows = sets("--sets", "dev", "hard", "--beams", "7.013", "30.013")
    assert status == 0
    assert [(row["set"], row["setting"]["beam"]) for row in rows] == [
        ("dev", 7.013),
        ("dev", 30.013),
        ("hard", 7.013),
        ("hard", 30.013),
    ]
    for row in rows:
        assert row["costs"]["agree"] and row["costs"]["utterances"] == 6
        assert row["costs"]["largest_difference"] < 1e-5
        assert len(row["cpu_s"]) == len(row["kaldi"]["cpu_s"]) == 2
        slow, fast = min(row["kaldi"]["cpu_s"]), min(row["cpu_s"])
        assert row["ratio"] == pytest.approx(slow / fast, rel=0.05)
        assert row["rtfx"] == pytest.approx(row["audio_s"] / fast, rel=0.05)
        assert row["wer"] == 100 * sum(row["errors"]) / row["words"]
        assert row["active_per_frame"] > 0
    output = capsys.readouterr().out
    assert output.index("costs agree") < output.index("RTFx")
    assert "log-probs times 0.4" in output


@pytest.mark.parametrize("change", ["graph", "options"])
def test_no_speed_where_costs_disagree(sets, monkeypatch, capsys, change):
    if change == "graph":
        scaled = kaldi_peer.scaled_fst
        monkeypatch.setattr(kaldi_peer, "scaled_fst", lambda g, x: scaled(g, 0.999 * x))
    else:
        other = kaldi_peer.FasterDecoder

        def narrow(fst, options):
            return other(fst, WfstOptions(beam=0.5, max_active=2))

        monkeypatch.setattr(kaldi_peer, "FasterDecoder", narrow)
    status, rows = sets("--beams", "30")
    assert status == 1
    assert not rows[0]["costs"]["agree"] and rows[0]["costs"]["worst"]
    assert not any("rtfx" in key or "cpu_s" in key for key in rows[0])
    output = capsys.readouterr().out
    assert "COSTS DISAGREE" in output and "RTFx" not in output
