"""Where text and audio do not fit, read off a path by hand."""

from types import SimpleNamespace

import numpy as np

from wfstdec import AlignOptions
from wfstdec.align.reading import _Places
from wfstdec.align.search import Transcript
from wfstdec.search.nearness import Nearness


def misfits(below):
    """Misfits of words of two frames that cost so much more than their best."""
    frames = np.repeat(np.array(below, float), 2)
    near = Nearness(
        np.concatenate([[0.0], -np.cumsum(frames)]), np.arange(len(frames) + 1)
    )
    words = [
        SimpleNamespace(text=str(i), start_frame=2 * i, end_frame=2 * i + 2)
        for i in range(len(below))
    ]
    path = SimpleNamespace(words=words, num_frames=len(frames), frame_shift_s=0.5)
    found = SimpleNamespace(hypothesis=path)
    text = tuple("abcdefgh"[: len(below)])
    return [
        (one.kind, one.text, one.first_word, one.end_word, one.start_s, one.end_s)
        for one in _Places(found, near, Transcript(text, ()), AlignOptions()).by_words()
    ]


def test_weak_words_beside_each_other_are_one_misfit():
    """A planted fault that separated them was not found."""
    assert misfits([0, 20, 20, 0]) == [("weak", "b c", 1, 3, 1.0, 3.0)]
    assert misfits([20, 0, 20, 20, 20]) == [
        ("weak", "a", 0, 1, 0.0, 1.0),
        ("weak", "c d e", 2, 5, 2.0, 5.0),
    ]
    assert misfits([0, 1, 0]) == []
