"""Phrase boosts: published cases, counting by brute force, spellings, lists, errors."""

import logging
import math

import numpy as np
import pytest

from wfstdec import Lexicon, PhraseCompiler, PhraseOptions, token_table
from wfstdec.boost.phrases import (
    GRAIN,
    MAX_SPELLINGS,
    by_lexicon,
    by_table,
    by_tokenizer,
    by_words,
)
from wfstdec.errors import BoostError, BoostWarning, OptionError
from wfstdec.text.tokens import case_variants

LETTERS = token_table(["-", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"])
UNIFORM = PhraseOptions(uniform=True)


def by_letters(phrases):
    return [[tuple(LETTERS.ids[c] for c in phrase)] for phrase in phrases]


def boosts_of(phrases, options=None):
    return PhraseCompiler(by_letters, LETTERS, options).compile(phrases)


def credited(boosts, text):
    """Credit of an utterance in all: a bonus, above 0."""
    return 0.0 - boosts.total([LETTERS.ids[c] for c in text])


def credits(boosts, text):
    """Credits of each letter, then of the end."""
    state, found = boosts.start, []
    for c in text:
        cost, state = boosts.step(state, LETTERS.ids[c])
        found.append(0.0 - cost)
    return [*found, 0.0 - boosts.final(state)]


def test_credit_comes_as_a_phrase_is_said():
    boosts = boosts_of(["ABCD"])
    first, second, third, fourth = 1, 2 + math.log(2), 2 + math.log(3), 2 + math.log(4)
    close = pytest.approx
    assert credits(boosts, "ABCDX") == close([first, second, third, fourth, 0, 0], 1e-4)
    assert credits(boosts, "ABX") == close([first, second, -first - second, 0], 1e-4)
    assert credits(boosts, "AB") == close([first, second, -first - second], 1e-4)
    assert credits(boosts, "AAB") == close([1, 0, second, -first - second], 1e-4)


PUBLISHED = [
    (["ABC"], "ABCX", 6.79),
    (["ABC", "BCD"], "ABCX", 6.79),  # a public implementation: 3.10
    (["AB", "ABCD"], "ABCX", 3.69),  # 0.00
    (["ABCD", "BC"], "ABCX", 3.69),
    (["ABCD"], "ABC", 0.0),  # 6.79
    ({"ABC": 1.0, "AD": 5.0}, "ABX", 0.0),  # 4.00
    ({"AD": 5.0, "ABC": 1.0}, "ABX", 0.0),
]


@pytest.mark.parametrize(("phrases", "text", "expected"), PUBLISHED)
def test_published_counterexamples(phrases, text, expected):
    assert credited(boosts_of(phrases), text) == pytest.approx(expected, abs=0.005)


ICEFALL = ["S", "HE", "SHE", "SHELL", "HIS", "HERS", "HELLO", "THIS", "THEM"]
STRICT = {
    "HEHERSHE": 14,
    "HERSHE": 12,
    "HISHE": 9,
    "SHED": 6,
    "SHELF": 6,
    "HELL": 2,
    "HELLO": 7,
    "DHRHISQ": 4,
    "THEN": 2,
}


@pytest.mark.parametrize(("text", "expected"), STRICT.items())
def test_icefalls_strict_table(text, expected):
    for c0 in (1.0, 0.5, 3.0):
        options = PhraseOptions(c0=c0, uniform=True)
        assert credited(boosts_of(ICEFALL, options), text) == c0 * expected
        assert credited(boosts_of(ICEFALL[::-1], options), text) == c0 * expected
        weighted = dict.fromkeys(ICEFALL, c0)
        assert credited(boosts_of(weighted, UNIFORM), text) == c0 * expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ABCBA", [1, 1.6931, 2.0986 + 1, 0, 1]),
        ("BBABD", [0, 0, 1, 1.6931, 2.0986]),
        ("CABA", [1, 1, 1.6931, -1.6931]),
    ],
)
def test_known_depth_scores(text, expected):
    """The public tree's own cases; it leaves out that ABC ends in C, which counts."""
    boosts = boosts_of(["ABC", "ABD", "C"], PhraseOptions(beta=1.0))
    assert credits(boosts, text)[:-1] == pytest.approx(expected, abs=1e-4)


