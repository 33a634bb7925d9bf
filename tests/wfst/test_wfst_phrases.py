"""Phrases in the WFST search: by hand, against the oracle, equal on all backends."""

import dataclasses
from functools import partial

import naive_cases
import numpy as np
import pytest
from oracle_cases import assert_best, boosts_of_case, graph_by_files
from random_graphs import LARGE, random_graph
from text_graphs import text_graph
from wfst_searches import UNBOUNDED, decoder_of, log

from wfstdec import PhraseCompiler, PhraseOptions, WfstOptions
from wfstdec.boost import kernels
from wfstdec.boost.tables import phrase_rows
from wfstdec.errors import BoostError
from wfstdec.jit import jit
from wfstdec.lm import kernels as lm_kernels
from wfstdec.text.tokens import ilabel_of
from wfstdec.wfst.options import BACKENDS

OTHERS = [name for name in BACKENDS if name != "reference"]
TOTALS = PhraseOptions(weights_are_totals=True)


def compiled(graph, spelt, unit="word", options=TOTALS):
    """Phrases, written as labels between spaces, with their weights."""
    if unit == "word":
        ids, table = graph.word_ids, graph.words
    else:
        ids, table = graph.tokens.ids, graph.tokens

    def spell(phrases):
        return [[tuple(ids[label] for label in phrase.split())] for phrase in phrases]

    return PhraseCompiler(spell, table, options).compile(spelt)


NEW_YORK = """
    0 1 a new 0
    0 1 b old 0.5
    1 2 a york 0
    1 2 b town 1
    2 0
"""


@pytest.mark.parametrize("name", BACKENDS)
def test_a_phrase_of_words_by_hand(name):
    """Half a phrase is worth nothing, and keeps another in the search no more."""
    graph = text_graph(NEW_YORK)
    x = np.zeros((2, 3), np.float32)
    expected = {
        ("new york", 3.0): ("new york", -3.0, -3.0),
        ("new town", 3.0): ("new town", -3.0, -2.0),
        ("old town", 3.0): ("old town", -3.0, -1.5),
        ("old town", 1.25): ("new york", 0.0, 0.0),
        ("town old", 9.0): ("new york", 0.0, 0.0),
        ("new york", -1.0): ("old york", 0.0, 0.5),
        ("york", -2.0): ("new town", 0.0, 1.0),
    }
    for (phrase, weight), (text, boost_cost, total) in expected.items():
        boosts = compiled(graph, {phrase: weight})
        (hyp,) = decoder_of(name, graph).decode([x], boosts=boosts)
        assert (hyp.text, hyp.boost_cost, hyp.total_cost) == (text, boost_cost, total)


@pytest.mark.parametrize("name", BACKENDS)
def test_phrases_among_words(name):
    """A mapping's keys of several words are phrases; single words are apart."""
    graph = text_graph(NEW_YORK)
    x = np.zeros((2, 3), np.float32)
    boosts = {"old": 0.25, "new town": 1.5, "york": -0.5}
    (hyp,) = decoder_of(name, graph).decode([x], boosts=boosts)
    assert (hyp.text, hyp.boost_cost, hyp.total_cost) == ("new town", -1.5, -0.5)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_phrase_of_tokens_by_hand(name):
    """Blanks and repeats are no labels; `a b` ends at its first `b` frame."""
    text = """
        0 0 _ - 0
        0 1 a - 0
        1 1 a' - 0
        1 2 _ - 0
        1 3 b AB 0
        2 2 _ - 0
        2 3 b AB 0
        2 1 a AA 0
        3 3 b' - 0
        3 0
        1 0
    """
    graph = text_graph(text)
    boosts = compiled(graph, {"a b": 2.0, "b b": 50.0, "a a": 3.0}, "token")
    decoder = decoder_of(name, graph)
    for frames, text, cost in (
        ("ab", "AB", -2.0),
        ("a_b", "AB", -2.0),
        ("aab", "AB", -2.0),
        ("abb", "AB", -2.0),
        ("_a_a", "AA", -3.0),
        ("a_a_b", "AA AB", -5.0),
        ("aa", "", 0.0),
    ):
        p = [[float(frame == token) for token in "_ab"] for frame in frames]
        (hyp,) = decoder.decode([log(p)], boosts=boosts)
        assert (hyp.text, hyp.boost_cost, hyp.total_cost) == (text, cost, cost)
        assert hyp.reached_final


