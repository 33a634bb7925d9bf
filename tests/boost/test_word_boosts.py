"""Word boosts: the hash map, and what boosts do to a decoding."""

import math
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from random_graphs import random_graph, random_logprobs, random_options
from searches import Lockstep
from text_graphs import text_graph

from wfstdec import WfstDecoder
from wfstdec.boost.compile import collected_warnings
from wfstdec.boost.compiled import compile_word_boosts, find_bonus
from wfstdec.boost.lists import BoostList
from wfstdec.errors import BoostError, BoostWarning, ShapeError
from wfstdec.wfst.options import BACKENDS

MASK = 0xFFFFFFFF


def naive_mix(key):
    """Wellons' lowbias32, in integers of Python."""
    key ^= key >> 16
    key = key * 0x7FEB352D & MASK
    key ^= key >> 15
    key = key * 0x846CA68B & MASK
    return key ^ key >> 16


def look_up(boosts, words):
    return [float(find_bonus(boosts.keys, boosts.bonuses, np.uint32(w))) for w in words]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 31, 32, 33, 1000, 20_000])
def test_against_a_dict(size):
    rng = np.random.default_rng(size)
    ids = rng.choice(1 << 20, size, replace=False) + 1
    expected = dict(zip(ids.tolist(), rng.normal(size=size).tolist(), strict=True))
    word_ids = {f"w{i}": i for i in ids.tolist()}
    boosts, _ = compile_word_boosts({f"w{i}": b for i, b in expected.items()}, word_ids)
    slots = len(boosts.keys)
    assert 2 * size <= slots <= 8 * size and slots & (slots - 1) == 0
    found = dict(zip(expected, look_up(boosts, expected), strict=True))
    assert found == {i: float(np.float32(b)) for i, b in expected.items()}
    others = set(rng.integers(1, 1 << 20, 2000).tolist()) - expected.keys()
    assert look_up(boosts, others) == [0] * len(others)
    assert boosts.top_bonus == max(0, *map(np.float32, expected.values()))


@pytest.mark.parametrize("home", [0, 63])
def test_collisions(home):
    """All words want the same slot, the last one also, whose next is the first."""
    ids = [i for i in range(1, 200_000) if naive_mix(i) & 63 == home][:33]
    word_ids = {f"w{i}": i for i in ids}
    given = {f"w{i}": i / 8 for i in ids[:32]}
    for order in (list(given), list(given)[::-1]):
        boosts, _ = compile_word_boosts({w: given[w] for w in order}, word_ids)
        assert len(boosts.keys) in (64, 128)
        assert look_up(boosts, ids) == [*(i / 8 for i in ids[:32]), 0]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"a": math.nan},
            "bonus nan of 'a', expected a number of nats, -1e+06 to 1e+06",
        ),
        ({"a": math.inf}, "bonus inf of 'a', expected a number of nats"),
        ({"a": 1e39}, "bonus 1e+39 of 'a', expected a number of nats"),
        ({"a": -(10**400)}, "0 of 'a', expected a number of nats"),
        ({"a": "3"}, "bonus '3' of 'a', expected a number of nats"),
        ({"unknown": math.nan}, "bonus nan of 'unknown', expected a number of nats"),
        ({7: 1.0}, "boosted word 7, expected a string"),
        ({b"a": 1.0}, "boosted word b'a', expected a string"),
    ],
)
def test_entries_that_mean_nothing(entry, message):
    with pytest.raises(BoostError) as error:
        BoostList.of({"good": 1.0} | entry)
    assert message in str(error.value)


