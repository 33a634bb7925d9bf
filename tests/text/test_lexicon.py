"""Lexicons: files of all kinds, spellings, and what is wrong with bad ones."""

import bz2
import gzip
import itertools
import logging
import lzma
import math
import sys

import numpy as np
import pytest

from wfstdec import (
    ForcedAligner,
    Lexicon,
    NgramLM,
    read_lexicon,
    read_tokens,
    spelling_lexicon,
    token_table,
)
from wfstdec.errors import (
    BackendError,
    FormatError,
    LexiconError,
    OptionError,
    TokenTableError,
)
from wfstdec.lm.on_demand import OnDemandLM
from wfstdec.text.lexicon import load_lexicon, spellable_words

TOKENS = token_table(["<blk>", "a", "b", "ey1", "|", "c"])
LETTERS = token_table(["<blk>", "|", "'", *"abcdefghijklmnopqrstuvwxyz", "<unk>"])


def read(tmp_path, content, tokens=TOKENS, **options):
    path = tmp_path / "lexicon.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_lexicon(path, tokens, **options)


def entries(lexicon, tokens=TOKENS):
    """`[("word", "its tokens"), ...]`."""
    spelt = [" ".join(tokens.names[t] for t in p) for p in lexicon.pronunciations]
    return list(zip(lexicon.words, spelt, strict=True))


def test_a_lexicon_by_hand(tmp_path):
    lexicon = read(tmp_path, "able\tey1 b a\nbe\tb\nbe\tb a\n")
    assert lexicon.words == ("able", "be", "be")
    assert lexicon.pronunciations == ((3, 2, 1), (2,), (2, 1))
    assert lexicon.costs.dtype == np.float32
    assert lexicon.costs.tolist() == [0, 0, 0]
    assert len(lexicon) == 3


def test_restrict_names_the_dropped_words_once(tmp_path):
    lexicon = read(tmp_path, "w 0.5 a\nx 1 b\nw 0.25 c\ny 0.1 a\nx 1 c\n")
    kept, dropped = lexicon.restrict({"w", "y", "z"})
    assert entries(kept) == [("w", "a"), ("w", "c"), ("y", "a")]
    np.testing.assert_allclose(kept.costs, -np.log([0.5, 0.25, 0.1]), rtol=1e-6)
    assert dropped == ["x"]


AB = [("ab", "a b"), ("é", "ey1")]
FORMS = {
    "tabs": ("ab\ta\tb\né\tey1\n", {}, AB),
    "spaces": ("ab   a  b \n  é ey1", {}, AB),
    "CRLF and empty lines": ("ab a b\r\n\r\né ey1\r\n", {}, AB),
    "byte-order mark": ("\ufeffab a b\né ey1\n", {}, AB),
    "comments": (";;; a\nab a b\n# a b\n#\né ey1 # name, french\n", {}, AB),
    "gzip": (gzip.compress("ab a b\né ey1\n".encode()), {}, AB),
    "bzip2": (bz2.compress("ab a b\né ey1\n".encode()), {}, AB),
    "xz": (lzma.compress("ab a b\né ey1\n".encode()), {}, AB),
    "trailing separators": ("ab a b |\né ey1\n", {"separator": "|"}, AB),
    "separator by index": ("ab a b |\né ey1 | |\n", {"separator": 4}, AB),
    "not a separator": ("ab a b |\na| | a\n", {}, [("ab", "a b |"), ("a|", "| a")]),
    "probabilities": ("ab 1 a b\né 1.0 ey1\n", {}, AB),
    "asked for": ("ab 1 a b\né 1 ey1\n", {"has_probs": True}, AB),
    "no-break space in a word": ("a\u00a0b a\n", {}, [("a\u00a0b", "a")]),
    "alternates": ("ab a b\nab(2) a\n", {}, [("ab", "a b"), ("ab", "a")]),
    "no alternate": ("ba(2) a\nab b\n", {}, [("ba(2)", "a"), ("ab", "b")]),
    "a word that is a hash": ("# a\n#1 a\n##  b\n", {}, [("#1", "a"), ("##", "b")]),
}


@pytest.mark.parametrize(("content", "options", "expected"), FORMS.values(), ids=FORMS)
def test_forms(tmp_path, content, options, expected):
    lexicon = read(tmp_path, content, **options)
    assert entries(lexicon) == expected
    assert lexicon.costs.tolist() == [0] * len(expected)
    assert not np.signbit(lexicon.costs).any()


def test_numbers_that_are_tokens_are_no_probabilities(tmp_path):
    digits = token_table(["-", "1", "0", "#"])
    lexicon = read(tmp_path, "ten 1 0\none 1 #\n", digits)
    assert entries(lexicon, digits) == [("ten", "1 0"), ("one", "1 #")]
    lexicon = read(tmp_path, "ten 1 1 0\none 1 1\n", digits, has_probs=True)
    assert entries(lexicon, digits) == [("ten", "1 0"), ("one", "1")]


