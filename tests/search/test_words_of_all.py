"""Words of many paths at once: what each path has alone."""

import numpy as np

from wfstdec import Lexicon, token_table
from wfstdec.search.paths.tokens import NO_PRON, TokenRows
from wfstdec.search.paths.words import PronouncedWords, Prons, SpanCutter
from wfstdec.text.vocabulary import Vocabulary


def drawn_path(rng, prons):
    """Whole words, perhaps none, with a filler between some, and one perhaps begun."""
    rows, frame, ended = [], 0, NO_PRON
    for pron in rng.integers(0, len(prons.word), rng.integers(0, 4)):
        if ended != NO_PRON and rng.random() < 0.5:
            rows.append((1, frame, frame + 1, ended))
            frame, ended = frame + 2, NO_PRON
        for _ in range(prons.length[pron]):
            rows.append((int(rng.integers(2, 4)), frame, frame + 1, ended))
            frame, ended = frame + int(rng.integers(1, 3)), NO_PRON
        ended = pron
    if ended != NO_PRON and rng.random() < 0.3:
        rows.append((1, frame, frame + 1, ended))
        ended = NO_PRON
    return TokenRows(np.array(rows, np.int32).reshape(-1, 4), int(ended))


def test_words_of_all_are_those_of_each():
    words = ("aa", "b", "ab")
    tokens = token_table(["<blank>", "|", "a", "b"])
    entries = Lexicon(words, ((2, 2), (3,), (2, 3)), np.zeros(3, np.float32))
    vocabulary = Vocabulary.of(tokens, ("<eps>", *words), lexicon=entries, separator=1)
    prons = Prons(
        np.array([1, 2, 3], np.int32),
        np.array([2, 1, 2], np.int32),
        np.array([0.1, 0.7, 1e-3], np.float32),
    )
    cutter = PronouncedWords(vocabulary, prons)
    rng = np.random.default_rng(0)
    for size in range(40):
        said = [drawn_path(rng, prons) for _ in range(size % 9)]
        found = cutter.words_of_all(said, [True] * len(said))
        expected = SpanCutter.words_of_all(cutter, said, [True] * len(said))
        assert found.words.texts == expected.words.texts
        assert np.array_equal(found.words.frames, expected.words.frames)
        assert (found.splits, found.counted) == (expected.splits, expected.counted)