@pytest.mark.parametrize("name", BACKENDS)
def test_the_state_before_an_utterance_is_that_of_a_boundary(name):
    """Whole words only: `b` counts after a boundary or at the start, not after `a`."""
    lines = [f"0 0 {token} - 0" for token in "_abs"]
    graph = text_graph("\n".join([*lines, "0 0"]), tokens="_ a b s")

    def spell(phrases):
        return [[(2,)] for _ in phrases]

    compiler = PhraseCompiler(spell, graph.tokens, TOTALS, boundary=3)
    boosts = compiler.compile({"b": 1.0})
    for frames, cost in (("b", -1), ("ab", 0), ("asb", -1), ("bsb", -2), ("b_a", 0)):
        p = [[float(frame == token) for token in "_abs"] for frame in frames]
        (hyp,) = decoder_of(name, graph).decode([log(p)], boosts=boosts)
        assert (hyp.boost_cost, hyp.total_cost) == (cost, cost)


@pytest.mark.parametrize("name", BACKENDS)
def test_an_unfinished_phrase_is_refunded_whatever_the_end(name):
    for text in ("0 1 a A 0\n1 2 b B 0\n1 0", "0 1 a A 0\n1 2 b B 0\n2 0", "0 1 a A 0"):
        graph = text_graph(f"{text}\n9 0\n0 9 _ - 9")
        boosts = compiled(graph, {"a b": 4.0}, "token")
        for num_frames in (1, 2):  # in the second the search may die
            x = log([[0, 1, 0]] * num_frames)
            (hyp,) = decoder_of(name, graph).decode([x], boosts=boosts)
            assert (hyp.text, hyp.boost_cost, hyp.total_cost) == ("A", 0.0, 0.0)


@pytest.mark.parametrize("name", BACKENDS)
def test_ties_between_boost_states_go_to_the_lower_one(name):
    """All costs are 0; after one frame the state of `a` is lower than that of `b`."""
    graph = text_graph("0 1 a A 0\n0 1 b B 0\n1 2 a - 0\n2 0")
    for phrases, text in (
        (("b b", "a a"), "A"),  # both lead to the state `a`: the source decides
        (("a b", "b a b"), "A"),  # to `a` and to `b a`
        (("a a a", "b b b"), "B"),  # to `a a` and to `a`
    ):
        boosts = compiled(graph, dict.fromkeys(phrases, 0.0), "token")
        for max_active, expected in ((None, text), (2, text), (1, "A")):
            options = WfstOptions(beam=9.0, max_active=max_active)
            decoder = decoder_of(name, graph, options)
            (hyp,) = decoder.decode([np.zeros((2, 3), np.float32)], boosts=boosts)
            assert hyp.text == expected


@pytest.mark.parametrize("name", BACKENDS)
def test_max_active_counts_boost_states(name):
    """State 1 is active twice, and both of it come before the cheap state 2."""
    text = "0 1 a A 0\n0 1 b B 0\n0 2 a C 0.5\n1 3 a - 1\n2 3 a - 0\n3 0"
    graph, x = text_graph(text), np.zeros((2, 3), np.float32)
    boosts = compiled(graph, {"b b": 0.0}, "token")
    for max_active, expected in ((1, "A"), (2, "A"), (3, "C")):
        options = WfstOptions(beam=9.0, max_active=max_active)
        (hyp,) = decoder_of(name, graph, options).decode([x], boosts=boosts)
        assert hyp.text == expected


def decode_case(case, folder, backend, **options):
    graph = graph_by_files(case, folder)
    options = dataclasses.replace(UNBOUNDED, **case.options, **options)
    boosts = boosts_of_case(case, graph, folder)
    decoder = decoder_of(backend, graph, options)
    return decoder.decode([case.logprobs], boosts=boosts)[0]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("unit", ["word", "token"])
