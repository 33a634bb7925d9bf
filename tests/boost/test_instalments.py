"""Credits in instalments: what is paid when, and that the sum is what it was."""

import math

import numpy as np
import pytest
from boost_reference import BoostAccount
from compiled import compiled
from text_graphs import text_graph

from wfstdec import Boosts, PhraseCompiler, PhraseOptions, WfstDecoder, WfstOptions
from wfstdec.boost.compile import BoostCompiler
from wfstdec.boost.kernels import (
    MAX_DEFERRED,
    deferred_of,
    join,
    max_credit_per_arc,
    most_paid,
    pay,
    rest_of,
    state_of,
)
from wfstdec.boost.phrases import by_words

join, most_paid, deferred_of = map(compiled, (join, most_paid, deferred_of))
pay, rest_of, state_of = map(compiled, (pay, rest_of, state_of))
WORDS = ("<eps>", "new", "york", "art")


def paid_in_all(credit, size):
    parts, boost, credit = [], 0, np.float32(credit)
    while True:
        paid, boost = pay(boost, 7, credit, size)
        parts.append(float(paid))
        credit = np.float32(0)
        assert state_of(boost) == 7
        if deferred_of(boost) == 0:
            return parts


def test_by_hand():
    """A beam of 8 nats pays at most 4 at once."""
    size = max_credit_per_arc(8.0)
    assert size == 4
    assert paid_in_all(3, size) == [3]
    assert paid_in_all(4, size) == [4]
    assert paid_in_all(13, size) == [4, 4, 4, 1]
    assert paid_in_all(-20, size) == [-20]  # a penalty drops nothing but itself
    boost = pay(0, 0, np.float32(10), size)[1]
    assert deferred_of(boost) == 6  # quarters: 6 nats
    # A refund is taken from it first.
    assert pay(boost, 0, np.float32(-2), size) == (4, 0)
    assert pay(boost, 0, np.float32(-9), size) == (-3, 0)


@pytest.mark.parametrize("beam", [0.0, 0.001, 3.3, 8.0, 13.0, 1e4, math.inf])
def test_the_sum_is_exact_and_no_part_above_half_the_beam(beam):
    size = max_credit_per_arc(beam)
    assert 0 < size <= max(beam / 2, 4 / 16384)
    rng = np.random.default_rng(5)
    for credit in [*rng.uniform(-5, 60, 200), *rng.uniform(0, 40, 50) * float(size)]:
        credit = np.float32(min(round(credit * 1024) / 1024, 1000))
        parts = paid_in_all(credit, size)
        assert math.fsum(parts) == credit
        most = max(size, credit - np.float32(MAX_DEFERRED) * size / 4)
        assert max(parts) <= most
        assert len(parts) == 1 or min(parts) > 0


def compiled(words=None, phrases=None):
    ids = {word: i for i, word in enumerate(WORDS) if i}
    automaton = None
    if phrases:
        options = PhraseOptions(weights_are_totals=True)
        automaton = PhraseCompiler(by_words(ids), WORDS, options).compile(phrases)
    [one] = BoostCompiler(WORDS, ids, 5).compile(Boosts(words or {}, automaton), 1)
    return one


@pytest.mark.parametrize("seed", range(20))
def test_any_steps_are_credited_what_they_were_without_instalments(seed):
    """Words and phrases at once; steps of words, tokens and both."""
    rng = np.random.default_rng(seed)
    boosts = compiled(
        {"new": float(rng.integers(-9, 40)), "art": 12.25},
        {"new york": 13.0, "york york": float(rng.integers(1, 30)), "art": -3.0},
    )
    account, whole = (BoostAccount(boosts, beam) for beam in (2.0, math.inf))
    for _ in range(20):
        steps = [
            (rng.choice([None, 1, 2, 3]), rng.choice([None, 4]))
            for _ in range(rng.integers(0, 12))
        ]
        totals = []
        for one in (account, whole):
            boost, total = one.start, 0.0
            for word, token in steps:
                cost, boost = one.step(boost, word, token)
                total += float(cost)
            totals.append(total + float(one.rest(boost)))
        words = [word for word, _ in steps if word is not None]
        assert totals[0] == totals[1] == pytest.approx(boosts.cost(words, ()), abs=1e-9)


RIVALS = """
    0 1 a - 0
    1 2 b - 0
    2 3 c art 0
    0 4 a new 0.5
    4 5 b - 0
    5 6 d - 0
    3 0
    6 0
"""


def test_a_bonus_above_the_beam_does_not_drive_out_what_is_right():
    """A word is credited on its first token; its third speaks against it."""
    graph = text_graph(RIVALS, tokens="_ a b c d")
    x = np.full((3, len(graph.tokens)), -20.0, np.float32)
    for frame, token in enumerate("abc"):
        x[frame, graph.tokens.ids[token]] = -0.5
    found = [
        WfstDecoder(graph, WfstOptions(beam=beam), backend).decode(
            [x], boosts={"new": 9.0}
        )[0]
        for beam in (4.0, 100.0)
        for backend in ("reference", "cpu")
    ]
    assert {one.text for one in found} == {"art"}
    assert {one.total_cost for one in found} == {1.5}
