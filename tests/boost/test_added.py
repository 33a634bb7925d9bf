"""Words that a decoder does not have: read, spelt, compiled."""

import numpy as np
import pytest

from wfstdec import BoostEntry, Boosts, Lexicon, token_table
from wfstdec.boost.automatic import ADDED, NEAR_ADDED, SAME_ADDED, DefaultBonuses
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.g2p import Pronouncer
from wfstdec.errors import BoostError, BoostWarning, OptionError
from wfstdec.text.lexicon import word_ids

TOKENS = token_table(["<blank>", "|", "a", "b", "c"])
WORDS = ("<eps>", "ab", "ba")
SPELT = ((2, 3), (3, 2))
UNK = 12.0


def compiler(spelt=SPELT, g2p=None):
    lexicon = Lexicon(WORDS[1:], spelt, np.zeros(2, np.float32))
    cost = np.array([np.inf, 3.0, 4.0])
    return BoostCompiler(
        WORDS,
        word_ids(WORDS),
        len(TOKENS),
        lambda: DefaultBonuses(WORDS, lexicon, cost, UNK),
        Pronouncer(TOKENS, lambda: lexicon, [1], g2p),
    )


def added_of(boosts, made=None, **options):
    [one] = (made or compiler()).compile(boosts, 1, **options)
    return one.oov


def rows(oov):
    """(word, tokens, bonus) of each pronunciation."""
    words = WORDS + oov.words
    return [
        (
            words[word],
            tuple(oov.tokens[oov.splits[i] : oov.splits[i + 1]].tolist()),
            float(oov.bonus[i]),
        )
        for i, word in enumerate(oov.word)
    ]


def test_words_come_with_their_pronunciations():
    boosts = [BoostEntry("cab", ["c a b", ("c", "b")], 4.0), BoostEntry("ab", ["a"])]
    oov = added_of(boosts)
    assert (oov.num_known, oov.words) == (3, ("cab",))
    assert rows(oov) == [
        ("ab", (2,), 0.0),
        ("cab", (4, 2, 3), 4.0),
        ("cab", (4, 3), 4.0),
    ]
    assert oov.total([3, 1, 3]) == 8.0


def test_bonuses_are_scaled():
    oov = added_of([BoostEntry("cab", ["c a b"], 4.0)], scale=0.5)
    assert rows(oov) == [("cab", (4, 2, 3), 2.0)]


def test_bonuses_of_added_words_are_not_in_the_map():
    [one] = compiler().compile([BoostEntry("cab", ["c"], 4.0), "ab"], 1)
    assert one.words.bonus(3) == 0 and one.words.bonus(1) > 0
    assert one.cost([1, 3], []) == -(4.0 + one.words.bonus(1))


def test_a_default_brings_a_word_to_a_price():
    [row] = rows(added_of([BoostEntry("cab", ["c c a b"])]))
    assert row[2] == pytest.approx(UNK - ADDED)
    names = [f"w{i}" for i in range(2000)]
    found = added_of([BoostEntry(name, ["c a c b"]) for name in names])
    assert found.bonus[0] == pytest.approx(UNK - np.log(6000), abs=1e-5)


def test_words_that_sound_like_common_ones_get_less():
    spelt = {"same": ["a b"], "near": ["a b c", "c c c c"], "far": ["c c c"]}
    found = rows(added_of([BoostEntry(word, ways) for word, ways in spelt.items()]))
    bonus = {word: one / (UNK - ADDED) for word, _, one in found}
    assert bonus == pytest.approx({"same": SAME_ADDED, "near": NEAR_ADDED, "far": 1.0})


def test_a_lexicon_of_spellings_spells_what_it_lacks():
    assert rows(added_of({"cab": 4.0})) == [("cab", (4, 2, 3), 4.0)]
    with pytest.warns(BoostWarning, match="'dab'"):
        assert added_of(["dab"]) is None
    with pytest.warns(BoostWarning, match="'cab' .*pronunciations or g2p"):
        assert added_of(["cab"], compiler(((2, 3), (4,)))) is None
    spelt = added_of({"cab": 4.0}, compiler(((2, 3), (4,)), "spelling"))
    assert rows(spelt) == [("cab", (4, 2, 3), 4.0)]


def test_g2p_is_asked_for_what_has_no_pronunciation():
    asked = []

    def g2p(word):
        asked.append(word)
        return {"cab": ["c a b", "c b"], "one": "c a"}.get(word, [])

    make = compiler(g2p=g2p)
    boosts = {"cab": 1.0, "one": 2.0, "ab": 1.0, "given": BoostEntry("given", ["c c"])}
    found = rows(added_of(boosts, make))
    assert [row[:2] for row in found] == [
        ("cab", (4, 2, 3)),
        ("cab", (4, 3)),
        ("given", (4, 4)),
        ("one", (4, 2)),
    ]
    assert sorted(asked) == ["cab", "one"]
    with pytest.warns(BoostWarning, match="'none'"):
        added_of(["none"], make)


