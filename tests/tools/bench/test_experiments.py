"""The experiments: their word lists, and each of them on a small recipe."""

import gzip
import json
import logging
from pathlib import Path

import pytest
from cli_files import ARPA, recipe_of, write_files

from tools.bench.boost import list_size, magnitude, weights
from wfstdec.errors import WfstdecError


@pytest.fixture(autouse=True)
def quiet_again():
    """Set back the log levels that the tool's flags set: other tests read logs."""
    loggers = [logging.getLogger(name) for name in ("wfstdec", "wfstdec.compare")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def recipe(tmp_path):
    """The files of a recipe; of its words all but `rare` are said."""
    recipe = recipe_of(write_files(tmp_path))
    text = ARPA.replace("ngram 1=5", "ngram 1=6")
    text = text.replace("-99\t<s>", "-1.7\trare\n-99\t<s>")
    (recipe / "lm.arpa").write_text(text)
    (recipe / "lm.arpa.gz").write_bytes(gzip.compress(text.encode()))
    return recipe


def run(experiment, recipe, *more):
    given = ["--data", str(recipe), "--cache", str(recipe), "--case", "dev:lm"]
    given += ["--repeats", "1", "--output", str(recipe / "run.json"), *more]
    assert experiment.main(given) == 0
    report = json.loads((recipe / "run.json").read_text())
    assert report["tool"] == f"tools.bench.boost.{Path(experiment.__file__).stem}"
    assert report["machine"]["cpu"] and str(recipe) not in json.dumps(report)
    return report["rows"]


def test_an_output_that_cannot_be_written_is_an_error_at_once():
    with pytest.raises(WfstdecError, match="no/run.json: cannot write: no such"):
        magnitude.main(["--data", "no", "--output", "no/run.json"])


@pytest.mark.share
@pytest.mark.parametrize(
    ("experiment", "more", "expected"),
    [
        (magnitude, "--magnitudes 1 --beams 9", ["none", "accurate", "inaccurate"]),
        (magnitude, "--magnitudes 1 --beams 9 --for-all", ["none", "accurate"]),
        (list_size, "--sizes 2 3 --keys 2", ["none", "word", "unnumbered", "token"]),
        (list_size, "--sizes 2 --keys 2 --own", ["none", "word", "unnumbered"]),
    ],
)
def test_lists_of_words(recipe, experiment, more, expected):
    rows = run(experiment, recipe, "--common", "0", *more.split())
    assert [row["list"] for row in rows[: len(expected)]] == expected
    assert rows[0]["wer"] == 0.0
    assert {row["search"].split(",")[0] for row in rows} == {"WFST", "trie"}


@pytest.mark.share
def test_credit_of_a_phrase(recipe):
    more = ["--common", "0", "--magnitudes", "1", "--no-peer", "--others", "1"]
    rows = run(weights, recipe, *more)
    assert [(row["search"], row["magnitude"]) for row in rows] == [
        (f"trie, {spread}", nats)
        for spread in ("words", "totals", "tree", "uniform")
        for nats in (0.0, 1.0)
    ]
    assert all(row["wer"] == 0.0 and row["words"] == 4 for row in rows)
