"""Defects of public implementations of these searches, each by a case of its own."""

import io
import math

import naive_transducer
import numpy as np
import pytest
import torch
from arpa_texts import arpa_of
from table_transducers import TableTransducer, texts_of, transducer_of

from wfstdec import PhraseOptions, TransducerDecoder, TransducerOptions, read_arpa
from wfstdec.transducer.beam import Candidates, merge, start_beam

INF = math.inf
LN10 = math.log(10)
WIDE = {"beam_size": 64, "expansion_beta": 60, "expansion_gamma": INF}
UNIGRAMS = arpa_of("-99 <s>; -0.5 </s>; -0.25 a; -1 b")
BIGRAMS = arpa_of(
    "-99 <s> -0.5; -0.5 </s>; -0.25 a -0.75; -1 b", "-0.0625 <s> b; -0.125 b a"
)


def decoder_of(model, lm=None, **options):
    lm = [(read_arpa(io.StringIO(text)), weight) for text, weight in lm or ()]
    return TransducerDecoder(model, lm=lm, options=TransducerOptions(**options))


def nbest(model, lm=None, boosts=None, **options):
    decoder = decoder_of(model, lm, **options)
    compiled = (
        decoder.phrase_compiler(PhraseOptions()).compile(boosts) if boosts else None
    )
    return texts_of(decoder.decode_nbest([model.frames()], boosts=compiled)[0])


def random_model(seed, durations=(), **sizes):
    return TableTransducer(np.random.default_rng(seed), 2, durations, **sizes)


def test_the_logarithm_of_one_minus_p_blank_is_not_clamped():
    """A blank of 0.9999: the public code has ln(1 - 0.99) for ln(0.0001)."""
    model = transducer_of([{"": [0.0001, 0.0, 0.9999], "a": [0.0, 0.0, 1.0]}])
    found = nbest(model, [(UNIGRAMS, 0.5)])
    expected = math.log(0.0001) * 1.5 - 0.5 * 0.75 * LN10
    assert found["a"] == pytest.approx(expected, rel=1e-6)


def test_boosts_are_no_weight_of_the_blank():
    model = transducer_of([{"": [0.3, 0.1, 0.6], "a": [0.0, 0.0, 1.0]}])
    found = nbest(model, boosts={"a": 2.0})
    assert found[""] == pytest.approx(math.log(0.6))
    assert found["a"] == pytest.approx(math.log(0.3) + 2.0)
    both = nbest(model, [(UNIGRAMS, 0.5)], boosts={"a": 2.0})
    assert both[""] == pytest.approx(1.5 * math.log(0.6) - 0.25 * LN10)