def test_a_lexicon_may_say_it():
    others = Lexicon(("cab", "cab", "z"), ((4,), (3, 4), (2,)), np.zeros(3, np.float32))
    found = rows(added_of({"cab": 1.0}, compiler(g2p=others)))
    assert found == [("cab", (3, 4), 1.0), ("cab", (4,), 1.0)]


def test_the_file_of_a_lexicon_may_say_it(tmp_path):
    (tmp_path / "more.txt").write_text("cab b c\nz c\n")
    found = rows(added_of({"cab": 1.0}, compiler(g2p=str(tmp_path / "more.txt"))))
    assert found == [("cab", (3, 4), 1.0)]


def test_phrases_may_have_added_words():
    boosts = [BoostEntry("cab", ["c a b"], 1.0), BoostEntry("ab cab", bonus=3.0)]
    [one] = compiler().compile(boosts, 1)
    assert one.phrases.num_labels == 4
    assert one.cost([1, 3], []) == pytest.approx(-4.0)
    [alone] = compiler().compile({"ab cab": 3.0}, 1)
    usual = NEAR_ADDED * (UNK - ADDED)  # it sounds like `ab`
    assert rows(alone.oov) == [("cab", (4, 2, 3), pytest.approx(usual))]


def test_both_forms_of_a_list():
    entry = BoostEntry("cab", ["c a b"], 4.0)
    as_mapping = added_of({"cab": entry, "ab": 1.0})
    assert rows(as_mapping) == rows(added_of([entry]))
    assert rows(added_of(Boosts([entry, "ab"]))) == rows(added_of([entry]))
    first, second = compiler().compile([[entry], None], 2)
    assert first.oov and not second


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BoostEntry("cab", ["c a z"]), "'z', which the token table does not"),
        (lambda: BoostEntry("cab", ["c | a"]), "has '|' in it, expected neither the"),
        (lambda: BoostEntry("cab", ["c <blank>"]), "has '<blank>' in it, expected"),
        (lambda: BoostEntry("cab", [""]), "a pronunciation of 'cab' is empty"),
        (lambda: BoostEntry("cab", "c a b"), "are 'c a b', expected a list of them"),
        (lambda: BoostEntry("cab", [3]), "is 3, expected the names of tokens"),
        (lambda: BoostEntry(" ", ["c"]), "boosted word ' ', expected a string"),
        (lambda: BoostEntry("a b", ["c"]), "'a b' has pronunciations and several"),
        (lambda: BoostEntry("cab", ["c"], "4"), "bonus '4' of 'cab', expected"),
        (
            lambda: {"ab": BoostEntry("cab", ["c"])},
            "the entry of 'ab' is .*, expected its own",
        ),
    ],
)
def test_lists_that_are_wrong(make, message):
    with pytest.raises(BoostError, match=message.replace("|", "\\|")):
        made = make()
        compiler().compile(made if isinstance(made, dict) else [made], 1)


def test_two_bonuses_for_one_word():
    entries = [BoostEntry("cab", ["c"], 1.0), BoostEntry("cab", ["b"], 2.0)]
    with pytest.raises(BoostError, match="'cab' has the bonuses 1.0 and 2.0"):
        compiler().compile(entries, 1)
    same = [BoostEntry("cab", ["c"], 1.0), BoostEntry("cab", ["b"], 1.0)]
    assert [row[1] for row in rows(added_of(same))] == [(3,), (4,)]


def test_what_a_g2p_gives_wrongly_is_named():
    message = "names that are no tokens: 'AE' in 1 .'cab'., 'K' in 1"
    with pytest.warns(BoostWarning, match=message):
        assert added_of(["cab"], compiler(g2p=lambda word: ["K AE b"])) is None
    with pytest.raises(BoostError, match="'cab' is 3, expected the names of tokens"):
        added_of(["cab"], compiler(g2p=lambda word: [3]))
    with pytest.raises(OptionError, match="g2p=3, expected a function"):
        compiler(g2p=3)
    with pytest.raises(OptionError, match="no file and no program has this name"):
        compiler(g2p="phones")


def test_a_decoder_without_words_says_so():
    made = BoostCompiler(WORDS, word_ids(WORDS), 5, None, "build the graph again")
    with pytest.raises(BoostError, match="'cab' has pronunciations, but build the gr"):
        made.compile([BoostEntry("cab", ["c"])], 1)
    with pytest.warns(BoostWarning):
        made.compile(["cab"], 1)