def occurs(text, spelling):
    length = len(spelling)
    return [text[i : i + length] for i in range(len(text))].count(spelling)


def base(length, options):
    if options.uniform:
        return options.c0 * length
    rest = (options.c0 * options.beta + math.log(d) for d in range(2, length + 1))
    return options.c0 + sum(rest)


def without_containing(spelt):
    """Keep spellings that contain no other: one occurrence counts once."""
    return {s for s in spelt if not any(o != s and occurs(s, o) for o in spelt)}


def naive_total(spellings, weights, options, text):
    """The cost of an utterance by counting; and how many occurrences there are."""
    total, count = 0.0, 0
    for spelt, weight in zip(spellings, weights, strict=True):
        minimal = without_containing(spelt)
        found = sum(occurs(text, s) for s in minimal)
        amount = weight * base(max(map(len, minimal)), options) if minimal else 0
        total -= found * amount
        count += found
    return total, count


def random_case(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 4))

    def random_string(most):
        return tuple(rng.integers(0, size, rng.integers(1, most + 1)).tolist())

    spellings = [
        sorted({random_string(5) for _ in range(rng.integers(1, 4))})
        for _ in range(rng.integers(1, 7))
    ]
    weights = rng.choice([1, 1, 0.5, 2, 0, -1], len(spellings)).tolist()
    options = PhraseOptions(
        c0=float(rng.choice([1, 0.3, 2])),
        beta=float(rng.choice([2, 1, 0])),
        uniform=bool(rng.random() < 0.3),
    )
    texts = [random_string(12) for _ in range(12)] + [()]
    texts += [s for spelt in spellings for s in spelt]
    return rng, spellings, weights, options, size, texts


def compiled(spellings, weights, options, size):
    compiler = PhraseCompiler(lambda _: spellings, ["x"] * size, options)
    names = [f"{i:03}" for i in range(len(spellings))]
    return compiler.compile(dict(zip(names, weights, strict=True)))


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.share(keep=40)
def test_totals_are_counted_occurrences(seed):
    """Overlapping, nested, suffixes of others, several spellings, all weights."""
    rng, spellings, weights, options, size, texts = random_case(seed)
    boosts = compiled(spellings, weights, options, size)
    for text in texts:
        expected, count = naive_total(spellings, weights, options, text)
        found = boosts.total(text)
        assert found == pytest.approx(expected, abs=(count + 1) * GRAIN)
        if not count:
            assert found == 0.0  # not just nearly


def without_runs(text):
    """Between boundaries (label 0), of which several in a row are one."""
    whole = (0, *text, 0)
    return tuple(x for x, y in zip(whole, (1, *whole), strict=False) if x or y)


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.share(keep=20)
def test_whole_words_between_boundaries(seed):
    """Counted in the utterance with a boundary (label 0) before and after."""
    _, spellings, weights, options, size, texts = random_case(seed)
    options = PhraseOptions(options.c0, options.beta, options.uniform)
    inner = [[tuple(x + 1 for x in s) for s in spelt] for spelt in spellings]
    compiler = PhraseCompiler(lambda _: inner, "x" * (size + 1), options, boundary=0)
    boosts = compiler.compile({f"{i:03}": w for i, w in enumerate(weights)})
    rng = np.random.default_rng(seed)
    texts += [tuple(rng.integers(0, size + 1, 8).tolist()) for _ in range(20)]
    texts += [(*s, 0, *o) for spelt in inner for s in spelt for o in spelt]
    texts += [s for spelt in inner for s in spelt]
    texts += [
        (0, 0, *s, 0, 0, 0, *o, 0, 0) for spelt in inner for s in spelt for o in spelt
    ]
    for text in texts:
        expected, count = 0.0, 0
        for spelt, weight in zip(inner, weights, strict=True):
            longest = max(map(len, spelt))
            found = sum(occurs(without_runs(text), (0, *s, 0)) for s in spelt)
            expected -= found * weight * base(longest, options)
            count += found
        assert boosts.total(text) == pytest.approx(expected, abs=(count + 1) * GRAIN)
        if not count:
            assert boosts.total(text) == 0.0


