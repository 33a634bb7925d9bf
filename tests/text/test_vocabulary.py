"""Vocabularies: lexicons and rows of pronunciations, OOV words, what is remembered."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from wfstdec import Lexicon, token_table
from wfstdec.text.lexicon import word_ids
from wfstdec.text.vocabulary import OPEN_WORD, OovWords, Pronunciations, Vocabulary

TABLE = token_table(["<blank>", "|", "a", "b"])
LEXICON = Lexicon(
    ("ba", "no", "ab", "ba"), ((3, 2), (2,), (2, 3), (2,)), np.array([0, 1, 2, 3.0])
)
WORDS = ("<eps>", "ab", "ba")


@pytest.fixture
def vocabulary():
    return Vocabulary.of(TABLE, WORDS, LEXICON, separator=1)


def oov_words(vocabulary):
    """A new word, and a further pronunciation of a known one."""
    prons = {"bab": [(3, 2, 3)], "ab": [(2, 2)]}
    return OovWords.of(prons, {"bab": 1.0}, word_ids(WORDS), len(WORDS))


def rows(vocabulary):
    """(word, tokens, cost) of all pronunciations."""
    prons = vocabulary.pronunciations
    tokens = np.split(prons.tokens, prons.splits[1:-1])
    columns = zip(prons.word.tolist(), tokens, prons.cost.tolist(), strict=True)
    return [(vocabulary.words[w], tuple(t.tolist()), cost) for w, t, cost in columns]


def test_a_lexicon_by_word_id(vocabulary):
    assert rows(vocabulary) == [
        ("ab", (2, 3), 2.0),
        ("ba", (2,), 3.0),
        ("ba", (3, 2), 0.0),
    ]
    assert vocabulary.lexicon is LEXICON
    packed = replace(vocabulary, entries=vocabulary.pronunciations)
    assert packed.lexicon.words == ("ab", "ba", "ba")
    assert packed.lexicon.pronunciations == ((2, 3), (2,), (3, 2))


def test_without_words_there_is_no_lexicon():
    bare = Vocabulary.of(TABLE, separator=1)
    assert bare.words == () and bare.lexicon is None
    words = bare.with_tokens_as_words()
    assert words.words == ("<eps>", *TABLE.names) and not words.separated
    assert Vocabulary(TABLE, WORDS).lexicon.words == ()


@pytest.mark.parametrize(
    ("separators", "separated", "separator", "optional"),
    [((), False, None, False), ((1,), True, 1, False), ((1,), False, 1, True)]
    + [((1, 2), False, None, False), ((1, 2), True, None, False)],
)
def test_the_separator_is_the_only_one(separators, separated, separator, optional):
    one = Vocabulary(TABLE, separators=separators, separated=separated)
    assert (one.separator, one.separator_optional) == (separator, optional)


def test_oov_words_follow_the_others(vocabulary):
    found = vocabulary.with_oov(oov_words(vocabulary))
    assert found.words == (*WORDS, "bab") and found.own is vocabulary
    assert rows(found) == [
        ("ab", (2, 3), 2.0),
        ("ab", (2, 2), 0.0),
        ("ba", (2,), 3.0),
        ("ba", (3, 2), 0.0),
        ("bab", (3, 2, 3), 0.0),
    ]
    assert vocabulary.with_oov(None) is vocabulary is vocabulary.own


def test_oov_words_follow_the_label_of_open_words(vocabulary):
    """Ids of OOV words in a search of a trie leave no room for open words."""
    opened = vocabulary.with_open_word("letters", 0.5, 2.0)
    assert opened.words == (*WORDS, OPEN_WORD)
    assert opened.open_word == (3, "letters", 0.5, 2.0)
    found = opened.with_oov(oov_words(vocabulary))
    assert found.words == (*WORDS, OPEN_WORD, "bab")
    assert rows(found)[-1] == ("bab", (3, 2, 3), 0.0)
    assert found.open_spelling.text([3, 2]) == "ba"


def test_a_lexicon_does_not_pronounce_the_label_of_open_words(vocabulary):
    lexicon = Lexicon(("ab", OPEN_WORD), ((2, 3), (2,)), np.zeros(2))
    opened = replace(vocabulary, entries=lexicon).with_open_word("letters", 0, 0)
    assert rows(opened) == [("ab", (2, 3), 0.0)]


def test_pickles_remember_nothing(vocabulary):
    made = vocabulary.with_oov(oov_words(vocabulary))
    for one in (vocabulary, made):
        again = pickle.loads(pickle.dumps(one))
        assert again.words == one.words and rows(again) == rows(one)
        assert isinstance(again.pronunciations, Pronunciations)
