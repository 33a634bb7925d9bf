"""Boost lists without numbers: what is listed, and how searches with them score."""

import gzip
from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from tools.bench.lists import Contest, lists_of, measure  # noqa: E402

pytestmark = pytest.mark.share
REFERENCES = {"u": ("the", "quilter", "the"), "v": ("the", "bartley", "spoke")}


def test_lists_have_words_that_are_spoken_and_others():
    text = Counter({"the": 9, "never": 3, "once": 1, "spoke": 2, "o'er": 5, "other": 2})
    lists = lists_of(REFERENCES, text, 1)
    assert set(lists["100"]) == {"quilter", "bartley"}
    assert set(lists["1,000"]) == {*lists["100"], "never", "other"}
    assert lists["20,000 commonest"] == ["the", "never", "spoke", "other", "once"]


def test_rows_have_errors_and_scores(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"the the never never the\n"))

    def decode(listed):
        right = {*(listed or ())}
        return [
            SimpleNamespace(text=" ".join(w if w in right else "the" for w in words))
            for words in REFERENCES.values()
        ]

    contest = Contest("own", decode, list, REFERENCES)
    none, first, *_, last = measure([contest], path, 1)
    assert none["wer"] == 50 and none["f_score"] == 0 and "more" not in none
    assert first["more"] == pytest.approx(-100 / 3)
    assert first["low"] - 1e-3 <= first["more"] <= first["high"] + 1e-3
    assert first["precision"] == first["recall"] == first["f_score"] == 100
    assert last["list"] == "20,000 commonest" and last["more"] == 0
