"""The benchmark of rows of LG: both searches are compared before they are timed."""

import json

import pytest

from tools.bench import rows

pytestmark = pytest.mark.share


def test_a_small_run_tells_ratios(tmp_path, capsys):
    output = tmp_path / "run.json"
    given = ["--profile", "small", "--kinds", "oov", "lattices"]
    assert rows.main([*given, "--output", str(output)]) == 0
    oov, lattices = json.loads(output.read_text())["rows"]
    assert (oov["kind"], lattices["kind"]) == ("oov", "lattices")
    assert oov["packed_ratio"] > 0 and oov["results"] == 4
    assert lattices["packed_ratio"] > 0 and lattices["arcs_per_frame"] > 1
    assert "oov" in capsys.readouterr().out


def test_chunks_of_all_sizes_are_measured(tmp_path):
    output = tmp_path / "run.json"
    given = ["--profile", "small", "--kinds", "chunks", "chunks-words"]
    assert rows.main([*given, "--chunk", "16", "--output", str(output)]) == 0
    plain, boosted = json.loads(output.read_text())["rows"]
    assert plain["chunk"] == boosted["chunk"] == 16
    assert plain["packed_ratio"] > 0 and boosted["results"] == 4