def lexicon_of(**pronunciations):
    entries = [(w, p) for w, ps in pronunciations.items() for p in ps.split()]
    words, spelt = zip(*entries, strict=True)
    tokens = [tuple(LETTERS.ids[c] for c in p) for p in spelt]
    return Lexicon(words, tuple(tokens), np.zeros(len(words), np.float32))


def test_case_variants_and_merged_pieces():
    tokens = token_table(["-", "a", "b", "A", "B", "ab", "AB", "Ab"])

    def spell(phrases):
        assert phrases == ["ab"]
        whole = [[tokens.ids[t]] for t in ("ab", "AB", "Ab")]
        return [[tuple(s) for s in [*whole, (1, 2), (3, 4), (3, 2)]]]

    options = PhraseOptions(beta=1.0)
    boosts = PhraseCompiler(spell, tokens, options).compile(["ab"])
    for spelling in ((1, 2), (3, 4), (3, 2), (5,), (6,), (7,)):
        assert -boosts.total(spelling) == pytest.approx(2 + math.log(2), abs=1e-4)
    assert boosts.total((1, 4)) == 0


def test_separators_between_words():
    lexicon = lexicon_of(new="NU", york="YORK YAK")
    space = LETTERS.ids["Z"]
    with_spaces = by_lexicon(lexicon, separator=space)
    spelt = [
        ["".join(LETTERS.names[t] for t in s) for s in with_spaces(["new york"])[0]]
    ]
    assert spelt == [["NUZYORK", "NUZYAK"]]
    either = by_lexicon(lexicon, separator=space, separator_optional=True)
    assert len(either(["new york new"])[0]) == 8
    boosts = PhraseCompiler(either, LETTERS).compile(["new york"])
    assert credited(boosts, "NUYAK") == credited(boosts, "NUZYORK") > 0


def test_words_that_a_lexicon_lacks():
    lexicon = lexicon_of(NEW="NU", YORK="YORK")
    compiler = PhraseCompiler(by_lexicon(lexicon), LETTERS)
    with pytest.warns(BoostWarning) as caught:
        boosts = compiler.compile(["NEW YORK", "NEW york", "42"])
    assert [str(w.message) for w in caught] == [
        "2 boosted phrases cannot be spelt and have no effect: '42', 'NEW york'"
    ]
    assert caught[0].filename == __file__
    assert boosts.unknown == ("42", "NEW york")
    assert credited(boosts, "NUYORK") > 0


def test_spellings_by_table_and_tokenizer():
    spell = by_table(LETTERS)
    assert spell(["AB", "A1", "B A"]) == [[(1, 2)], [], [(2, 1)]]
    pieces = token_table(["<blank>", "▁new", "▁york", "▁", "n"])
    assert by_table(pieces)(["new york", "n new", "old"]) == [[(1, 2)], [(3, 4, 1)], []]

    def encode(text):
        return [LETTERS.ids[c] for c in text if c in LETTERS.ids]

    assert by_tokenizer(encode)(["A b", "b"]) == [[(1,)], []]
    assert by_tokenizer(encode)(case_variants("Ab")) == [[(1,)], [], [(1, 2)]]
    assert by_words({"a": 1})(["a a", "a b"]) == [[(1, 1)], []]


def test_a_tokenizer_that_gives_names():
    """A tokenizer's own numbers, which know no blank, are of no consequence."""
    tokens = token_table(["<blank>", "<unk>", "a", "b"])
    pieces = {"ab": ["a", "b"], "AB": ["<unk>"], "az": ["a", "z"], "-": ["<blank>"]}
    speller = by_tokenizer(pieces.__getitem__, tokens=tokens)
    assert speller(["ab", "AB", "az", "-"]) == [[(2, 3)], [], [], []]


def test_too_many_spellings_are_cut(caplog):
    lexicon = lexicon_of(a="A B C D")
    with caplog.at_level(logging.WARNING, "wfstdec.boost"):
        (spelt,) = by_lexicon(lexicon)(["a a a a a"])
    assert len(spelt) == MAX_SPELLINGS
    assert "over 256 spellings" in caplog.text


