"""Added and open words on all backends: the same bits, whatever the way to them."""

import io
import math

import numpy as np
import pytest
from arpa_texts import arpa_of
from reference_backends import HOST_BACKENDS

from wfstdec import (
    BoostEntry,
    Lexicon,
    OpenVocabulary,
    TrieDecoder,
    read_arpa,
    spelling_lexicon,
    token_table,
)
from wfstdec.errors import BoostError, OptionError

pytestmark = pytest.mark.usefixtures("quiet")


LETTERS = ("<blank>", "|", *"abcdefox")
ARPA = arpa_of(
    "-99 <s> 0; -1 </s>; -2 <unk> -0.3; -0.5 cab; -1 bad; -1 fed", "-0.2 <unk> bad"
)


def says(text, p=0.97):
    """Log-probs of frames that are probably the letters of a text."""
    x = np.full((len(text), len(LETTERS)), (1 - p) / (len(LETTERS) - 1))
    names = ["-", *LETTERS[1:]]
    x[np.arange(len(text)), [names.index(c) for c in text]] = p
    return np.log(x).astype(np.float32)


def letters(backend="cpu", **arguments):
    table = token_table(LETTERS)
    lexicon = arguments.pop("lexicon", spelling_lexicon(["cab", "bad", "fed"], table))
    arpa = arguments.pop("arpa", ARPA)
    return TrieDecoder(
        tokens=table,
        lexicon=lexicon,
        lm=read_arpa(io.StringIO(arpa)) if arpa else None,
        separator="|",
        backend=backend,
        **arguments,
    )


@pytest.mark.parametrize("backend", HOST_BACKENDS)
@pytest.mark.parametrize("given", [{}, {"lexicon": None}])
def test_an_open_word_is_spelled(given, backend):
    decoder = letters(backend, open_vocabulary=OpenVocabulary(1.0, 0.25), **given)
    assert decoder.words == ("<eps>", "cab", "bad", "fed")
    (hyp,) = decoder.decode([says("cab|fox|bad|")])
    assert hyp.text == "cab fox bad"
    assert hyp.graph_cost == pytest.approx(3.7 * math.log(10) + 1 + 3 * 0.25)
    (hyp,) = decoder.decode([says("cab|bad|")])
    assert hyp.graph_cost == pytest.approx(2.5 * math.log(10))


@pytest.mark.parametrize("backend", HOST_BACKENDS)
def test_open_words_of_phones_say_so(backend):
    table = token_table(LETTERS)
    spelt = tuple(map(table.index, "cab"))
    lexicon = Lexicon(("taxi", "cab"), (spelt, spelt), np.zeros(2, np.float32))
    decoder = letters(
        backend, lexicon=lexicon, open_vocabulary=OpenVocabulary(0, 0), arpa=None
    )
    assert decoder.open_spelling.kind == "phones"
    (hyp,) = decoder.decode([says("fox|")])
    assert hyp.text == "<f o x>"


NO_UNK = ARPA.replace("-2\t<unk>\t-0.3\n", "").replace(
    "-0.2\t<unk> bad", "-0.2\tcab bad"
)
NO_UNK = NO_UNK.replace("ngram 1=6", "ngram 1=5")


def test_a_model_without_unk():
    with pytest.raises(
        OptionError, match="without '<unk>', expected .*: give unk_cost"
    ):
        letters(arpa=NO_UNK, open_vocabulary=OpenVocabulary(0, 0))
    decoder = letters(arpa=NO_UNK)
    boosts = [None, [BoostEntry("fox", ["f o x"], 2.0)]]
    with pytest.raises(BoostError, match="'fox' with a language model") as error:
        decoder.decode([says("fox|")] * 2, boosts=boosts)
    assert error.value.utterance == 1
    (hyp,) = letters(arpa=NO_UNK, unk_cost=3.0).decode([says("fox|")], boosts=boosts[1])
    assert hyp.text == "fox"
    assert hyp.graph_cost == pytest.approx(3 + math.log(10))


def test_where_nothing_tells_words_apart():
    arguments = {"open_vocabulary": OpenVocabulary(0, 0)}
    with pytest.raises(OptionError, match="word ends are unknown"):
        TrieDecoder(
            tokens=token_table(LETTERS), lm=read_arpa(io.StringIO(ARPA)), **arguments
        )
    with pytest.raises(OptionError, match="expected one of them: give a lexicon"):
        TrieDecoder(tokens=token_table(LETTERS), separator="|", **arguments)
    with pytest.raises(OptionError, match="g2p='spelling' without a lexicon"):
        TrieDecoder(tokens=token_table(LETTERS), g2p="spelling")
