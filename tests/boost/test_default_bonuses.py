"""Lists without numbers: their bonuses, how words sound, and scaling."""

import itertools
import math
import warnings

import numpy as np
import pytest

from wfstdec import Lexicon, PhraseCompiler, PhraseOptions, token_table
from wfstdec.boost.automatic import (
    ADDED,
    FAR_LESS,
    HOMOPHONE,
    HOMOPHONES,
    MOST,
    MOST_OF_TOKENS,
    NEIGHBOUR,
    NEIGHBOURS,
    SAME_ADDED,
    TRUST,
    DefaultBonuses,
    Sounds,
    bonuses_of_lengths,
)
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.compiled import compile_word_boosts, scaled_phrases, scaled_words
from wfstdec.errors import BoostWarning
from wfstdec.text.lexicon import word_ids

WORDS = ("<eps>", "the", "matter", "mater", "wither", "whether", "fuchs", "withers")
SAID = {
    "the": "1 2",
    "matter": "3 4 5 2",
    "mater": "3 4 5 2",
    "whether": "6 7 8",
    "wither": "6 9 8",
    "withers": "6 9 8 9",
    "fuchs": "9 9 9 9 9 9",
}
COST = np.array([np.inf, 2, 6, 12, 11, 5, 12, 13], np.float32)
LEXICON = Lexicon(
    tuple(SAID),
    tuple(tuple(map(int, spelling.split())) for spelling in SAID.values()),
    np.zeros(len(SAID), np.float32),
)


def sounds(words, lexicon, cost):
    """Tell sounds by comparing every pair of pronunciations."""
    ids, found = word_ids(words), np.zeros(len(words), np.uint8)
    pairs = list(zip(lexicon.words, lexicon.pronunciations, strict=True))
    for word, one in pairs:
        for other, another in pairs:
            likelier = cost[ids[word]] - cost[ids[other]]
            if one == another and likelier > math.log(3):
                found[ids[word]] = HOMOPHONE
            elif one != another and likelier > 0 and edits_are_one(one, another):
                found[ids[word]] = max(found[ids[word]], NEIGHBOUR)
    return found


def edits_are_one(a, b):
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    if len(longer) == len(shorter):
        return sum(x != y for x, y in zip(a, b, strict=True)) == 1
    cuts = (longer[:i] + longer[i + 1 :] for i in range(len(longer)))
    return len(longer) == len(shorter) + 1 and shorter in cuts


@pytest.mark.parametrize("seed", range(30))
def test_sounds_by_all_pairs(seed):
    rng = np.random.default_rng(seed)
    words = ("<eps>", *(f"w{i}" for i in range(25)))
    chosen = rng.choice(words[1:], 40)
    spelt = [tuple(rng.integers(0, 3, rng.integers(1, 5)).tolist()) for _ in chosen]
    lexicon = Lexicon(tuple(map(str, chosen)), tuple(spelt), np.zeros(40, np.float32))
    cost = rng.integers(1, 9, len(words)).astype(np.float32)
    found = Sounds(lexicon, word_ids(words), cost).of_words(len(cost))
    assert found.tolist() == sounds(words, lexicon, cost).tolist()


def by_costs(costs):
    """Bonuses of distinct entries by their costs."""
    root = {text: math.exp(-cost / 2) for text, cost in costs.items()}
    mass = sum(root.values())
    return {
        text: min(MOST, math.log(1 + TRUST / (one * mass)))
        for text, one in root.items()
    }


def test_bonuses_follow_from_the_list():
    defaults = DefaultBonuses(WORDS, LEXICON, COST)
    [alone] = defaults.of(["fuchs"]).values()
    assert alone == MOST  # its probability is 6e-6
    words = {"fuchs": 12, "the": 2, "wither": 11, "mater": 12}
    found = defaults.of(words)
    expected = by_costs(words)
    assert found["fuchs"] == pytest.approx(expected["fuchs"])
    assert found["the"] == pytest.approx(expected["the"])
    assert found["wither"] == pytest.approx(NEIGHBOURS * expected["wither"])
    assert found["mater"] == pytest.approx(HOMOPHONES * expected["mater"])
    phrase = defaults.of(["mater fuchs"])
    assert phrase["mater fuchs"] == MOST  # as distinct as its most distinct word
    assert defaults.of(["unheard"]) == {"unheard": MOST}
    assert DefaultBonuses(WORDS).of(["fuchs"])["fuchs"] == pytest.approx(
        math.log(1 + TRUST * len(WORDS))
    )


