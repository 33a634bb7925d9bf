"""Lists of any kind: in any order, in any script, with entries twice, and with none.

Bonuses are far above the beam too, so that what is owed crosses chunks.
"""

import io
import warnings

import numpy as np
import pytest
from arpa_texts import arpa_of
from random_graphs import random_logprobs

from wfstdec import (
    Boosts,
    Lexicon,
    PhraseCompiler,
    WfstDecoder,
    WfstOptions,
    build_graph,
    read_arpa,
    token_table,
)
from wfstdec.boost.phrases import by_words
from wfstdec.errors import BoostError, BoostWarning

TOKENS = token_table(["<blank>", "|", "a", "b", "c"])
SAID = {
    "東京": (2, 3),
    "Ωμέγα": (3,),
    "नमस्ते": (3, 2),
    "مرحبا": (4, 2),
    "été": (2, 4),
    "e\u0301te\u0301": (4, 4),
    "👩🏽‍🚀": (3, 4),
}
"""Words in scripts of all kinds: one precomposed, one with combining marks."""
WORDS = tuple(SAID)
NAMES = (*WORDS, "</s>", "<s>")
LEXICON = Lexicon(WORDS, tuple(SAID.values()), np.zeros(len(SAID), np.float32))
BEAM = 5.0


def make_decoder():
    model = read_arpa(io.StringIO(arpa_of("; ".join(f"-1 {w}" for w in NAMES))))
    graph = build_graph(tokens=TOKENS, lexicon=LEXICON, separator="|", lm=model)
    return WfstDecoder(graph, WfstOptions(beam=BEAM), "cpu", threads=1)


def test_words_in_any_script_are_boosted():
    """Forms that look the same are other words: what is given is what is looked up."""
    decoder = make_decoder()
    x = np.log(np.full((9, len(TOKENS)), 1 / len(TOKENS), np.float32))
    for word in WORDS:
        (hyp,) = decoder.decode([x], boosts={word: 30.0})
        assert word in hyp.spaced_text.split() and hyp.boost_cost < 0
    with pytest.warns(BoostWarning, match="'ete'"):
        decoder.decode([x], boosts={"ete": 30.0})


def test_spaces_between_words_are_one():
    written = ["new york", " new  york", "new\u3000york\n"]
    compiler = PhraseCompiler(by_words({"new": 1, "york": 2}), ("<eps>", "new", "york"))
    one = compiler.compile(written[:1])
    for some in (written, written[1:], dict.fromkeys(written)):
        assert compiler.compile(some) is one
    with pytest.raises(BoostError, match="'new york' has the weights 1.0 and 2, exp"):
        compiler.compile({"new york": 1, " new  york": 2})


def test_an_entry_twice_counts_once():
    decoder = make_decoder()
    x = random_logprobs(np.random.default_rng(5), 12, len(TOKENS))
    a, b = WORDS[:2]
    for once, twice in [([a], [a, a]), ([f"{a} {b}", b], [b, f"{a}  {b}", f"{a} {b}"])]:
        assert decoder.decode([x], boosts=once) == decoder.decode([x], boosts=twice)


@pytest.mark.parametrize(
    "boosts", [[""], [" \u3000"], {"": 1.0}, {"\n": None}, [{"": 1.0}], [[""]]]
)
def test_an_empty_text_is_an_error_in_any_form(boosts):
    decoder = make_decoder()
    with pytest.raises(BoostError, match="expected a string of words"):
        decoder.decode([np.zeros((0, len(TOKENS)), np.float32)], boosts=boosts)


@pytest.mark.parametrize("boosts", [{}, Boosts(), [{}], [[]], [None], None])
def test_a_list_of_nothing_boosts_nothing(boosts):
    decoder = make_decoder()
    x = random_logprobs(np.random.default_rng(6), 8, len(TOKENS))
    with warnings.catch_warnings():
        warnings.simplefilter("error", BoostWarning)
        assert decoder.decode([x], boosts=boosts) == decoder.decode([x])