@pytest.mark.parametrize("fillers", naive_cases.FILLERS)
@pytest.mark.share(keep=4)
def test_random_cases(name, unit, fillers, tmp_path, quiet):
    sentences = credited = 0
    for i in range(40):
        rng = np.random.default_rng([i, len(unit), len(fillers)])
        case = naive_cases.random_case(rng, fillers=fillers)
        phrases = naive_cases.random_phrases(rng, sorted(case.usable_words), unit)
        case = dataclasses.replace(case, phrases=phrases)
        hyp = decode_case(case, tmp_path, name)
        assert_best(hyp, naive_cases.solve(case))
        sentences += len(hyp.words) > 0
        credited += hyp.boost_cost < 0
    assert sentences > 15
    assert credited > 8


def rows_case(seed):
    """Phrases of a random graph, of any size and amounts, and their rows."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.choice([3, 9, LARGE])), num_states=2)
    size = int(rng.choice([3, 40, 3000]))
    unit = ["word", "token"][seed % 2]
    labels = graph.tokens if unit == "token" else graph.words
    spelt = {}
    for _ in range(size):
        spelling = rng.integers(unit == "word", len(labels), rng.integers(1, 6))
        spelt[" ".join(map(str, spelling))] = float(rng.choice([1, 3, -1, 0.25]))
    if rng.random() < 0.3:
        spelt = {key: weight * 1e5 / 3 for key, weight in spelt.items()}
    options = PhraseOptions()

    def spell(phrases):
        return [[tuple(map(int, phrase.split()))] for phrase in phrases]

    boosts = PhraseCompiler(spell, labels, options).compile(spelt)
    return graph, boosts, phrase_rows(boosts, ilabel_of(0) if seed % 2 else 0)


@jit
def steps_of(rows, boosts, labels, costs, nextstates):
    for i in range(len(boosts)):
        found = kernels.step(rows, np.uint32(boosts[i]), np.uint32(labels[i]))
        costs[i], nextstates[i] = found


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.share(keep=8)
def test_rows_step_as_the_automaton_does(seed):
    """Bits and states; and no label is credited more than the row says."""
    graph, boosts, rows = rows_case(seed)
    first = ilabel_of(0) if boosts.unit == "token" else 0
    labels = np.arange(boosts.unit == "word", boosts.num_labels)
    states = np.arange(min(boosts.num_states, 2000))
    states, labels = (a.ravel() for a in np.meshgrid(states, labels))
    some = np.stack([np.zeros_like(states), states, labels]).astype(np.int32)
    expected = np.empty(len(states), np.float32)
    expected_next = np.empty(len(states), np.int32)
    lm_kernels.steps(boosts.automaton, *some, expected, expected_next)
    costs, nextstates = np.empty_like(expected), np.empty_like(expected_next)
    steps_of(rows, states, labels + first, costs, nextstates)
    assert costs.tobytes() == expected.tobytes()
    assert np.array_equal(nextstates, expected_next)
    assert (-costs <= rows.rows["credit"][states]).all()
    assert np.array_equal(rows.final_cost, boosts.automaton.final_cost)


@pytest.mark.parametrize("name", BACKENDS)
def test_phrases_of_tokens_need_marked_repeats(name):
    graph = text_graph("0 1 a A 0\n1 0", marks_repeats=False)
    boosts = compiled(graph, {"a b": 1.0}, "token")
    decoder, x = decoder_of(name, graph), np.zeros((1, 3), np.float32)
    for begin in (partial(decoder.decode, [x]), decoder.sessions().open):
        with pytest.raises(BoostError, match="phrases of tokens, .* `wfstdec build`"):
            begin(boosts=boosts)
    assert decoder.decode([x], boosts={"A A": 1.0})[0].text == "A"


@pytest.mark.parametrize("name", BACKENDS)
def test_phrases_of_another_table(name):
    graph = text_graph(NEW_YORK)
    other = text_graph("0 1 a A 0\n1 0", tokens="_ a b c")
    for unit in ("word", "token"):
        with pytest.raises(BoostError, match=f"{unit}s, expected"):
            boosts = compiled(other, {"A" if unit == "word" else "a": 1.0}, unit)
            decoder_of(name, graph).decode([np.zeros((1, 3))], boosts=boosts)
