"""CTC with attention equals the enumeration of all alignments of all texts."""

import itertools
import math
from types import SimpleNamespace

import naive_joint
import numpy as np
import pytest
import torch
from attention_cases import JointCase, random_logprobs
from table_attention import TableAttention

from wfstdec import AttentionDecoder, AttentionOptions, token_table
from wfstdec.attention.ctc import CtcPrefixes, CtcUnits, taken
from wfstdec.attention.torch_model import JointAttention, JointNet
from wfstdec.errors import LogprobError, OptionError, ShapeError
from wfstdec.transducer.torch_model import TransducerConfig

NAMES = SimpleNamespace(tokens=["a", "b", "</s>"], eos=2, neutral=frozenset())
UNITS = CtcUnits.of(NAMES, None)


def psi_of(prefixes, text):
    """Psi of a text and its own log-probability, token by token."""
    rows, none = prefixes.start(), np.zeros(1, np.int64)
    for token in text:
        _, tried = prefixes.fused(np.zeros((1, 3), np.float32), rows, none)
        rows = prefixes.stepped(taken(rows, none), tried, np.array([token]), none)
    return float(rows.prefix[0]), float(rows.whole[0])


@pytest.mark.parametrize("num_frames", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_prefixes_are_those_of_all_alignments(seed, num_frames):
    logprobs = random_logprobs(seed, num_frames)
    prefixes = CtcPrefixes([logprobs], UNITS, weight=0.3, width=3)
    naive = naive_joint.Joint(logprobs.astype(np.float64), 2, 0.3)
    for size in range(4):
        for text in itertools.product(range(2), repeat=size):
            if naive.prefix(text) == -math.inf:
                continue
            expected = naive.prefix(text), naive.whole(text)
            assert psi_of(prefixes, text) == pytest.approx(expected, abs=1e-5)
            (alone,) = prefixes.texts([text])
            assert alone == pytest.approx(naive.whole(text), abs=1e-5)


def test_between_equal_tokens_there_must_be_a_blank():
    """By hand: in three frames 'aa' has one alignment, 'ab' has five."""
    logprobs = np.full((3, 3), -math.log(3), np.float32)
    prefixes = CtcPrefixes([logprobs], UNITS, weight=0.3, width=3)
    assert psi_of(prefixes, (0, 0)) == pytest.approx([-math.log(27)] * 2)
    # ab, and behind two frames of it anything: aab abb ab_ _ab a_b, and aba.
    found = psi_of(prefixes, (0, 1))
    assert found == pytest.approx([math.log(6 / 27), math.log(5 / 27)])


@pytest.mark.parametrize("seed", range(3000, 3010))
@pytest.mark.share(keep=4)
def test_a_batch_is_what_each_utterance_is_alone(seed):
    case = JointCase(seed, num_utterances=4)
    lengths = [0, 2, case.model.longest + 2, 3]
    frames = [case.model.frames(i, n) for i, n in enumerate(lengths)]
    decoder, boosts = case.decoder(beam_size=3)
    alone = [
        decoder.texts([one], boosts=boosts, ctc=[ctc])[0]
        for one, ctc in zip(frames, case.ctc, strict=True)
    ]
    for more in ({}, {"batch_size": 2}):
        other, boosts = case.decoder(more, beam_size=3)
        assert other.texts(frames, boosts=boosts, ctc=case.ctc) == alone
    padded = np.full((4, max(lengths), 2), np.nan)
    for i, one in enumerate(frames):
        padded[i, : len(one)] = one.numpy()
    ctc = np.stack(case.ctc)
    assert decoder.texts(padded, lengths, boosts=boosts, ctc=ctc) == alone


def test_the_head_of_the_model_is_asked_where_nothing_is_given():
    torch.manual_seed(0)
    sizes = {"input_dim": 5, "width": 8, "dim": 12, "layers": 1}
    model = JointAttention(JointNet(TransducerConfig(("a", "b", "c"), (), **sizes)))
    rows = [torch.randn(n, 5).log_softmax(-1) for n in (9, 30, 0, 17)]
    options = AttentionOptions(beam_size=3, ctc_weight=0.4, token_insertion=-3.0)
    given = {"options": options, "frame_shift_s": 0.08}
    of_features = AttentionDecoder(model, input="features", **given)
    assert of_features.num_tokens == 5
    assert of_features.input_frame_shift_s == pytest.approx(0.02)
    frames = of_features.encode(rows)
    ctc = [model.ctc(one) for one in frames]
    of_frames = AttentionDecoder(model, **given)
    found = of_features.texts(rows)
    assert found == of_frames.texts(frames) == of_frames.texts(frames, ctc=ctc)
    assert any(texts[0].token_ids for texts in found)
    with pytest.raises(OptionError, match="ctc= with input='features'"):
        of_features.decode(rows, ctc=ctc)


def test_ctc_that_does_not_fit_is_refused():
    model = TableAttention(np.random.default_rng(0), 2)
    options = AttentionOptions(ctc_weight=0.3)
    decoder, frames = AttentionDecoder(model, options=options), [model.frames(0, 3)]
    with pytest.raises(OptionError, match="ctc_weight without CTC log-probs"):
        decoder.decode(frames)
    with pytest.raises(ShapeError, match=r"\(3, 4\), expected .T, 3."):
        decoder.decode(frames, ctc=[np.zeros((3, 4))])
    with pytest.raises(ShapeError, match="of 2 frames, expected 3 as of the encoder"):
        decoder.decode(frames, ctc=[np.zeros((2, 3))])
    with pytest.raises(ShapeError, match="of 2 utterances, expected 1"):
        decoder.decode(frames, ctc=[np.zeros((3, 3))] * 2)
    even = np.full((3, 3), -np.log(3))
    for value, message in ((np.nan, "NaN"), (-np.inf, "adds up to 0.6667, expected 1")):
        bad = even.copy()
        bad[1, 1] = value
        with pytest.raises(LogprobError, match=message) as caught:
            decoder.decode(frames * 2, ctc=[even, bad])
        assert caught.value.utterance == 1
    phones = token_table(["a", "aa", "<blk>"], 2)
    with pytest.raises(OptionError, match="without the token 'b', expected all"):
        AttentionDecoder(model, ctc_tokens=phones)
