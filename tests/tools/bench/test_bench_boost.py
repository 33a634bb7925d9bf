"""What boosting costs, on a small recipe."""

import gzip
import json

import pytest
from cli_files import ARPA, recipe_of, write_files

from tools.bench import boost

pytestmark = pytest.mark.share


def test_a_run_has_a_row_for_each_list(tmp_path):
    recipe = recipe_of(write_files(tmp_path))
    (recipe / "lm.arpa").write_text(ARPA)
    (recipe / "lm.arpa.gz").write_bytes(gzip.compress(ARPA.encode()))
    given = ["--data", str(recipe), "--cache", str(recipe), "--case", "dev:lm"]
    given += ["--common", "0", "--repeats", "1", "--output", str(recipe / "run.json")]
    assert boost.main(given) == 0
    rows = json.loads((recipe / "run.json").read_text())["rows"]
    assert {row["search"] for row in rows} == {"wfst", "trie"}
    assert rows[0]["list"] == "none" and rows[0]["ratio"] == 1.0