def test_equal_lists_are_compiled_once():
    compiler = PhraseCompiler(by_letters, LETTERS)
    one = compiler.compile({"AB": 1.0, "CD": 2})
    assert compiler.compile({"CD": 2.0, "AB": 1}) is one
    assert compiler.compile({"CD": 2.0, "AB": 1.5}) is not one
    assert compiler.compile(["CD"]) is compiler.compile({"CD": None})
    for i in range(1, 100):
        compiler.compile({"AB": i})
    assert compiler.compile({"AB": 1.0, "CD": 2}) is not one


@pytest.mark.parametrize(
    ("phrases", "message"),
    [
        ("AB", "phrases is the string 'AB', expected a list of them"),
        ([1], "boosted phrase 1, expected a string of words"),
        ([" "], "boosted phrase ' ', expected a string of words"),
        ({"AB": "x"}, "weight 'x' of 'AB', expected a number"),
        ({"AB": math.nan}, "weight nan of 'AB', expected a number"),
        ({"AB": 1e7}, "weight 10000000.0 of 'AB', expected a number"),
    ],
)
def test_lists_that_mean_nothing(phrases, message):
    with pytest.raises(BoostError) as error:
        boosts_of(phrases)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ((), "a spelling without labels"),
        ((1, 27), "label 27 in"),
        ((-1,), "label -1 in"),
    ],
)
def test_spellings_that_mean_nothing(spelling, message):
    compiler = PhraseCompiler(lambda phrases: [[spelling]], LETTERS)
    with pytest.raises(BoostError, match=message):
        compiler.compile(["A"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"c0": 0.0}, "c0=0.0, expected nats above 0"),
        ({"c0": math.nan}, "c0=nan, expected nats"),
        ({"beta": -1.0}, "beta=-1.0, expected 0 or more"),
    ],
)
def test_options_that_mean_nothing(option, message):
    with pytest.raises(OptionError, match=message):
        PhraseOptions(**option)


def test_options_may_be_integers():
    whole, same = PhraseOptions(c0=2, beta=1), PhraseOptions(c0=2.0, beta=1.0)
    assert whole.base(4).tolist() == same.base(4).tolist()


def test_phrases_without_weights_have_amounts_of_the_list():
    def defaults(lengths):
        return {text: n + len(lengths) for text, n in lengths.items()}

    compiler = PhraseCompiler(by_letters, LETTERS, UNIFORM, defaults=defaults)
    boosts = compiler.compile({"ABC": None, "DE": None, "F": 7.0})
    assert credited(boosts, "ABC") == 5
    assert credited(boosts, "DE") == 4
    assert credited(boosts, "F") == 7
    assert compiler.compile(["ABC"]) is compiler.compile({"ABC": None})
    bounded = PhraseCompiler(by_letters, LETTERS, UNIFORM, 0, defaults=defaults)
    assert credited(bounded.compile(["ABC"]), "ABC") == 4  # boundaries do not count


def test_little_of_a_uniform_amount_is_paid_for_the_first_label():
    found = credits(boosts_of(["ABCD"], UNIFORM), "ABCD")
    first, second, third, fourth = 0.3, 0.9 + math.log(2), 0.9 + math.log(3), 0.9
    fourth += math.log(4)
    share = 4 / (first + second + third + fourth)
    paid = [share * one for one in (first, second, third, fourth)]
    assert found == pytest.approx([*paid, 0], abs=2e-4)


def test_amounts_of_phrases_are_kept_and_small_ones_reported():
    def defaults(lengths):
        return dict.fromkeys(lengths, 0.25)

    compiler = PhraseCompiler(by_letters, LETTERS, UNIFORM, defaults=defaults)
    with pytest.warns(BoostWarning, match="less than 0.5 nats for 1 boosts .*: 'ABC'$"):
        boosts = compiler.compile({"ABC": None, "DE": 0.1})
    assert boosts.amounts == {"ABC": 0.25, "DE": pytest.approx(0.2, abs=GRAIN)}