HOMOPHONES = """
    0 1 a hear 1
    0 1 a here 1.5
    1 1 a' - 0
    1 2 _ - 0
    2 2 _ - 0
    2 0 - - 0.25
    1 0
    2 0
"""
TWICE = np.log([[0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]).astype(np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bonus_favours_a_word_wherever_it_comes(backend):
    decoder = WfstDecoder(text_graph(HOMOPHONES), backend=backend, threads=1)
    (plain,) = decoder.decode([TWICE])
    (boosted,) = decoder.decode([TWICE], boosts={"here": 2.0})
    assert (plain.text, plain.boost_cost) == ("hear hear", 0.0)
    assert (boosted.text, boosted.boost_cost) == ("here here", -4.0)
    assert boosted.total_cost == pytest.approx(plain.total_cost + 2 * 0.5 - 4)
    (slightly,) = decoder.decode([TWICE], boosts={"here": 0.25})
    assert (slightly.text, slightly.boost_cost) == ("hear hear", 0.0)
    (punished,) = decoder.decode([TWICE], boosts={"hear": -1.0})
    assert (punished.text, punished.boost_cost) == ("here here", 0.0)
    (both,) = decoder.decode([TWICE], boosts={"hear": -0.25, "here": -3.0})
    assert (both.text, both.boost_cost) == ("hear hear", 0.5)


def test_boosts_of_zero_change_nothing():
    for i in range(20):
        rng = np.random.default_rng(i)
        graph, options = random_graph(rng), random_options(rng)
        x = random_logprobs(rng, 6, len(graph.tokens))
        decoder = WfstDecoder(graph, options)
        zeros = dict.fromkeys(graph.words[1:], 0.0)
        assert decoder.decode([x], boosts=zeros) == decoder.decode([x])


def test_unknown_words_are_named():
    decoder = WfstDecoder(text_graph(HOMOPHONES))
    with pytest.warns(BoostWarning) as caught:
        decoder.decode(
            [TWICE] * 3, boosts=[{"hare": 1.0}, None, {"here": 1, "Hear": 2}]
        )
    assert [str(w.message) for w in caught] == [
        "1 boosted words are taken as the decoder's table writes them: "
        "'Hear' as 'hear'",
        "1 boosted words are not in the decoder's table and have no effect: 'hare' "
        "(fits no word); expected its words, or pronunciations or g2p for others",
    ]
    assert caught[0].filename == __file__
    with pytest.warns(BoostWarning, match="'hare'"):
        Lockstep(decoder, 1, {"hare": 1.0})


def test_a_thread_collects_its_own_warnings():
    """Warnings of other threads are given there, or are in their own lists."""
    decoder = WfstDecoder(text_graph(HOMOPHONES))
    both = threading.Barrier(2)

    def compile_one(word):
        with collected_warnings() as texts:
            both.wait(10)
            decoder.compile_boosts({word: 1.0})
            both.wait(10)
        return texts

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(compile_one, ["hare", "hair"]))
    assert [len(texts) for texts in found] == [1, 1]
    assert "'hare'" in found[0][0] and "'hair'" in found[1][0]
    with pytest.warns(BoostWarning, match="'hare'"):
        decoder.compile_boosts({"hare": 1.0})


def test_many_unknown_words_are_counted():
    decoder = WfstDecoder(text_graph(HOMOPHONES))
    with pytest.warns(BoostWarning) as caught:
        decoder.decode([TWICE], boosts={f"w{i:02}": 1.0 for i in range(13)})
    message = str(caught[0].message)
    assert message.startswith("13 boosted words are not in the decoder's table")
    assert "'w09' (fits no word) and 3 more; expected" in message


def test_epsilon_is_no_word():
    with pytest.warns(BoostWarning, match="'<eps>'"):
        WfstDecoder(text_graph(HOMOPHONES)).decode([TWICE], boosts={"<eps>": 1.0})


@pytest.mark.parametrize(
    ("boosts", "error", "message"),
    [
        ("here", BoostError, "boosts is a str, expected a mapping from word to bonus"),
        (3.0, BoostError, "boosts is a float, expected a mapping from word to bonus"),
        ([None], ShapeError, "1 boost lists, expected 2, one per utterance"),
        ([None] * 3, ShapeError, "3 boost lists, expected 2, one per utterance"),
        ([None, "here"], BoostError, "utterance 1: boosts is a str, expected a map"),
        ([[3], None], BoostError, "utterance 0: boosted word 3, expected a string"),
        (
            [None, {"here": math.nan}],
            BoostError,
            "utterance 1: bonus nan of 'here', expected a num",
        ),
    ],
)
def test_boosts_that_mean_nothing(boosts, error, message):
    with pytest.raises(error) as caught:
        WfstDecoder(text_graph(HOMOPHONES)).decode([TWICE] * 2, boosts=boosts)
    assert message in str(caught.value)