def test_of_homophones_the_one_in_the_list_wins():
    words = ("<eps>", "marry", "mary", "merry", "married", "carrie")
    prons = ((1, 2), (1, 2), (1, 2), (1, 2, 3), (4, 2))
    lexicon = Lexicon(words[1:], prons, np.zeros(5, np.float32))
    defaults = DefaultBonuses(words, lexicon, np.array([np.inf, 11, 12, 14, 15, 16.0]))
    # `marry` is likelier by less than a factor of 3.
    assert defaults.of(["mary"])["mary"] == pytest.approx(MOST)
    [protected] = defaults.of(["merry"]).values()
    assert protected == pytest.approx(HOMOPHONES * MOST)
    both = defaults.of(["merry", "mary", "marry"])
    assert both["merry"] == both["mary"] == both["marry"]
    # All homophones are listed, a likelier word of another sound is not.
    assert defaults.of(["merry", "marry"])["merry"] < both["merry"]
    assert defaults.of(["carrie", "mary"])["carrie"] == pytest.approx(
        NEIGHBOURS * defaults.of(["mary", "married"])["mary"], rel=0.1
    )


def test_boosted_words_that_sound_the_same_are_reported():
    with pytest.warns(BoostWarning, match="same .1 pairs.*: 'mater' and 'matter'$"):
        compiler().compile(["mater", "matter", "fuchs"], 1)
    with warnings.catch_warnings():  # numbers choose
        warnings.simplefilter("error")
        compiler().compile({"mater": 2.0, "matter": 1.0}, 1)


def test_a_homophone_with_a_number_is_in_the_list():
    [alone] = compiler().compile(["mater"], 1)
    [both] = compiler().compile({"mater": None, "matter": 1.0}, 1)
    assert bonuses_of(alone)["mater"] < bonuses_of(both)["mater"]
    [phrase] = compiler().compile(["mater", "matter fuchs"], 1)
    assert bonuses_of(phrase)["mater"] < bonuses_of(both)["mater"]


def test_oov_words_that_sound_as_common_ones_get_least():
    defaults = DefaultBonuses(WORDS, LEXICON, COST - 4 + 6.5 * (COST == 12), 14.0)
    found = defaults.of([], {"new": [(6, 7, 8)], "own": [(9, 9, 9, 1)]})
    assert found["new"] == pytest.approx(SAME_ADDED * found["own"])
    near = DefaultBonuses(WORDS, LEXICON, np.full(len(WORDS), 8.5), 14.0)
    assert near.of([], {"new": [(6, 7, 8)]})["new"] == pytest.approx(
        SAME_ADDED * (14.0 - ADDED)
    )


def by_lengths(lengths, size):
    root = {text: size ** (-(n + 1.5) / 6) for text, n in lengths.items()}
    mass = sum(root.values())
    return {text: math.log(1 + 1 / (root[text] * mass)) for text in lengths}


@pytest.mark.parametrize("num_tokens", [3, 27])
def test_bonuses_without_words_follow_from_lengths_and_the_list(num_tokens):
    lengths = {"a": 1, "abc": 3, "abcd": 4}
    found = bonuses_of_lengths(num_tokens, lengths)
    assert found == pytest.approx(by_lengths(lengths, num_tokens))
    assert bonuses_of_lengths(num_tokens, dict(reversed(lengths.items()))) == found
    assert bonuses_of_lengths(27, {"abcdefgh": 8}) == {"abcdefgh": MOST_OF_TOKENS}


