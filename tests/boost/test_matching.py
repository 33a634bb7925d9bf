"""Words of lists in another case, Unicode form, or between punctuation."""

import io
import warnings

import numpy as np
import pytest
from arpa_texts import arpa_of

from wfstdec import (
    BoostEntry,
    Lexicon,
    TrieDecoder,
    WfstDecoder,
    build_graph,
    read_arpa,
)
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.g2p import Pronouncer
from wfstdec.errors import BoostWarning, LexiconError
from wfstdec.text.lexicon import spelling_lexicon, word_ids
from wfstdec.text.tokens import token_table

WORDS = ("<eps>", "bartley", "new", "york", "US", "us", "\u00e9t\u00e9", "STRASSE")
WORDS += ("o'brien", "'em", "a\u0301")
IDS = word_ids(WORDS)
TOKENS = token_table(["<blank>", "|", "a", "b", "c"])
ALL = [IDS[word] for word in WORDS[1:]]


def compiled(boosts, *, exact=False, **how):
    """Cost of a list on all words in a row, and what is warned of."""
    compiler = BoostCompiler(WORDS, IDS, len(TOKENS), exact=exact, **how)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        [found] = compiler.compile(boosts, 1)
    return found.cost(ALL, ()), " ".join(str(one.message) for one in caught)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("Bartley", "bartley"),
        ("BARTLEY,", "bartley"),
        ("\u201cBartley\u201d?", "bartley"),
        ("New York!", "new york"),
        ("new York", "new york"),
        ("e\u0301te\u0301", "\u00e9t\u00e9"),  # decomposed in the list
        ("E\u0301te\u0301.", "\u00e9t\u00e9"),
        ("\u00e1", "a\u0301"),  # ... and in the table
        ("stra\u00dfe", "STRASSE"),
        ("O'Brien", "o'brien"),
        ("'EM", "'em"),  # punctuation that belongs to the word
    ],
)
def test_the_one_word_that_fits_is_taken(given, taken):
    cost, message = compiled({given: 3.0})
    assert (cost, "") == compiled({taken: 3.0}) and cost == -3.0
    assert all(repr(word) in message for word in taken.split() if word not in given)
    assert ("Unicode form" in message) == (
        "\u0301" in taken or given.startswith("e\u0301")
    )
    cost, message = compiled({given: 3.0}, exact=True)
    assert cost == 0 and repr(given) in message and "fits" in message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Us", "'Us' (fits 'US', 'us')"),
        ("new Us", "'new Us' ('Us' fits 'US', 'us')"),
        ("zebra", "'zebra' (fits no word)"),
        ("...", "'...' (fits no word)"),
        ("New zebra", "'new zebra' ('zebra' fits no word)"),
        ("ze\u0301bra", "(decomposed Unicode, not NFC) (fits no word)"),
    ],
)
def test_where_no_word_or_several_fit_these_are_named(given, expected):
    cost, message = compiled({given: 3.0})
    assert cost == 0 and expected in message


@pytest.mark.parametrize(
    ("boosts", "cost"),
    [
        ({"us": 2.0, "Us": 5.0}, -2.0),  # two fit
        ({"bartley": 2.0, "Bartley": 5.0}, -2.0),
        ({"new york": 2.0, "New York": 5.0, "York,": 1.0}, -3.0),
        ({"BARTLEY": 3.0, "Bartley": 5.0, "Bartley,": None}, -5.0),
    ],
)
def test_an_entry_as_the_table_writes_it_wins_in_any_order(boosts, cost):
    for listed in (boosts, dict(reversed(boosts.items()))):
        assert compiled(listed)[0] == cost


def test_only_words_without_a_fit_are_pronounced():
    """A capitalised word does not become a second one; one with pronunciations does."""
    lexicon = Lexicon(("bartley",), ((2, 3),), np.zeros(1, np.float32))
    pronouncer = Pronouncer(TOKENS, lexicon, [1], lambda word: ["a b", "b"])
    compiler = BoostCompiler(WORDS, IDS, len(TOKENS), pronouncer=pronouncer)
    with pytest.warns(BoostWarning, match="'Bartley' as 'bartley'"):
        [found] = compiler.compile(["Bartley", "Cab"], 1)
    assert found.oov.words == ("Cab",)
    [found] = compiler.compile([BoostEntry("York", ["a b"], 1.0)], 1)
    assert found.oov.words == ("York",)


@pytest.mark.parametrize("kind", ["trie", "wfst"])
def test_decoders_and_their_phrases_match_unless_exact(kind):
    """Words, and phrases by word and by token; the flag is that of the decoder."""
    words = ("ab", "ba", "c")
    lexicon = Lexicon(words, ((2, 3), (3, 2), (4,)), np.zeros(3, np.float32))
    parts = {"tokens": TOKENS, "lexicon": lexicon, "separator": "|"}
    parts["lm"] = read_arpa(io.StringIO(arpa_of("-1 ab; -1 ba; -1 c; -1 </s>; -1 <s>")))
    graph = build_graph(**parts) if kind == "wfst" else None
    x = np.log(np.full((9, 5), 0.2, np.float32))
    for exact in (False, True):
        if graph is None:
            decoder = TrieDecoder(**parts, exact_boosts=exact)
        else:
            decoder = WfstDecoder(graph, exact_boosts=exact)
        with pytest.warns(BoostWarning, match="'AB' as 'ab'|'AB' .*fits 'ab'"):
            (hyp,) = decoder.decode([x], boosts={"C": 9.0, "AB ba": 3.0})
        assert (hyp.boost_cost < 0) != exact
        for unit in ("word", "token"):
            with pytest.warns(BoostWarning, match="'AB'"):
                phrases = decoder.phrase_compiler(unit=unit).compile(["AB Ba"])
            assert bool(phrases.unknown) == exact


@pytest.mark.parametrize(("bonus", "is_large"), [(20.0, False), (66.0, True)])
def test_bonuses_that_are_hardly_meant_are_questioned(bonus, is_large):
    for boosts in ({"US": bonus}, [BoostEntry("US", bonus=bonus)], {"new york": bonus}):
        cost, message = compiled(boosts)
        assert cost == -bonus
        assert ("above 20 nats" in message and "66 of" in message) == is_large


def test_words_are_spelt_in_the_unicode_form_of_the_tokens():
    for word in ("e\u0301", "\u00e9"):
        for tokens in (["<blank>", "\u00e9"], ["<blank>", "e\u0301"]):
            lexicon = spelling_lexicon([word], token_table(tokens))
            assert (lexicon.words, lexicon.pronunciations) == ((word,), ((1,),))


def test_words_that_cannot_be_spelt_show_their_unicode_form():
    with pytest.raises(
        LexiconError, match=r"'e\u0301' \(decomposed Unicode, not NFC\)"
    ):
        spelling_lexicon(["e\u0301"], token_table(["<blank>", "e"]))
