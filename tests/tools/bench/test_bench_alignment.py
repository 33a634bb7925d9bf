import json

import pytest

from tools.bench import alignment

pytestmark = pytest.mark.share


def test_a_small_run_has_rows_of_all_kinds(tmp_path, capsys):
    path = tmp_path / "run.json"
    given = ["--profile", "small", "--utterances", "12", "--cache", str(tmp_path)]
    assert alignment.main([*given, "--output", str(path)]) == 0
    assert "utterances have known words alone" in capsys.readouterr().out
    rows = json.loads(path.read_text())["rows"]
    by_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    for row in by_kind["beams"]:
        assert row["reached_end"] == row["utterances"] == row["as_exact"]
    [decoder] = by_kind["decoder"]
    assert decoder["within_0_frames"] <= decoder["within_2_frames"] <= 1
    assert decoder["within_2_frames"] > 0.95
    for row, minutes in zip(by_kind["long"], (0.5, 1.0), strict=True):
        assert row["minutes"] >= minutes and row["reached_end"]
    plain, *spoilt = by_kind["misfits"]
    assert plain["words"] > 50
    assert [row["text"] for row in spoilt] == [f"a word {k}" for k in alignment.KINDS]


KINDS = ("beams", "decoder", "long", "misfits")
