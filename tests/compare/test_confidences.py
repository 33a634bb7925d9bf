"""Measures of confidences, by hand and against their definitions."""

import numpy as np
import pytest

from wfstdec.compare.quality import quality, right_words
from wfstdec.errors import FormatError


def test_by_hand():
    assert right_words("a b c".split(), "a x c d".split()) == [True, False, True, False]
    assert right_words([], ["a"]) == [False]
    right = [True, True, False, False]
    assert quality([0.5] * 4, right).nce == pytest.approx(0)
    assert quality([1, 1, 0, 0], right).nce == pytest.approx(1, abs=1e-4)
    assert quality([0, 0, 1, 1], right).nce < -10
    assert quality([0.9, 0.8, 0.2, 0.1], right).auc == 1
    assert quality([0.9, 0.1, 0.2, 0.1], right).auc == 0.625
    found = quality([0.95, 1.0, 0.1, 0.12], right).bins
    assert found == [(pytest.approx(0.11), 0.0, 2), (pytest.approx(0.975), 1.0, 2)]
    with pytest.raises(FormatError, match="2 of 2 words are right"):
        quality([0.5, 0.6], [True, True])


def test_the_area_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p, right = rng.integers(0, 6, 20) / 5, rng.random(20) < 0.6
        if right.all() or not right.any():
            continue
        p = np.clip(p, 1e-6, 1 - 1e-6)
        pairs = p[right][:, None] - p[~right][None]
        expected = (pairs > 0).mean() + (pairs == 0).mean() / 2
        assert quality(p, right).auc == pytest.approx(expected)
