"""L: which words get symbols, its language against the oracle, what it refuses."""

import itertools

import naive
import numpy as np
import pytest
from fst_tools import outputs_of, rows_of, without, without_arcs

from wfstdec import Lexicon, token_table
from wfstdec.errors import LexiconError, OptionError
from wfstdec.fst.arrays import LabelSpace
from wfstdec.fst.lexicon_fst import Fillers, build_lexicon_fst, mark_lexicon

TOKENS = token_table(["_", "s", "a", "b", "c"])
SEPARATOR, A, B, C = 1, 2, 3, 4
PLAIN, SEPARATED = Fillers(), Fillers(separator=SEPARATOR)
OPTIONAL = Fillers(separator=SEPARATOR, separator_optional=True)
SILENCE = Fillers(silence=SEPARATOR, silence_prob=0.2)
ALL = {"none": PLAIN, "separator": SEPARATED, "optional": OPTIONAL, "silence": SILENCE}


def lexicon_of(*entries, costs=None):
    """A lexicon of `word tokens` strings, one letter a token."""
    words, spelled = zip(*(entry.split() for entry in entries), strict=True)
    pronunciations = tuple(tuple(map(TOKENS.index, tokens)) for tokens in spelled)
    costs = np.zeros(len(words)) if costs is None else np.array(costs)
    return Lexicon(words, pronunciations, costs.astype(np.float32))


def symbols_of(fillers, *entries):
    return mark_lexicon(lexicon_of(*entries), fillers, TOKENS).symbol.tolist()


def build(lexicon, fillers):
    marked = mark_lexicon(lexicon, fillers, TOKENS)
    words = ("<eps>", *dict.fromkeys(lexicon.words))
    labels = LabelSpace(TOKENS, words, marked.num_disambig)
    return build_lexicon_fst(marked, labels), labels


def names(labels):
    inputs = {0: "-", 1: "_", 2: "s", 3: "a", 4: "b", 5: "c"}
    inputs |= {labels.disambig(k): f"#{k}" for k in range(labels.num_disambig)}
    return inputs, dict(enumerate(("-", *labels.words[1:], "#0")))


def rows(lexicon, fillers):
    fst, labels = build(lexicon, fillers)
    return rows_of(fst, *names(labels))


def lines(text):
    return sorted(" ".join(line.split()) for line in text.strip().splitlines())


def test_words_that_sound_alike_get_symbols():
    assert symbols_of(PLAIN, "x ab", "y ab", "z ac", "w ab") == [1, 2, 0, 3]


def test_a_word_that_another_begins_with_gets_a_symbol():
    assert symbols_of(PLAIN, "x a", "y ab", "z abc", "w c") == [1, 1, 0, 0]


def test_a_separator_spares_symbols():
    """A separator ends words itself, so that `a s` is no prefix of `a b s`."""
    assert symbols_of(SEPARATED, "x ab", "y ab", "z a", "w ab") == [0, 1, 0, 2]
    assert symbols_of(OPTIONAL, "x ab", "y ab", "z a", "w ab") == [1, 2, 1, 3]


def test_a_silence_gets_a_symbol_where_a_word_begins_with_it():
    for entry, symbol in (("x ab", 0), ("x as", 0), ("x sa", 1)):
        marked = mark_lexicon(lexicon_of(entry), SILENCE, TOKENS)
        assert (marked.silence_symbol, marked.num_disambig) == (symbol, 1 + symbol)


def test_no_fillers_by_hand():
    lexicon = lexicon_of("hi ab", "a a", costs=[0.5, 0.25])
    assert rows(lexicon, PLAIN) == lines("""
        0 0
        0 0 #0 #0 0
        0 3 a hi 0.5
        3 0 b - 0
        0 4 a a 0.25
        4 0 #1 - 0
    """)


def test_a_separator_by_hand():
    assert rows(lexicon_of("hi ab"), SEPARATED) == lines("""
        0 0
        0 0 #0 #0 0
        0 0 s - 0
        0 3 a hi 0
        3 1 b - 0
        1 0
        1 0 s - 0
    """)


