"""Each decoder makes a compiler of its phrases: what it spells, what it refuses."""

from dataclasses import replace

import pytest
from cli_files import TOKENS, write_files

import wfstdec
from wfstdec.boost.compile import phrase_compiler
from wfstdec.errors import OptionError, TokenTableError

A, B, C = (TOKENS.index(name) for name in "abc")
WB = TOKENS.index("<wb>")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("phrases"))


@pytest.fixture(scope="module")
def decoders(files):
    tokens = {"tokens": files / "tokens.txt", "separator": "<wb>"}
    words = {**tokens, "lexicon": files / "lexicon.txt"}
    graphs = {
        optional: wfstdec.build_graph(
            **words, lm=files / "lm.arpa", separator_optional=optional
        )
        for optional in (False, True)
    }
    return {
        "wfst": wfstdec.WfstDecoder(graphs[False]),
        "wfst, optional": wfstdec.WfstDecoder(graphs[True]),
        "trie": wfstdec.TrieDecoder(**words),
        "trie, optional": wfstdec.TrieDecoder(**words, separator_optional=True),
        "bare": wfstdec.TrieDecoder(**tokens),
        "greedy": wfstdec.GreedyDecoder(**tokens),
    }


WITH_WORDS = ("wfst", "wfst, optional", "trie", "trie, optional")
WITHOUT = ("bare", "greedy")


def credit(boosts, labels):
    return -boosts.total(labels)


def test_what_decoders_can_say(decoders):
    for name, decoder in decoders.items():
        found = decoder.vocabulary
        assert found.tokens.names == tuple(TOKENS) and found.separator == WB
        assert found.separator_optional == name.endswith("optional")
        assert bool(found.words) == (found.lexicon is not None) == (name in WITH_WORDS)
        if found.lexicon is not None:
            pairs = zip(found.lexicon.words, found.lexicon.pronunciations, strict=True)
            assert {("ab", (A, B)), ("cab", (C, A, B)), ("c", (C,))} <= set(pairs)


@pytest.mark.parametrize("name", WITH_WORDS)
def test_words_are_the_unit_where_there_are_some(name, decoders):
    decoder = decoders[name]
    compiled = decoder.phrase_compiler().compile({"ab c": 1.0})
    assert compiled.unit == "word"
    ids = [decoder.vocabulary.words.index(word) for word in ("ab", "c")]
    assert credit(compiled, ids) > 0 == credit(compiled, ids[:1])


@pytest.mark.parametrize("name", [*WITH_WORDS, *WITHOUT])
def test_by_token_phrases_are_whole_words_where_a_separator_always_stands(
    name, decoders
):
    compiled = decoders[name].phrase_compiler(unit="token").compile({"ab c": 1.0})
    assert compiled.unit == "token"
    assert credit(compiled, [A, B, WB, C]) > 0
    without_separator = credit(compiled, [A, B, C])
    assert (without_separator > 0) == name.endswith("optional")


@pytest.mark.parametrize("name", [*WITH_WORDS, *WITHOUT])
def test_a_boundary_may_be_asked_for(name, decoders):
    compiler = decoders[name].phrase_compiler(unit="token", boundary="<wb>")
    compiled = compiler.compile({"c": 1.0})
    assert credit(compiled, [A, C]) == 0 < credit(compiled, [A, WB, C])
    with pytest.raises(TokenTableError, match="'|'"):
        decoders[name].phrase_compiler(unit="token", boundary="|")


@pytest.mark.parametrize("name", WITHOUT)
def test_without_words_tokens_are_the_unit(name, decoders):
    compiler = decoders[name].phrase_compiler(wfstdec.PhraseOptions(c0=3.0))
    compiled = compiler.compile({"c": 1.0})
    assert compiled.unit == "token" and credit(compiled, [C]) == 3.0
    with pytest.raises(
        OptionError, match="unit='word', expected 'token': this decoder"
    ):
        decoders[name].phrase_compiler(unit="word")


@pytest.mark.parametrize(
    "given, message",
    [
        ({"boundary": "<wb>"}, "boundary='<wb>' with phrases of words"),
        ({"sentencepiece_model": "bpe.model"}, "its lexicon spells phrases"),
        ({"unit": "letter"}, "unit='letter', expected 'word', 'token' or None"),
    ],
)
def test_what_does_not_go_with_words(given, message, decoders):
    for name in WITH_WORDS:
        with pytest.raises(OptionError, match=message):
            decoders[name].phrase_compiler(**given)


def test_of_several_fillers_none_is_the_separator(decoders):
    """Silence and a separator, say: either may be between words."""
    found = replace(decoders["wfst"].vocabulary, separators=(WB, A))
    assert (found.separator, found.separator_optional) == (None, False)
    compiled = phrase_compiler(found, unit="token").compile({"c": 1.0})
    assert credit(compiled, [A, C, B]) > 0