def test_repeated_entries_are_read_once(tmp_path, caplog):
    caplog.set_level(logging.INFO, "wfstdec")
    lexicon = read(tmp_path, "x .5 a\ny 1 b\nx .25 a\nx .75 a |\n", separator="|")
    assert entries(lexicon) == [("x", "a"), ("y", "b")]
    assert lexicon.costs[0] == np.float32(-math.log(0.75))
    assert "2 duplicate entries are merged, first 'x' in line 3" in caplog.text


PIECES = token_table(["<blk>", "▁", "▁a", "▁ab", "a", "b", "bc", "c", "<unk>"])


@pytest.mark.parametrize(
    ("tokens", "separator", "word", "expected"),
    [
        (PIECES, None, "abc", "▁ab c"),
        (PIECES, None, "bca", "▁ bc a"),
        (token_table(["-", "▁", "a"]), "▁", "aa", "a a"),
        (token_table(["-", "t", "th", "he", "e", "h"]), None, "the", "th e"),
        (token_table(["<pad>", "|", " ", "x"]), "|", "x", "x"),
    ],
    ids=["ties: longest first", "lone mark", "mark as separator", "letters", "space"],
)
def test_words_are_cut_into_the_fewest_tokens(tokens, separator, word, expected):
    lexicon = spelling_lexicon([word], tokens, separator=separator)
    assert entries(lexicon, tokens) == [(word, expected)]


def test_spelling_against_all_segmentations():
    rng = np.random.default_rng(5)
    for _ in range(50):
        pool = [
            "".join(p) for n in (1, 2, 3) for p in itertools.product("xyz", repeat=n)
        ]
        pieces = [p for p in pool if len(p) == 1 or rng.random() < 0.3]
        word = "".join(rng.choice(list("xyz"), size=rng.integers(1, 8)))
        cuts = itertools.product([False, True], repeat=len(word) - 1)
        ways = [segments(word, cut) for cut in cuts]
        ways = [way for way in ways if set(way) <= set(pieces)]
        best = min(ways, key=lambda way: (len(way), [-len(piece) for piece in way]))
        tokens = token_table(["-", *pieces])
        assert entries(spelling_lexicon([word], tokens), tokens) == [
            (word, " ".join(best))
        ]


def segments(word, cut_behind):
    starts = [0, *(i + 1 for i, cut in enumerate(cut_behind) if cut)]
    return [word[i:j] for i, j in zip(starts, [*starts[1:], len(word)], strict=True)]


@pytest.mark.peers
def test_spelling_as_a_sentencepiece_model_does(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    text = ["the cat sat on the mat", "that hat is the hat of the cat", "a cat"] * 20
    prefix = str(tmp_path / "m")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_prefix=prefix, vocab_size=18, minloglevel=2
    )
    tokens = read_tokens(f"{prefix}.vocab", blank=18)
    words = sorted(set(" ".join(text).split()))
    lexicon = spelling_lexicon(words, tokens, sentencepiece_model=f"{prefix}.model")
    assert lexicon.words == tuple(words)
    for word, spelt in entries(lexicon, tokens):
        assert spelt.replace(" ", "") == f"▁{word}"
    with pytest.raises(LexiconError, match=r"1 of 2 words .*: 'Ω'; no token has 'Ω'"):
        spelling_lexicon(["cat", "Ω"], tokens, sentencepiece_model=f"{prefix}.model")
    (tmp_path / "bad.model").write_bytes(b"no model")
    with pytest.raises(
        FormatError, match="bad.model: not a readable SentencePiece model"
    ):
        spelling_lexicon(["cat"], tokens, sentencepiece_model=tmp_path / "bad.model")