def test_silence_by_hand():
    assert rows(lexicon_of("hi ab"), SILENCE) == lines("""
        0 0
        0 0 #0 #0 0
        0 3 a hi 0
        3 1 b - 0
        1 0 - - 0.223143548
        1 0 s - 1.60943794
    """)


CASES = {
    "one word": ("x a",),
    "homophones": ("x ab", "y ab", "z b"),
    "prefixes": ("x a", "y ab", "z abb", "w b"),
    "both": ("x a", "y a", "z ab", "x b", "x ab"),
}
SILENT = CASES | {"words with silence": ("x s", "y sa", "z as", "w a")}


@pytest.mark.parametrize("kind", ALL)
def test_the_language_is_the_oracles(kind):
    fillers = ALL[kind]
    named = naive.Fillers(
        None if fillers.separator is None else "s",
        fillers.separator_optional,
        None if fillers.silence is None else "s",
        fillers.silence_prob,
    )
    for entries in (SILENT if kind == "silence" else CASES).values():
        costs = np.arange(len(entries)) / 4
        lexicon = lexicon_of(*entries, costs=costs)
        fst, labels = build(lexicon, fillers)
        symbols = [labels.disambig(k) for k in range(1, labels.num_disambig)]
        fst = without_arcs(without(fst, symbols), [labels.disambig(0)])
        spelt = [
            naive.Entry(*entry.split(), cost)
            for entry, cost in zip(entries, costs, strict=True)
        ]
        segment = naive.segmenter(
            [e._replace(tokens=tuple(e.tokens)) for e in spelt], named
        )
        for length in range(5):
            for tokens in itertools.product("sab", repeat=length):
                expected = {}
                for way in segment(tokens):
                    cost = expected.get(way.words, np.inf)
                    expected[way.words] = min(cost, way.cost)
                ilabels = ["__sab".index(token) for token in tokens]
                found = {
                    tuple(labels.words[i] for i in output): cost
                    for output, cost in outputs_of(fst, ilabels).items()
                }
                assert found == pytest.approx(expected), (entries, tokens)


@pytest.mark.parametrize("kind", ALL)
def test_every_string_can_be_read_in_one_way(kind):
    """With their symbols, no token string has two readings."""
    for entries in (SILENT if kind == "silence" else CASES).values():
        fst, labels = build(lexicon_of(*entries), ALL[kind])
        inputs = range(2, labels.disambig(labels.num_disambig))
        for length in range(4):
            for ilabels in itertools.product(inputs, repeat=length):
                assert len(outputs_of(fst, ilabels)) <= 1, (entries, ilabels)


def test_a_backoff_passes_where_a_word_may_begin():
    fst, labels = build(lexicon_of("x a", "y b"), SEPARATED)
    s, a, b, backoff = 2, 3, 4, labels.disambig(0)
    x, y, back = 1, 2, labels.backoff_word
    assert outputs_of(fst, (backoff, a, s, backoff, backoff, b)) == {
        (back, x, back, back, y): 0.0
    }
    assert outputs_of(fst, (a, backoff)) == {}  # the grammar's final costs have it


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("x a_", "'x' uses the blank '_', expected other tokens"),
        ("x asb", "'x' uses the separator 's', expected other tokens"),
    ],
)
def test_tokens_that_no_word_may_have(entry, message):
    with pytest.raises(LexiconError, match=message):
        mark_lexicon(lexicon_of("y a", entry), SEPARATED, TOKENS)


def test_a_word_without_tokens():
    lexicon = Lexicon(("x",), ((),), np.zeros(1, np.float32))
    with pytest.raises(LexiconError, match="'x' has no tokens, expected at least one"):
        mark_lexicon(lexicon, PLAIN, TOKENS)


def test_no_words():
    lexicon = Lexicon((), (), np.zeros(0, np.float32))
    with pytest.raises(LexiconError, match="no words left, expected at least one"):
        mark_lexicon(lexicon, PLAIN, TOKENS)


@pytest.mark.parametrize("prob", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_impossible_silence_probabilities(prob):
    with pytest.raises(OptionError, match=f"silence probability {prob!r}, expected"):
        Fillers(silence=1, silence_prob=prob)
