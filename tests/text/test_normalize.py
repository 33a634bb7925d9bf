"""Words as they are compared: case, punctuation, Unicode."""

import numpy as np
import pytest

from wfstdec.text.display import extend_text, join_words
from wfstdec.text.normalize import AS_IT_STANDS, IGNORE_CASE, NORMALIZE, Normalizer


@pytest.mark.parametrize(
    "words, text",
    [
        ("hello world", "hello world"),
        ("今天 天气 。 很 iPhone 好", "今天天气。很 iPhone 好"),
        ("スマホ で 見る", "スマホで見る"),
        ("ฉัน กิน ข้าว", "ฉันกินข้าว"),
        ("나는 밥을 먹는다", "나는 밥을 먹는다"),  # Korean has spaces
        ("𠮷 野家", "𠮷野家"),  # beyond 16 bits
        ("", ""),
    ],
)
def test_words_are_joined_as_in_their_script(words, text):
    grown = ""
    for word in words.split():
        grown += extend_text(grown, word)
    assert join_words(words.split()) == grown == text
    assert join_words(words.split(), "_") == words.replace(" ", "_")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Mister Quilter", "mister quilter"),
        ("it’s ‘quoted’ 'so' rock'n'roll dogs'", "it's quoted so rock'n'roll dogs"),
        ("well-known — state–of‐the-art a/b", "well known state of the art a b"),
        ("3.5 1,000 10:30 3. (4)", "3.5 1,000 10:30 3 4"),
        ("“Good,” she said... (twice!)", "good she said twice"),
        ("ＦＵＬＬ ﬁne cafe\u0301", "full fine caf\u00e9"),  # wide, ligature, composed
        ("Straße STRASSE", "strasse strasse"),
        ("हिन्दी में", "हिन्दी में"),  # marks of scripts stay
        ("می\u200cخواهم soft\u00adly \ufeffx", "می\u200cخواهم softly x"),
        ("<unk> [noise] <b>", "<unk> [noise] <b>"),
        ("- , --", ""),
        ("snake_case \u2581piece", "snake case piece"),
    ],
)
def test_normalized_words(text, expected):
    found = NORMALIZE.words(text.split())
    assert list(found) == expected.split()
    assert NORMALIZE.words(found) == found  # a second time changes nothing


def test_case_alone_leaves_the_number_of_words():
    words = ("Well-Known,", "It’s", "-", "ÉTÉ")
    assert IGNORE_CASE.words(words) == ("well-known,", "it’s", "-", "été")
    assert AS_IT_STANDS.words(words) == words
    turkish = "ISPARTA İSTANBUL ısparta istanbul", "Straße STRASSE"
    for text in turkish:
        one, other = np.split(np.array(IGNORE_CASE.words(text.split())), 2)
        assert (one == other).all()
    assert AS_IT_STANDS.stronger == (IGNORE_CASE, NORMALIZE)
    assert IGNORE_CASE.stronger == (NORMALIZE,) and NORMALIZE.stronger == ()
    assert IGNORE_CASE.texts({"u": words[:1]}) == {"u": ("well-known,",)}


def test_characters_do_not_depend_on_spaces_or_on_how_unicode_composes_them():
    by = Normalizer(characters=True)
    assert by.words(["今天", "好"]) == by.words(["今", "天好"]) == ("今", "天", "好")
    assert by.words(["e\u0301t\u00e9"]) == ("\u00e9", "t", "\u00e9")
    assert by.words(["<unk>", "Ab"]) == ("<unk>", "A", "b")
    loose = Normalizer(normalize=True, characters=True)
    assert loose.words(["Well-known,"]) == tuple("wellknown")
    assert all(one.characters for one in by.stronger)