@pytest.mark.parametrize("num_tokens, per_token", [(6_625, 1), (6_625, 2), (100, 2)])
def test_no_more_tokens_count_than_the_letters_of_a_long_list_make(
    num_tokens, per_token
):
    # Five letters, each of them 96 times in all texts of four.
    texts = ["".join(four) for four in itertools.permutations("abcde", 4)]
    lengths = {text: 4 // per_token for text in texts}
    found = bonuses_of_lengths(num_tokens, lengths)
    size = 5**per_token
    size = size if size**FAR_LESS < num_tokens else num_tokens
    assert found == pytest.approx(by_lengths(lengths, size))
    few = dict(list(lengths.items())[:10])  # it may have many more letters
    known = {text: min(6, x) for text, x in by_lengths(few, num_tokens).items()}
    assert bonuses_of_lengths(num_tokens, few) == pytest.approx(known)


@pytest.mark.parametrize("seed", range(20))
def test_a_longer_list_raises_no_bonus(seed):
    rng = np.random.default_rng(seed)
    numbers = enumerate(rng.integers(1, 9, 300).tolist())
    lengths = {f"token{i}" * n: n for i, n in numbers}
    before: dict[str, float] = {}
    for size in (1, 3, 10, 100, 300):
        now = bonuses_of_lengths(1000, dict(list(lengths.items())[:size]))
        assert all(now[text] <= before[text] for text in before)
        by_length = sorted((lengths[text], bonus) for text, bonus in now.items())
        assert all(a[1] <= b[1] for a, b in itertools.pairwise(by_length))
        before = now


def test_a_phrase_is_no_likelier_than_its_rarest_word():
    words = ("<eps>", "new", "york", "the")
    defaults = DefaultBonuses(words, None, np.array([np.inf, 3.0, 5.0, 2.0]))
    for phrase in ("new york", "york new new", "york"):
        [bonus] = defaults.of([phrase]).values()
        assert bonus == pytest.approx(math.log(1 + TRUST * math.exp(5)))
    listed = {"new york": 5, "the york": 5, "the": 2}
    assert defaults.of(listed) == pytest.approx(by_costs(listed))
    assert defaults.of(["new unheard"]) == {"new unheard": MOST}


def compiler():
    return BoostCompiler(
        WORDS, word_ids(WORDS), 5, lambda: DefaultBonuses(WORDS, LEXICON, COST)
    )


def bonuses_of(boosts):
    ids = word_ids(WORDS)
    return {word: boosts.words.bonus(ids[word]) for word in ids}


def test_a_sequence_of_strings_is_one_list():
    one, other = compiler().compile(["fuchs", "the"], 2)
    assert one is other and bonuses_of(one)["fuchs"] > 0
    first, second, third, none = compiler().compile(
        [["fuchs"], {"the": 3.0}, ("the", "fuchs"), None], 4
    )
    assert bonuses_of(first)["fuchs"] == MOST and bonuses_of(first)["the"] == 0
    assert bonuses_of(second)["the"] == 3
    assert bonuses_of(third) == bonuses_of(one)
    assert not none


def test_numbers_that_are_given_stay():
    [found] = compiler().compile({"fuchs": None, "the": 4.0, "mater": -1.0}, 1)
    assert bonuses_of(found)["the"] == 4 and bonuses_of(found)["mater"] == -1
    [alone] = compiler().compile(["fuchs"], 1)
    assert bonuses_of(found)["fuchs"] == bonuses_of(alone)["fuchs"]


def test_scaled():
    ids = word_ids(WORDS)
    words, _ = compile_word_boosts({"fuchs": 4.0, "the": -1.0}, ids)
    half = scaled_words(words, 0.5)
    assert (half.bonus(ids["fuchs"]), half.bonus(ids["the"])) == (2.0, -0.5)
    assert half.top_bonus == 2
    assert scaled_words(words, 0.0).top_bonus == 0


@pytest.mark.parametrize("boundary", [None, 0])
@pytest.mark.parametrize("seed", range(10))
def test_scaled_phrases_are_worth_as_much_less(seed, boundary):
    """To the last bit where the amounts are whole multiples of the grain after it."""
    rng = np.random.default_rng(seed)
    labels = [f"t{i}" for i in range(5)]
    spelt = [[tuple(rng.integers(1, 5, rng.integers(1, 5)).tolist())] for _ in range(6)]
    weights = {str(i): float(rng.choice([1, 2, 3, -1])) for i in range(6)}
    options = PhraseOptions(weights_are_totals=True)
    table = token_table(labels, "t0") if boundary is None else token_table(labels, "t4")
    phrases = PhraseCompiler(
        lambda texts: [spelt[int(text)] for text in texts], table, options, boundary
    ).compile(weights)
    for scale in (0.0, 0.5, 0.75, 2.0):
        scaled = scaled_phrases(phrases, scale)
        for _ in range(20):
            tokens = rng.integers(0, 5, rng.integers(0, 9)).tolist()
            expected = scale * phrases.total(tokens)
            assert scaled.total(tokens) == pytest.approx(expected, abs=1e-9)
