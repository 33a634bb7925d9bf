"""Boosts that requests ask for: what is read, what is refused, and in which words."""

import pytest

from wfstdec import BoostEntry
from wfstdec.boost.lists import BoostList
from wfstdec.errors import BoostError, OptionError

pytest.importorskip("prometheus_client")

from wfstdec.server.boosts import requested_boosts
from wfstdec.server.limits import Limits

LIMITS = Limits(boosts=5, boost_chars=12)
FUCHS = {"text": "fuchs", "pronunciations": ["f j u k s", ["f", "u"]], "bonus": 2}


def asked(**given):
    return requested_boosts(limits=LIMITS, **given)


def test_every_form():
    assert asked() is None
    assert asked(keyterms=[], keywords=(), boosts={}) is None
    assert asked(keyterms=["quilter", " new  york "]) == {
        "quilter": None,
        "new york": None,
    }
    assert asked(keywords=["quilter", "hatton:-1.5", "new york:2", "a:b:3"]) == {
        "quilter": None,
        "hatton": -1.5,
        "new york": 2.0,
        "a:b": 3.0,
    }
    assert asked(boosts={"quilter": 4, "hatton": None}) == {
        "quilter": 4.0,
        "hatton": None,
    }
    entry = BoostEntry("fuchs", ["f j u k s", ["f", "u"]], 2)
    assert asked(boosts=["quilter", FUCHS]) == {"quilter": None, "fuchs": entry}
    assert asked(boosts={"boosts": ["quilter"]}) == {"quilter": None}
    assert asked(boosts={"boosts": 3}) == {"boosts": 3.0}  # a word like others
    together = asked(keyterms=["a"], keywords=["b:1"], boosts={"c": 2})
    assert together == {"a": None, "b": 1.0, "c": 2.0}


def test_what_is_read_is_a_list_of_the_library():
    found = BoostList.of(asked(keyterms=["a  b"], boosts=[FUCHS, "quilter"]))
    assert found.numbers == {"a b": None, "fuchs": 2.0, "quilter": None}
    assert found.pronunciations == {"fuchs": (("f", "j", "u", "k", "s"), ("f", "u"))}


def test_the_same_twice_is_once():
    assert asked(keyterms=["a", "a"], keywords=["a"]) == {"a": None}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"keyterms": "quilter"}, "keyterms is 'quilter', expected a list of strings"),
        ({"keywords": 3}, "keywords is 3, expected a list"),
        ({"keyterms": [""]}, "word '', expected a string of words"),
        ({"keywords": [" "]}, "word ' ', expected a string of words"),
        ({"keywords": ["quilter:"]}, "keyword 'quilter:', expected 'word' or"),
        ({"keywords": ["a:nan"]}, "keyword 'a:nan', expected 'word' or"),
        ({"keywords": ["a:1e7"]}, "bonus 10000000.0 of 'a'"),
        ({"keywords": ["a:1", "a:2"]}, "'a' has the bonuses 1.0 and 2.0, expected one"),
        ({"keyterms": ["a"], "boosts": {"a": 2}}, "bonuses none and 2, expected one"),
        ({"boosts": "quilter"}, "boosts is 'quilter', expected {word: bonus}, or a"),
        ({"boosts": False}, "boosts is False, expected"),
        ({"boosts": {"a": "4"}}, "bonus '4' of 'a', expected a number"),
        ({"boosts": {"a": True}}, "bonus True of 'a', expected a number"),
        ({"boosts": {"a": float("nan")}}, "bonus nan of 'a'"),
        ({"boosts": {"a": 10**400}}, "of 'a', expected a number"),
        ({"boosts": {"": 1}}, "word '', expected a string of words"),
        ({"boosts": {"id": 1, "boosts": {}}}, "bonus {} of 'boosts', expected a"),
        ({"boosts": [{"text": "a", "x": 1}]}, "expected 'text', and"),
        ({"boosts": [{"text": 3}]}, "word 3, expected a string"),
        ({"boosts": [{"text": "a", "bonus": []}]}, "bonus [] of 'a'"),
        ({"boosts": [{"text": "a", "pronunciations": 0}]}, "of 'a' are 0, expected a"),
        ({"boosts": [{"text": "a", "pronunciations": "a b"}]}, "are 'a b', expected"),
        ({"boosts": [{"text": "a", "pronunciations": [3]}]}, "'a' is 3, expected the"),
        ({"boosts": [{"text": "a", "pronunciations": [""]}]}, "'a' is empty"),
        ({"boosts": [{"text": "a b", "pronunciations": ["a"]}]}, "several words"),
        ({"keyterms": ["\ud800"]}, "half a surrogate pair"),
    ],
)
def test_what_is_wrong_is_said(given, message):
    with pytest.raises(BoostError) as error:
        asked(**given)
    assert message in str(error.value)


def test_limits_name_the_flags_that_raise_them():
    with pytest.raises(OptionError, match="more than 5 boosts .* --max-boosts allows"):
        asked(keyterms=list("abcdef"))
    with pytest.raises(OptionError, match="more than 5 boosts"):
        asked(boosts=[{"text": "a", "pronunciations": list("abcde")}])
    with pytest.raises(OptionError, match="13 characters .* at most 12; .*boost-chars"):
        asked(keyterms=["a" * 13])
    with pytest.raises(OptionError, match="13 characters or tokens"):
        asked(boosts=[{"text": "a", "pronunciations": ["a " * 13]}])


def test_a_long_list_is_given_up_at_the_limit():
    def endless():
        yield from iter(lambda: "a", None)

    class Long(list):
        def __iter__(self):
            return endless()

    with pytest.raises(OptionError, match="more than 5"):
        asked(keyterms=Long())


def test_errors_stay_short():
    for given in ({"boosts": "a" * 10**6}, {"boosts": {"a": "b" * 10**6}}):
        with pytest.raises(BoostError) as error:
            asked(**given)
        assert len(str(error.value)) < 300
