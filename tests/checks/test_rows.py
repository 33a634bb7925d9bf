"""Checks of rows: what are log-probs, by real rows."""

import warnings

import numpy as np
import pytest
from real_speech import RECIPE, utterances

from wfstdec import read_tokens, token_table
from wfstdec.checks.inputs import InputCheck, OutputTokens, TokenCounts, checked, doubts
from wfstdec.checks.rows import RowKind, check_frame_shift, kind_of, row_sums
from wfstdec.errors import OptionError

LN10 = np.float32(np.log(10))
TOKENS = read_tokens(RECIPE / "tokens.txt")
PHONES = frozenset(range(2, 42))
OUTPUTS = OutputTokens(TOKENS, (1,), PHONES)


@pytest.fixture(scope="module")
def real():
    return utterances(1)


def shifted(x):
    """Logits of the same distributions: each row by another amount."""
    return x + np.random.default_rng(7).normal(3, 2, (len(x), 1)).astype(np.float32)


def warnings_of(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(one.message) for one in caught]


def look(arrays, used):
    return warnings_of(
        lambda: list(checked(((str(i), x) for i, x in enumerate(arrays)), used))
    )


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda x: x / LN10, RowKind.LOG10),
        (np.exp, RowKind.PROBABILITIES),
        (lambda x: x.T, RowKind.TRANSPOSED),
        (shifted, RowKind.LOGITS),
        (lambda x: -np.abs(shifted(x)) - 1, RowKind.UNNORMALISED),
        (lambda x: x - np.float32(3), RowKind.UNNORMALISED),
    ],
)
def test_rows_that_do_not_sum_to_one_are_told_apart(real, change, kind):
    assert {kind_of(change(x)) for x in real} == {kind}


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype(np.float16),
        lambda x: np.log(0.9 * np.exp(x) + 0.1 / x.shape[1]),  # smoothed
        lambda x: np.where(x >= np.sort(x, 1)[:, -8:-7], x, -np.inf),  # pruned
        lambda x: np.where(x >= x.max(1, keepdims=True), x, -np.inf),
        lambda x: np.round(x * 8) / 8,  # coarse
        lambda x: np.where(x < -20, np.float32(-1e30), x),  # masked
    ],
    ids=["float16", "smoothed", "8 best", "the best alone", "coarse", "masked"],
)
def test_log_probs_of_all_makes_are_let_pass(real, change):
    assert {kind_of(change(x)) for x in real} == {RowKind.LOGPROBS}


def test_many_tokens_and_rows_of_all_shapes():
    rng = np.random.default_rng(3)
    wide = np.log(rng.dirichlet(np.full(1025, 0.02), 40) + 1e-12)
    assert kind_of(wide.astype(np.float16)) == RowKind.LOGPROBS
    assert kind_of(wide / LN10) == RowKind.LOG10
    assert kind_of(np.zeros((1, 5))) is None  # a warm-up
    square = np.log(rng.dirichlet(np.ones(43), 43))
    assert kind_of(square) == RowKind.LOGPROBS
    assert kind_of(square.T) == RowKind.TRANSPOSED


def test_rows_with_nan_are_left_to_the_decoder(real):
    x = real[0].copy()
    x[::2, 3] = np.nan
    assert kind_of(x) == RowKind.LOGPROBS
    assert kind_of(np.full((9, 4), np.nan)) is None
    assert row_sums(np.full((2, 4), -np.inf)).tolist() == [-np.inf, -np.inf]


def test_a_blank_that_hardly_ever_wins_while_another_token_does(real):
    for wrong in (1, 2, 20, 42):
        used = OutputTokens(token_table(TOKENS.names, wrong), (1,), PHONES)
        [text] = look(real, used)
        assert "'<blank>', token 0" in text and text.endswith("--blank 0?")


def test_a_blank_is_found_in_single_utterances_and_never_doubted_where_it_is_right(
    real,
):
    found = 0
    for x in real:
        counts = TokenCounts(43)
        counts.add(x)
        assert counts.likely_blank(0, [1]) is None
        found += counts.likely_blank(20, [1]) == 0
    assert found >= 35, "of 40"


def test_silence_and_rare_blanks_are_let_pass():
    silence = np.full((300, 43), -12, np.float32)
    silence[:, 0] = 0
    assert look([silence] * 3, OUTPUTS) == []
    rng = np.random.default_rng(5)
    counts = TokenCounts(43)  # phones of 80 ms: one a frame, pauses in a few long runs
    for _ in range(6):
        best = rng.integers(2, 42, 120)
        best[20:60], best[::31] = 42, 0
        counts.add(np.log(np.eye(43)[best] * 0.9 + 0.1 / 43))
    assert counts.frame_share(0) < 0.04 and counts.frame_share(42) > 0.3
    assert counts.likely_blank(0) is None


def test_a_forgotten_separator_is_named(real):
    [text] = look(real, OutputTokens(TOKENS, (), PHONES))
    assert "often outputs '<wb>', which no word has" in text
    assert "--separator '<wb>'" in text
    assert look(real, OUTPUTS) == []
    assert (
        look(real, OutputTokens(TOKENS, (), None)) == []
    )  # any token may be in a word


def test_tokens_that_are_seldom_said_are_let_pass(real):
    for x in real:  # '<other>' is in no word, but occurs now and then
        counts = TokenCounts(43)
        counts.add(x)
        assert doubts(counts, OUTPUTS) == []


def batch_of(real, count, frames):
    long = [x[len(x) // 2 - frames // 2 :][:frames] for x in real if len(x) >= frames]
    return np.stack([long[i % len(long)] for i in range(count)])


@pytest.mark.parametrize(
    ("count", "frames"), [(1, 60), (2, 200), (8, 200), (30, 100), (20, 40)]
)
def test_time_first_is_noticed_and_utterances_first_are_not(real, count, frames):
    batch = batch_of(real, count, frames)
    look = InputCheck(lambda: OUTPUTS)
    assert warnings_of(lambda: look.batch(batch, list(batch), 0)) == []
    swapped, look = (
        np.ascontiguousarray(batch.swapaxes(0, 1)),
        InputCheck(lambda: OUTPUTS),
    )
    [text] = warnings_of(lambda: look.batch(swapped, list(swapped), 0))
    assert f"({frames}, {count}, 43)" in text and "[T, B, V]?" in text


@pytest.mark.parametrize("given", [20, 10.0, 1.5])
def test_frame_shifts_in_milliseconds(given):
    with pytest.raises(OptionError, match=r"expected seconds, at most 1; milliseconds"):
        check_frame_shift(given)
    assert check_frame_shift(1.0) == 1.0