def test_a_model_needs_sentencepiece(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(BackendError, match="pip install sentencepiece"):
        spelling_lexicon(["cat"], LETTERS, sentencepiece_model="m.model")


ERRORS = [
    ("x a\n\nx ey2\n", 3, "'x' uses token 'ey2', which the token table does not have; "
     "nearest: 'ey1'"),
    ("x a\nx\n", 2, "'x' has no pronunciation, expected tokens after it"),
    ("x |\n", 1, "'x' has no pronunciation, expected tokens after it"),
    ("x 0.5\n", 1, "'x' has no pronunciation, expected tokens after it"),
    ("x # comment\n", 1, "'x' has no pronunciation, expected tokens after it"),
    ("x a <blk> b\n", 1, "'x' uses the blank '<blk>', expected other tokens"),
    ("x a | b |\n", 1, "'x' has the separator '|' inside, expected it at the end only"),
    ("x | a\n", 1, "'x' has the separator '|' inside, expected it at the end only"),
    ("x .5 a\nx b a\n", 2, "'x' has 'b', expected a probability above 0 and up to 1"),
    ("x 0 a\n", 1, "'x' has '0', expected a probability above 0 and up to 1"),
    ("x 1.5 a\n", 1, "'x' has '1.5', expected a probability above 0 and up to 1"),
    ("x nan a\n", 1, "'x' has 'nan', expected a probability above 0 and up to 1"),
    ("x .5 a\nx\n", 2, "'x' has '', expected a probability above 0 and up to 1"),
    ("x a\nx 0.5 a\n", 2, "'x' uses token '0.5', which the token table does not have"),
    ("<eps> a\n", 1, "word '<eps>' is not a word, expected another name"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "line", "message"), ERRORS)
def test_errors_name_the_line(tmp_path, content, line, message):
    with pytest.raises(LexiconError) as raised:
        read(tmp_path, content, separator="|")
    assert str(raised.value) == f"{tmp_path / 'lexicon.txt'}:{line}: {message}"


def test_errors_of_the_whole(tmp_path):
    with pytest.raises(
        LexiconError, match="lexicon.txt: no entries, expected 'word tok"
    ):
        read(tmp_path, "# nothing\n")
    with pytest.raises(
        FormatError, match=r"lexicon.txt:2: found b'\\xe9', expected UTF-8"
    ):
        read(tmp_path, b"x a\n\xe9 ey1\n")
    with pytest.raises(
        TokenTableError, match="^separator: token '<wb>', which the tok"
    ):
        read(tmp_path, "x a\n", separator="<wb>")
    for separator in ("<blk>", 0, 6, -1):
        with pytest.raises(
            LexiconError, match=f"separator is {separator!r}, expected one"
        ):
            read(tmp_path, "x a\n", separator=separator)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cab", "naïve"], "1 of 2 words cannot be spelt with the token table, "
         "expected none: 'naïve'; no token has 'ï'"),
        (["HE", "I"], "2 of 2 words cannot be spelt with the token table, "
         "expected none: 'HE', 'I'; no token has 'E', 'H', 'I', but in the other case"),
        ([f"a{digit}" for digit in range(7)], "7 of 7 words cannot be spelt with the "
         "token table, expected none: 'a0', 'a1', 'a2', 'a3', 'a4', ...; "
         "no token has '0', '1', '2', '3', '4'"),
        (["a|b"], "1 of 1 words cannot be spelt with the token table, expected none: "
         "'a|b'; no token has '|'"),
    ],
)  # fmt: skip
def test_words_that_cannot_be_spelt(words, message):
    with pytest.raises(LexiconError) as raised:
        spelling_lexicon(words, LETTERS, separator="|")
    assert str(raised.value) == message


A_TEXT = {
    "Lexicon": lambda t: Lexicon("ab", ((1,), (2,)), np.zeros(2, np.float32)),
    "spelling_lexicon": lambda t: spelling_lexicon("words.txt", t),
    "spellable_words": lambda t: spellable_words("words.txt", t),
    "NgramLM.from_arpa": lambda t: NgramLM.from_arpa("lm.arpa", "words.txt"),
    "LazyLM": lambda t: OnDemandLM(None, "words.txt"),
    "ForcedAligner": lambda t: ForcedAligner(t).check_words("hello"),
}


@pytest.mark.parametrize("call", A_TEXT.values(), ids=A_TEXT)
def test_a_text_is_no_list_of_words(call):
    with pytest.raises(OptionError, match="='.*', expected a list or tuple of names"):
        call(token_table(["<blk>", "a", "b"]))


def test_a_text_in_place_of_tokens_is_a_path():
    with pytest.raises(FormatError, match="abc: cannot read"):
        token_table("abc")


MANY = {"ab": ["a b", ["b"]], "c": "c"}


@pytest.mark.parametrize("given", [MANY, list(MANY.items()), iter(MANY.items())])
def test_words_with_pronunciations_are_a_lexicon(given):
    lexicon = load_lexicon(given, TOKENS, TOKENS.index("|"))
    assert lexicon.by_word() == {"ab": [(1, 2), (2,)], "c": [(5,)]}
    assert not lexicon.costs.any()


@pytest.mark.parametrize("given", [["ab"], {"a": []}, {"a": [None]}, {"": "a"}, [], 7])
def test_other_things_are_no_lexicon(given):
    with pytest.raises(LexiconError, match="lexicon has .*, expected"):
        load_lexicon(given, TOKENS, None)


def test_words_that_cannot_be_spelt_are_left_out_if_asked():
    with pytest.warns(UserWarning, match="1 of 3 words .* 'x9'") as warned:
        lexicon = spelling_lexicon(["ab", "x9", "c"], LETTERS.names, skip=True)
    assert lexicon.words == ("ab", "c") and warned[0].filename == __file__
    with pytest.raises(LexiconError, match="1 of 1 words"):
        spelling_lexicon(["x9"], LETTERS, skip=True)
