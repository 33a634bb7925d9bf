"""Real utterances cut into phones, and others put together from them."""

import numpy as np
import pytest

from tools.data.speech_units import UnitStore, say, vary

BLANK, SEPARATOR, A, B, C = range(5)
WORDS = {"ab": [(A, B)], "c": [(C,), (B, C)], "ba": [(B, A)]}


def peaky(tokens):
    """Log-probs [T, 5] with one clear token for each frame."""
    probs = np.full((len(tokens), 5), 0.02)
    probs[np.arange(len(tokens)), tokens] = 0.92
    return np.log(probs)


def spoken(tokens, text):
    said = say(peaky(tokens), text.split(), WORDS, blank=BLANK, separator=SEPARATOR)
    assert said is not None
    return said


def test_an_utterance_is_cut_by_hand():
    one = spoken([0, 0, A, 0, 0, B, 0, 0, 1, 0, 1, 0, 0, B, C, C, 0], "ab c")
    assert one.said == [(A, B), (B, C)]
    assert one.units == [
        (5, 0, 2),  # the silence before
        (A, 2, 4),
        (B, 4, 7),
        (SEPARATOR, 7, 12),  # both separators and the pause
        (B, 12, 14),
        (C, 14, 16),
        (6, 16, 17),  # the silence behind
    ]
    assert one.words == [(2, 7), (12, 16)]


def test_frames_that_are_too_few_are_told():
    assert say(peaky([A]), ["ab"], WORDS, blank=BLANK, separator=SEPARATOR) is None


@pytest.fixture(scope="module")
def store():
    first = spoken([0, A, 0, B, 0, 1, 0, C, 0, 0], "ab c")
    second = spoken([0, B, B, 0, A, 1, 1, A, B, 0], "ba ab")
    return UnitStore([first, second], [0, 1], 5, BLANK)


def items(store, *inner):
    return np.array([store.begin, *inner, store.end])


def test_what_is_put_together_says_its_items(store):
    rng = np.random.default_rng(4)
    wanted = items(store, C, SEPARATOR, B, A, B)
    for _ in range(20):
        rows, edges = store.simulate(wanted, rng)
        assert rows.shape == (edges[-1], 5)
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.logaddexp.reduce(rows, 1), 0.0, atol=1e-5)
        assert (np.diff(edges) >= 0).all()
        for item, start, stop in zip(wanted, edges, edges[1:], strict=False):
            seen = set(rows[start:stop].argmax(1).tolist())
            assert seen <= ({BLANK} if item >= 5 else {BLANK, item})
            assert item >= 5 or item in seen, "a peak is never dropped"


def test_neighbours_are_kept_where_they_were_said(store):
    """The only C behind a separator behind a B is in the first utterance."""
    rng = np.random.default_rng(5)
    lengths = {
        store.simulate(items(store, A, B, SEPARATOR, C), rng)[1][-1] for _ in range(9)
    }
    assert min(lengths) >= 6 and len(lengths) > 1, "and the rate is varied"


def test_the_seed_decides(store):
    def make(seed):
        return store.simulate(items(store, A, B), np.random.default_rng(seed))[0]

    np.testing.assert_array_equal(make(1), make(1))
    assert make(1).shape != make(2).shape or (make(1) != make(2)).any()


def test_items_that_nobody_said_are_known(store):
    assert store.known.tolist() == [False, True, True, True, True, True, True]


def test_varied_rows_are_normalised_and_near():
    rows = peaky([0, A, 0, B]).astype(np.float32)
    kept = rows.copy()
    found = vary(rows, np.random.default_rng(1))
    np.testing.assert_array_equal(rows, kept)
    np.testing.assert_allclose(np.logaddexp.reduce(found, 1), 0.0, atol=1e-5)
    assert (found.argmax(1) == rows.argmax(1)).all()
    assert 0.05 < np.abs(found - rows).mean() < 1.0
