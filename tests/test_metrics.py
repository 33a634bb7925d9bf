import math
import random

import numpy as np
import pytest

from wfstdec.errors import FormatError
from wfstdec.metrics import (
    GAP,
    RESAMPLES,
    count_errors,
    score_texts,
    wer_gain,
    wer_interval,
)


def words(text):
    return tuple(text.split())


def test_an_example_by_hand():
    references = {"u1": words("the cat sat on the mat"), "u2": words("hello world")}
    hypotheses = {"u1": words("the cat sit on mat"), "u2": words("oh hello world")}
    score = score_texts(references, hypotheses)
    assert score.wer_line == "%WER 37.50 [ 3 / 8, 1 ins, 1 del, 1 sub ]"
    assert score.ser_line == "%SER 100.00 [ 2 / 2 ]"
    assert score.wer == 37.5


def kaldi_edit_distance(reference, hypothesis):
    """The recursion of Kaldi's edit-distance-inl.h, ties included."""
    row = [(j, j, 0, 0) for j in range(len(hypothesis) + 1)]
    for i, ref in enumerate(reference, 1):
        new = [(i, 0, i, 0)]
        for j, hyp in enumerate(hypothesis, 1):
            differs = int(ref != hyp)
            ins, dele, sub = new[j - 1], row[j], row[j - 1]
            if sub[0] + differs < min(ins[0], dele[0]) + 1:
                new.append((sub[0] + differs, sub[1], sub[2], sub[3] + differs))
            elif dele[0] < ins[0]:
                new.append((dele[0] + 1, dele[1], dele[2] + 1, dele[3]))
            else:
                new.append((ins[0] + 1, ins[1] + 1, ins[2], ins[3]))
        row = new
    return row[-1]


def test_random_texts_have_the_kinds_of_errors_that_kaldi_counts():
    rng = random.Random(1)
    for _ in range(500):
        reference = rng.choices("abcdefgh", k=rng.randint(0, 12))
        kept = [word for word in reference if rng.random() > 0.1]
        hypothesis = [rng.choice("abcdefgh") if rng.random() < 0.3 else w for w in kept]
        e = count_errors(reference, hypothesis)
        found = (e.total, e.insertions, e.deletions, e.substitutions)
        assert found == kaldi_edit_distance(reference, hypothesis)


def test_missing_utterances_are_deletions_and_named_and_extra_ones_reported():
    references = {"u1": words("a b"), "u2": words("c d e")}
    score = score_texts(references, {"u1": words("a b"), "u9": words("z")})
    assert score.missing == ("u2",)
    assert score.extra == ("u9",)
    assert score.wer_line == "%WER 60.00 [ 3 / 5, 0 ins, 3 del, 0 sub ]"


def test_worst_utterances_come_first_and_correct_ones_not_at_all():
    references = {"good": ("a",), "one": ("a", "b"), "two": ("a", "b")}
    hypotheses = {"good": ("a",), "one": ("a", "x"), "two": ("x", "y")}
    score = score_texts(references, hypotheses)
    assert [s.utterance for s in score.worst(5)] == ["two", "one"]
    assert [s.utterance for s in score.worst(1)] == ["two"]


def test_alignment_has_both_sides():
    score = score_texts({"u": words("a b c")}, {"u": words("a c d")})
    pairs = score.utterances[0].alignment()
    assert pairs == [("a", "a"), ("b", GAP), ("c", "c"), (GAP, "d")]


@pytest.mark.parametrize("references", [{}, {"u": ()}])
def test_references_without_words_are_an_error(references):
    with pytest.raises(FormatError, match="references have no words"):
        score_texts(references, {"u": ("a",)})


def binomial_quantile(trials, share, quantile):
    """The least count with this much probability at or below it."""
    below = 0.0
    for count in range(trials + 1):
        ways = math.comb(trials, count)
        below += ways * share**count * (1 - share) ** (trials - count)
        if below >= quantile:
            return count
    return trials


@pytest.mark.parametrize("trials, wrong", [(400, 80), (1000, 30)])
def test_interval_is_that_of_the_binomial_where_utterances_are_one_word(trials, wrong):
    """Draws of one-word utterances have binomial numbers of errors: exactly known."""
    errors = np.zeros(trials, int)
    errors[:wrong] = 1
    found = wer_interval(errors, np.ones(trials, int))
    share = wrong / trials
    exact = [binomial_quantile(trials, share, q) for q in (0.025, 0.975)]
    spread = 100 * math.sqrt(share * (1 - share) / trials)
    for end, count in zip(found, exact, strict=True):
        assert abs(end - 100 * count / trials) < 0.3 * spread


def test_draws_in_parts_are_the_same_number_and_long_utterances_weigh_more():
    many = 200_000  # more than are drawn at once
    errors = np.zeros(many, int)
    errors[::2] = 1
    low, high = wer_interval(errors, np.ones(many, int))
    assert low < 50 < high and high - low < 0.6
    long = wer_interval(np.array([0, 100]), np.array([1, 100]))
    assert long == (0.0, 100.0)
    assert RESAMPLES == 1000


def test_gain_of_paired_draws_is_surer_than_two_intervals():
    rng = np.random.default_rng(3)
    words = np.full(300, 20)
    before = rng.binomial(20, 0.2, 300)
    after = np.maximum(before - (rng.random(300) < 0.2), 0)
    gain = wer_gain(after, before, words)
    assert gain.above_chance and gain.sure == 1.0
    assert gain.gain == 100 * (before.sum() - after.sum()) / words.sum()
    apart = wer_interval(before, words).low - wer_interval(after, words).high
    assert apart < 0  # which two intervals alone would not tell
    same = wer_gain(before, before, words)
    assert (same.gain, same.interval, same.sure) == (0.0, (0.0, 0.0), 0.0)
    assert not same.above_chance and "may be chance" in str(same)
    worse = wer_gain(before, after, words)
    assert worse.above_chance and worse.gain == -gain.gain


def test_one_utterance_or_no_error_has_no_interval_and_two_runs_are_the_same():
    assert wer_interval(np.zeros(9, int), np.ones(9, int)) is None
    assert wer_interval(np.array([1]), np.array([4])) is None
    assert wer_gain(np.array([1]), np.array([2]), np.array([4])) is None
    given = np.arange(9), np.full(9, 12)
    assert wer_interval(*given) == wer_interval(*given)
    references = {f"u{i}": words("a b c d") for i in range(4)}
    hypotheses = {"u0": words("a"), "u1": words("a b c d"), "u2": words("x b c")}
    score = score_texts(references, hypotheses)
    errors, spoken = score.counts
    assert errors.tolist() == [3, 0, 2, 4] and spoken.tolist() == [4] * 4
    assert score.interval == wer_interval(errors, spoken)
    assert score.interval.low < score.wer < score.interval.high
