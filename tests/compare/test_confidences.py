"""Measures of confidences, by hand and against their definitions."""

import numpy as np
import pytest

from wfstdec import TrieDecoder, spelling_lexicon
from wfstdec.compare.quality import quality, right_words
from wfstdec.errors import FormatError
from wfstdec.text.tokens import token_table


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


def test_a_word_that_is_not_in_the_vocabulary_has_a_low_acoustic_confidence():
    """By its definition, of a decoder that may say `ab` and `b` alone."""
    tokens = ["<blank>", "|", "a", "b", "c"]
    decoder = TrieDecoder(
        tokens=tokens, lexicon=spelling_lexicon(["ab", "b"], token_table(tokens))
    )
    rng = np.random.default_rng(3)
    x = np.log(rng.dirichlet(np.full(5, 0.3), 12)).astype(np.float32).clip(-20)
    x[0, 2], x[2, 3] = 0, 0
    x[8] = -6, -1, -6, -3, 0  # a c, which is no word
    x[7] = x[9] = 0, -1, -9, -9, -9
    [found] = decoder.decode([x], confidence=True)
    at = np.zeros(len(x), int)
    for token, *span in zip(found.token_ids, *found.token_frames, strict=True):
        at[slice(*span)] = token
    for word in found.words:
        span = slice(word.start_frame, word.end_frame)
        rows, own = x[span], at[span]
        counted = (own > 0) | (rows.argmax(1) > 0)
        near = rows[np.arange(len(own)), own] - rows.max(1)
        assert word.acoustic_confidence == pytest.approx(np.exp(near[counted].mean()))
    assert min(word.acoustic_confidence for word in found.words) < 0.3
    assert decoder.decode([x])[0].words[0].acoustic_confidence is None


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
