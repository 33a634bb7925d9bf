"""Names without pronunciations: where g2p gets them, and what phones become."""

import os
import sys

import numpy as np
import pytest

from wfstdec import G2p, Lexicon, token_table
from wfstdec.boost.g2p import Pronouncer
from wfstdec.errors import BackendError, BoostError, FormatError, OptionError

IPA = token_table(["<blank>", "|", "f", "j", "u", "k", "s", "t͡ʃ", "g", "ə", "ʌ", "ɝ"])
NO_WORDS = Lexicon((), (), np.zeros(0, np.float32))
CMUDICT = """;;; a comment
fuchs F Y UW1 K S # name
fuchs(2) F UW1 K S
Chuck CH AH1 K
A 0.5 AH0
"""


def token_names(source, words, phones=None, tokens=IPA):
    """Names of tokens, and the names that are none."""
    given = G2p(source, phones)
    found = Pronouncer(tokens, lambda: NO_WORDS, [1], given).say(words)
    ways = {
        word: [" ".join(tokens.names[token] for token in one) for one in some]
        for word, some in found.pronunciations.items()
    }
    return ways, found.unknown_tokens


@pytest.fixture
def cmudict(tmp_path):
    (tmp_path / "cmudict.dict").write_text(CMUDICT)
    return tmp_path / "cmudict.dict"


def test_a_lexicon_of_arpabet_says_names_in_ipa(cmudict):
    ways, lacking = token_names(cmudict, ["fuchs", "Fuchs", "chuck", "a", "none"])
    assert ways == {
        "fuchs": ["f j u k s", "f u k s"],
        "Fuchs": ["f j u k s", "f u k s"],
        "chuck": ["t͡ʃ ʌ k"],
        "a": ["ə"],
    }
    assert not lacking


def test_tokens_of_the_same_name_come_first(cmudict):
    arpabet = token_table(["<blank>", "|", "F", "Y", "UW1", "UW", "K", "S"])
    ways, _ = token_names(cmudict, ["fuchs"], tokens=arpabet)
    assert ways == {"fuchs": ["F Y UW1 K S", "F UW1 K S"]}
    plain = token_table(["<blank>", "|", "F", "Y", "UW", "K", "S"])
    ways, _ = token_names(cmudict, ["fuchs"], tokens=plain)
    assert ways == {"fuchs": ["F Y UW K S", "F UW K S"]}


def test_a_table_of_phones_says_what_they_are(tmp_path):
    (tmp_path / "phones.txt").write_text("# of espeak\nx k\nuː u\nq\nts t͡ʃ s\n")
    ways, lacking = token_names(
        {"bach": ["x q uː ts", "ɡ ˈʌ z"]}, ["bach"], tmp_path / "phones.txt"
    )
    assert ways == {"bach": ["k u t͡ʃ s"]}
    assert lacking == {"z": ["bach"]}
    ways, _ = token_names({"bach": "ɡ ˈʌ tʃ"}, ["bach"], {"f": "s"})
    assert ways == {"bach": ["g ʌ t͡ʃ"]}


def test_words_with_phones_that_are_no_tokens_are_left_out_and_counted():
    given = {"loch": ["ʟ ə x"], "bach": ["x"], "fuss": ["f ʌ s", "f y s"]}
    ways, lacking = token_names(given, list(given))
    assert ways == {"fuss": ["f ʌ s"]}
    assert lacking == {"ʟ": ["loch"], "x": ["loch", "bach"], "y": ["fuss"]}


def test_a_program_says_words(tmp_path):
    program = tmp_path / "say.py"
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "for word in map(str.strip, sys.stdin):\n"
        "    if word != 'none':\n"
        "        print(word, 0.5, ' '.join(word), sep='\\t')\n"
        "        print(word, 'k ' * len(word), sep='\\t')\n"
    )
    program.chmod(0o755)
    expected = {"fuss": ["f u s s", "k k k k"], "suk": ["s u k", "k k k"]}
    for command in (f"{sys.executable} '{program}'", str(program)):
        assert token_names(command, ["fuss", "suk", "none"])[0] == expected


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("sh -c 'echo no such voice >&2; exit 3'", "ended with 3, .*: no such voice"),
        ("sh -c 'cat'", "wrote 'fuchs', expected a word, a tab, phones"),
    ],
)
def test_a_program_that_fails_is_told(command, message):
    with pytest.raises(BoostError, match=message):
        token_names(command, ["fuchs"])


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("no-such-thing -x", OptionError, "no file and no program has this name"),
        ("say 'x", OptionError, "No closing quotation"),
        (3, OptionError, "g2p=3, expected a function"),
        (os.devnull, OptionError, "no file and no program"),
    ],
)
def test_what_is_no_source(source, error, message):
    with pytest.raises(error, match=message):
        G2p(source)


def test_a_lexicon_without_entries(tmp_path):
    (tmp_path / "x").write_text("# nothing\n")
    with pytest.raises(FormatError, match="no entries, expected 'word phones' lines"):
        token_names(tmp_path / "x", ["fuchs"])


@pytest.mark.parametrize("cut", [False, True])
def test_letters_and_pieces_need_no_flag(cut):
    """Models may have cut the lexicon otherwise than into the fewest pieces."""
    pieces = token_table(["<blank>", "▁a", "▁ab", "b", "c", "bc", "▁c"])
    spelt = ((1, 5), (1, 3)) if cut else ((2, 4), (2,))
    lexicon = Lexicon(("abc", "ab"), spelt, np.zeros(2, np.float32))
    found = Pronouncer(pieces, lambda: lexicon, ()).say(["cab", "abcb"])
    assert found.pronunciations in ({"abcb": [(1, 5, 3)]}, {"abcb": [(2, 4, 3)]})
    phones = Lexicon(("eight",), ((1, 5),), np.zeros(1, np.float32))
    assert not Pronouncer(pieces, lambda: phones, ()).say(["abcb"]).pronunciations


def test_a_sentencepiece_model_cuts_names(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    text = tmp_path / "text.txt"
    text.write_text("a cab ab cabs abc back cab cabs\n" * 30)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "m"), vocab_size=12, minloglevel=2
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    names = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    table = token_table(["<blank>", "|", *names])
    ways, _ = token_names(str(tmp_path / "m.model"), ["backs"], tokens=table)
    assert ways == {"backs": [" ".join(model.encode("backs", out_type=str))]}


def test_hama_says_names():
    pytest.importorskip("hama")
    ways, lacking = token_names("hama", ["Fuchs", "fuchs"])
    assert ways["Fuchs"] == ways["fuchs"] and ways["fuchs"][0].startswith("f ")
    assert not lacking


def test_hama_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "hama", None)
    with pytest.raises(BackendError, match="pip install hama==1.7.0; or give a lex"):
        G2p("hama")