@pytest.mark.parametrize("strategy", ["alsd", "aes"])
def test_a_forced_blank_is_scored_like_any(strategy):
    model = transducer_of([{"": [0.5, 0.1, 0.4], "a": [0.25, 0.25, 0.5]}])
    found = nbest(
        model,
        [(UNIGRAMS, 0.5)],
        **{"strategy": strategy, "max_symbols": 1},
        **{**WIDE, "expansion_rounds": 1},
    )
    spoken = math.log(0.5) + 0.5 * math.log(0.6)
    expected = spoken + 1.5 * math.log(0.5) - 0.5 * 0.75 * LN10
    assert set(found) == {"", "a", "b"}
    assert found["a"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("strategy", ["greedy", "alsd", "aes"])
def test_states_of_models_are_kept_over_chunks(strategy):
    """The public AES++ begins its language model anew with every chunk."""
    for seed in range(8):
        model = random_model(seed, num_frames=4)
        decoder = decoder_of(model, [(BIGRAMS, 1.5)], strategy=strategy, beam_size=3)
        (whole,) = decoder.decode_nbest([model.frames()])
        sessions = decoder.sessions()
        one = sessions.open()
        for frame in model.frames().split(1):
            sessions.advance({one: frame})
        assert sessions.close_nbest(one) == whole


@pytest.mark.parametrize("seed", range(5))
def test_expansions_of_a_frame_are_added_up(seed):
    """The public AES++ keeps the better of two alignments, not their sum."""
    model = random_model(seed)
    found = nbest(model, strategy="aes", expansion_rounds=4, **WIDE)
    assert math.fsum(map(math.exp, found.values())) == pytest.approx(1.0)


def test_duplicates_of_the_second_round_keep_their_mass():
    """`ab` is in the beam, `a` is not; it comes back, and says `b` again."""
    first = {"": [0.7, 0.0, 0.3], "a": [0.0, 0.98, 0.02], "ab": [0.0, 0.0, 1.0]}
    second = {"": [0.55, 0.0, 0.45], "a": [0.0, 0.9, 0.1], "ab": [0.0, 0.0, 1.0]}
    model = transducer_of([first, second])
    found = nbest(model, strategy="aes", beam_size=2, expansion_gamma=INF)
    expected = 0.7 * 0.98 + 0.3 * 0.55 * 0.9
    assert math.exp(found["ab"]) == pytest.approx(expected)


@pytest.mark.parametrize("strategy", ["greedy", "alsd", "aes"])
def test_durations_are_values_and_not_positions(strategy):
    """The blank's duration of 4 is first, where a position would be 0."""
    rows = [{"": [0.0, 0.0, 1.0]}] * 4 + [{"": [0.9, 0.0, 0.1]}]
    never = [{"": [1.0, 0.0]}] * 4
    model = transducer_of(rows, "ab", (4, 1), [*never, {"": [0.0, 1.0]}])
    (hyp,) = decoder_of(model, strategy=strategy).decode([model.frames()])
    assert [(t.text, t.start_frame, t.end_frame) for t in hyp.tokens] == [("a", 4, 5)]
    assert -hyp.total_cost == pytest.approx(math.log(0.9))


def test_a_blank_takes_time_and_its_durations_are_normalised_again():
    rows = [{"": [0.0, 0.0, 1.0]}] * 3
    model = transducer_of(rows, "ab", (0, 1, 2), [{"": [0.5, 0.2, 0.3]}] * 3)
    expected = naive_transducer.totals(model.joint(), 3, durations=(0, 1, 2))
    assert nbest(model)[""] == pytest.approx(0.0, abs=1e-6)
    assert expected[()] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_forced_blank_pays_for_the_duration_that_it_moves_by(seed):
    """After one token nothing but the blank is possible, forced or not."""
    model = random_model(seed, (0, 1, 2, 3), longest=1)
    expected = naive_transducer.totals(model.joint(), 3, durations=(0, 1, 2, 3))
    expected = {"".join("ab"[p] for p in text): v for text, v in expected.items()}
    found = nbest(model, max_symbols=1, **WIDE)
    expected = {t: v for t, v in expected.items() if v > -INF}
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("strategy", ["alsd", "aes"])
def test_texts_that_end_at_the_end_and_behind_it_are_one(strategy):
    model = transducer_of(
        [{"": [0.5, 0.0, 0.5], "a": [0.0, 0.0, 1.0]}],
        "ab",
        (1, 2, 3),
        [{"": [0.2, 0.3, 0.5], "a": [0.2, 0.3, 0.5]}],
    )
    found = nbest(model, strategy=strategy)
    assert found == pytest.approx({"": math.log(0.5), "a": math.log(0.5)})


@pytest.mark.parametrize("strategy", ["greedy", "alsd", "aes"])
@pytest.mark.parametrize("durations", [(), (0, 1, 2)])
def test_an_utterance_without_frames_stays_empty(strategy, durations):
    """In a batch with others too: the public code wakes it after a step."""
    model = random_model(0, durations, num_utterances=2)
    decoder = decoder_of(model, strategy=strategy)
    hyp, _ = decoder.decode([model.frames(0, 0), model.frames(1)])
    assert hyp.words == () and hyp.num_frames == 0
    assert hyp.reached_final and hyp.total_cost == 0.0


def test_candidates_at_different_frames_stay_apart():
    """The public ALSD++ in chunks merges a text that waits with one that does not."""
    none = torch.zeros(3, 1)
    beam = start_beam(1, 3, none, none, ())
    beam = beam._replace(score=torch.tensor([[-1.0, -2.0, -3.0]], dtype=torch.float64))
    frames = torch.tensor([[[4], [5], [4]]])
    labels = torch.full((1, 3, 1), -1)
    found = merge(beam, Candidates(beam.score[..., None], labels, frames), "sum", 3)
    both = math.log(math.exp(-1) + math.exp(-3))
    assert found.score.flatten().tolist() == pytest.approx([both, -2.0, -INF])


def test_duplicates_are_merged_before_the_beam_is_cut():
    """With K = 2 the public code may keep one text of three candidates."""
    rows = [{"": [0.49, 0.02, 0.49], "a": [0.01, 0.0, 0.99]}] * 2
    model = transducer_of(rows)
    found = nbest(model, beam_size=2)
    assert set(found) == {"", "a"}
    assert math.exp(found[""]) == pytest.approx(0.49**2)
    assert math.exp(found["a"]) == pytest.approx(0.49 * 0.99**2 + 0.49**2 * 0.99)


def test_texts_are_told_apart_by_their_tokens():
    """A rolling hash of public code (13 bits here) merges some of a thousand texts."""
    model = random_model(1, longest=8, num_frames=2)
    found = nbest(model, beam_size=700)
    assert len(found) == 2**9 - 1
    assert math.fsum(map(math.exp, found.values())) == pytest.approx(1.0)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("strategy", ["alsd", "aes"])
@pytest.mark.parametrize("beam_size", [1, 2])
def test_durations_cut_to_the_end_are_one_hypothesis_at_width_one(
    beam_size, strategy, dense
):
    """All of four durations end in the one frame, so p is the blank's."""
    model = transducer_of(
        [{"": [0.3, 0.1, 0.6]}],
        durations=(0, 1, 2, 3, 4),
        lasts=[{"": [0.04, 0.24, 0.24, 0.24, 0.24]}],
    )
    options = {"beam_size": beam_size, "expansion_beta": 8}
    decoder = decoder_of(model, strategy=strategy, **options)
    decoder._backend.dense = dense
    hyp = decoder.decode([model.frames()])[0]
    assert hyp.text == ""
    assert hyp.total_cost == pytest.approx(-math.log(0.6))
