"""Added and open words on all backends: the same bits, whatever the way to them."""

import io
import math
import time

import numpy as np
import pytest
from arpa_texts import arpa_of
from reference_backends import HOST_BACKENDS

from wfstdec import (
    BoostEntry,
    Lexicon,
    OpenVocabulary,
    TrieDecoder,
    TrieOptions,
    read_arpa,
    spelling_lexicon,
    token_table,
)
from wfstdec.errors import BoostError, OptionError

pytestmark = pytest.mark.usefixtures("quiet")


# ---------------------------------------------------------------------------- by hand
LETTERS = ("<blank>", "|", *"abcdefox")
ARPA = arpa_of(
    "-99 <s> 0; -1 </s>; -2 <unk> -0.3; -0.5 cab; -1 bad; -1 fed",
    "-0.2 <unk> bad",
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
def test_an_added_word_comes_out_with_its_times(backend):
    decoder = letters(backend)
    boosts = [BoostEntry("Fox™", ["f o x"], 2.0)]
    (hyp,) = decoder.decode([says("cab|fox|bad|")], boosts=boosts)
    assert hyp.text == "cab Fox™ bad"
    word = hyp.words[1]
    assert (word.start_frame, word.end_frame) == (4, 7)
    assert hyp.boost_cost == -2.0
    nats = math.log(10)
    # cab, <unk>, bad after <unk>, </s>
    assert hyp.graph_cost == pytest.approx((0.5 + 2 + 0.2 + 1) * nats)


@pytest.mark.parametrize("backend", HOST_BACKENDS)
def test_a_word_of_the_table_is_said_in_another_way(backend):
    decoder = letters(backend)
    assert decoder.decode([says("cab|fox|")])[0].text != "cab bad"
    boosts = [BoostEntry("bad", ["f o x"], 0.0)]
    (hyp,) = decoder.decode([says("cab|fox|")], boosts=boosts)
    assert hyp.text == "cab bad"
    assert hyp.graph_cost == pytest.approx(2.5 * math.log(10))


@pytest.mark.parametrize("backend", HOST_BACKENDS)
def test_an_open_word_is_spelled(backend):
    decoder = letters(backend, open_vocabulary=OpenVocabulary(1.0, 0.25))
    (hyp,) = decoder.decode([says("cab|fox|bad|")])
    assert hyp.text == "cab fox bad"
    assert hyp.graph_cost == pytest.approx(3.7 * math.log(10) + 1 + 3 * 0.25)
    (hyp,) = decoder.decode([says("cab|bad|")])
    assert hyp.graph_cost == pytest.approx(2.5 * math.log(10))


@pytest.mark.parametrize("backend", HOST_BACKENDS)
def test_without_a_lexicon_words_are_spelled(backend):
    decoder = letters(backend, lexicon=None, open_vocabulary=OpenVocabulary(1.0, 0.25))
    assert decoder.words == ("<eps>", "cab", "bad", "fed")
    (hyp,) = decoder.decode([says("cab|fox|bad|")])
    assert hyp.text == "cab fox bad"
    assert hyp.graph_cost == pytest.approx(3.7 * math.log(10) + 1 + 3 * 0.25)


@pytest.mark.parametrize("backend", HOST_BACKENDS)
@pytest.mark.parametrize("merge", ["max", "sum"])
def test_pieces_may_cut_a_word_in_any_way(merge, backend):
    """Spelled like a word of the model it costs what the word costs."""
    names = ["<blank>", "\u2581c", "\u2581ca", "a", "ab", "b", "\u2581"]
    table = token_table(names)
    decoder = TrieDecoder(
        tokens=table,
        lm=read_arpa(io.StringIO(ARPA)),
        open_vocabulary=OpenVocabulary(1.0, 0.25),
        options=TrieOptions(merge=merge, nbest=5),
        backend=backend,
    )
    for cut in (("\u2581ca", "b"), ("\u2581c", "ab"), ("\u2581c", "a", "b")):
        x = np.full((len(cut), len(names)), math.log(0.002), np.float32)
        x[np.arange(len(cut)), [names.index(name) for name in cut]] = -0.01
        best = decoder.decode_nbest([x])[0]
        assert best[0].text == "cab"
        assert best[0].graph_cost == pytest.approx(1.5 * math.log(10))
        assert [hyp.text for hyp in best].count("cab") == 1


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


def test_a_thousand_words_are_ready_in_time_and_laid_out_once():
    """10 ms on an idle core; what is checked allows for a busy machine."""
    rng, decoder = np.random.default_rng(3), letters()
    words = {"".join(rng.choice(list("abcdefox"), 9)): 1.0 for _ in range(1000)}
    backend = decoder._backend
    (first,) = decoder._boosts.compile([dict(list(words.items())[:5])], 1)
    backend.oov_trie(first.added)
    (compiled,) = decoder._boosts.compile([words], 1)
    begin = time.process_time()
    laid_out = backend.oov_trie(compiled.added)
    assert time.process_time() - begin < 0.1
    assert len(laid_out.pron) == 1000
    assert backend.oov_trie(compiled.added) is laid_out
    (again,) = decoder._boosts.compile([dict(reversed(words.items()))], 1)
    assert again.added is compiled.added


# ----------------------------------------------------------------------------- errors
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
    with pytest.raises(OptionError, match="nothing tells where words end"):
        TrieDecoder(
            tokens=token_table(LETTERS), lm=read_arpa(io.StringIO(ARPA)), **arguments
        )
    with pytest.raises(OptionError, match="expected one of them: give a lexicon"):
        TrieDecoder(tokens=token_table(LETTERS), separator="|", **arguments)
    with pytest.raises(OptionError, match="g2p='spelling' without a lexicon"):
        TrieDecoder(tokens=token_table(LETTERS), g2p="spelling")
