"""Times of tokens: the best alignment of CTC, of each text its own."""

import itertools
import math

import numpy as np
import pytest
import torch
from attention_cases import random_logprobs
from table_attention import TableAttention

from wfstdec import AttentionDecoder, AttentionOptions
from wfstdec.attention.ctc import token_spans


def best_spans(logprobs, text, blank):
    best, spans = -math.inf, None
    for alignment in itertools.product(range(logprobs.shape[1]), repeat=len(logprobs)):
        runs, start = [], 0
        for token, group in itertools.groupby(alignment):
            end = start + len(list(group))
            if token != blank:
                runs.append((token, start, end))
            start = end
        total = sum(float(logprobs[t, token]) for t, token in enumerate(alignment))
        if tuple(token for token, _, _ in runs) == tuple(text) and total > best:
            best, spans = total, [[s, e] for _, s, e in runs]
    return spans


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("seed", range(6))
def test_spans_are_those_of_the_best_alignment(seed, blank):
    logprobs = random_logprobs(seed, 1 + seed)
    letters = [token for token in range(3) if token != blank]
    found = 0
    for size in range(4):
        for text in itertools.product(letters, repeat=size):
            spans = token_spans(logprobs, np.array(text, np.int64), blank)
            expected = best_spans(logprobs, text, blank)
            assert (None if spans is None else spans.tolist()) == expected
            found += expected is not None
    assert found > 1
    logprobs[:, letters[0]] = -np.inf
    assert token_spans(logprobs, np.array(letters[:1]), blank) is None


def test_no_frames_and_no_tokens():
    nothing = np.zeros((0, 3), np.float32)
    assert token_spans(nothing, np.array([1]), 2) is None
    assert token_spans(nothing, np.array([], np.int64), 2).shape == (0, 2)
    assert token_spans(random_logprobs(0, 3), np.array([], np.int64), 2).size == 0


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_word_times_of_every_text_of_a_beam_are_its_own(weight):
    """Transformers gives those of another beam (#36093, #27362)."""
    model = TableAttention(np.random.default_rng(5), 2, longest=4)
    model.tokens[:2] = ["\u2581a", "\u2581b"]
    ctc = random_logprobs(3, 6)
    options = AttentionOptions(beam_size=6, ctc_weight=weight, nbest=6)
    decoder = AttentionDecoder(model, options=options, frame_shift_s=0.1)
    (hyps,) = decoder.decode_nbest([model.frames(0, 6)], ctc=[ctc])
    assert len({tuple(hyp.token_ids) for hyp in hyps}) == 6
    timed = 0
    for hyp in hyps:
        spans = best_spans(ctc, hyp.token_ids, 2)
        found = [[word.start_frame, word.end_frame] for word in hyp.words]
        assert found == (spans or [[0, 6]] * len(hyp.token_ids))
        timed += spans is not None and len(spans) > 1
    assert timed > 1
    (same,) = decoder.decode([model.frames(0, 6)], ctc=torch.from_numpy(ctc)[None])
    assert same.words == hyps[0].words
    word = next(word for hyp in hyps for word in hyp.words)
    assert word.start_s == pytest.approx(0.1 * word.start_frame)
