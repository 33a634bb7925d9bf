"""Attention decoders as users hold them: prompts, limits, types, errors."""

import math

import numpy as np
import pytest
import torch
from table_attention import TableAttention

from wfstdec import AttentionDecoder, AttentionOptions, BoostEntry
from wfstdec.attention.search import is_looped
from wfstdec.errors import (
    BoostError,
    LogprobError,
    OptionError,
    ShapeError,
    TokenTableError,
)


def model_of(seed=0, letters=2, **sizes):
    return TableAttention(np.random.default_rng(seed), letters, **sizes)


def decoder_of(model, **options):
    return AttentionDecoder(model, options=AttentionOptions(**options))


def test_words_of_pieces_and_no_times():
    model = model_of(letters=3)
    model.tokens = ["\u2581new", "\u2581york", "er", "</s>"]
    model.table[:] = -torch.inf
    for text, token in (((), 0), ((0,), 1), ((0, 1), 2), ((0, 1, 2), 3)):
        node = 0
        for before in text:
            node = node * 4 + before + 1
        model.table[0, node, token] = 0.0
    (hyp,) = decoder_of(model).decode([model.frames(0, 5)])
    assert hyp.text == "new yorker"
    assert [(w.start_frame, w.end_frame) for w in hyp.words] == [(0, 5), (0, 5)]
    assert hyp.reached_final and hyp.total_cost == 0.0


def test_prompts_of_utterances_go_to_the_model_in_batches_of_one_length():
    seen = []
    model = model_of(num_utterances=4, prompt=(0, 1))

    class Noted(TableAttention):
        def start(self, frames, lengths, prompts):
            seen.append(prompts.tolist())
            self.prompt = tuple(prompts[0].tolist())
            return super().start(frames, lengths, prompts)

    model.__class__ = Noted
    decoder = decoder_of(model)
    frames = [model.frames(i, 4) for i in range(4)]
    prompts = [(0,), (1, 0), (1,), (0, 0)]
    found = decoder.texts(frames, prompts=prompts)
    assert seen == [[[0], [1]], [[1, 0], [0, 0]]]
    model.prompt = (0, 1)
    assert decoder.texts(frames) == found
    with pytest.raises(ShapeError, match="1 prompts, expected 4"):
        decoder.texts(frames, prompts=prompts[:1])


def test_at_the_limit_texts_take_their_end_at_its_price():
    model = model_of(longest=6)
    model.table[..., model.eos] = -50.0
    model.table = torch.log_softmax(model.table, -1)
    (text,) = decoder_of(model, beam_size=1).texts([model.frames(0, 4)])[0]
    assert len(text.token_ids) == 4 and text.reached_final
    assert text.total_cost == pytest.approx(text.attention_cost)
    assert text.total_cost > 40
    (fewer,) = AttentionDecoder(
        model,
        options=AttentionOptions(beam_size=1, max_tokens_per_s=0.001),
        frame_shift_s=0.1,
    ).texts([model.frames(0, 9)])[0]
    assert len(fewer.token_ids) == 6  # 1 and 5


def test_where_no_end_is_possible_it_is_said_so():
    model = model_of(longest=3)
    model.table[..., model.eos] = -torch.inf
    model.table = torch.log_softmax(model.table, -1)
    decoder = decoder_of(model, beam_size=2)
    (texts,) = decoder.texts([model.frames(0, 5)])
    assert len(texts) == 2 and not any(text.reached_final for text in texts)
    (hyp,) = decoder.decode([model.frames(0, 5)])
    assert not hyp.reached_final and hyp.total_cost < math.inf
    model.table[:] = -torch.inf
    model.table[:, 0, 0] = 0.0  # after it nothing is possible at all
    (texts,) = decoder.texts([model.frames(0, 5)])
    assert [text.token_ids for text in texts] == [(0,)]
    assert not texts[0].reached_final


def test_no_n_gram_comes_twice_and_loops_are_told():
    model = model_of(longest=9)
    model.table[..., 0] = 8.0
    model.table[..., model.eos] = -1.0
    model.table = torch.log_softmax(model.table, -1)
    (text,) = decoder_of(model, beam_size=1).texts([model.frames(0, 9)])[0]
    assert text.looped and text.token_ids == (0,) * 9
    for size in (1, 2, 3):
        decoder = decoder_of(model, no_repeat_ngram=size, beam_size=1)
        (text,) = decoder.texts([model.frames(0, 9)])[0]
        tokens = text.token_ids
        grams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
        assert len(grams) == len(set(grams)) and not text.looped


@pytest.mark.parametrize(
    ("tokens", "looped"),
    [((), False), ((1, 1, 1), False), ((1, 1, 1, 1), True), ((0, 1) * 4, True)],
)
def test_loops_by_hand(tokens, looped):
    assert is_looped(tokens) is looped
    assert is_looped((5, *tokens)) is looped
    assert not is_looped((*tokens, 7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_models_of_other_types(dtype):
    model = model_of(3, dtype=dtype)
    (found,) = decoder_of(model).texts([model.frames(0, 5)])
    exact = model_of(3)
    exact.table = model.table.double()
    (expected,) = decoder_of(exact).texts([exact.frames(0, 5)])
    assert found == expected


def test_answers_of_models_are_looked_at():
    model = model_of(num_utterances=2)
    frames = [model.frames(i, 4) for i in range(2)]
    decoder = decoder_of(model)
    start, step = model.start, model.step

    def broken(**more):
        for name in ("start", "step"):
            setattr(model, name, more.get(name, {"start": start, "step": step}[name]))
        return decoder.texts(frames)

    with pytest.raises(ShapeError, match=r"\(2, 2\), expected \(2, 3\)"):
        broken(start=lambda *a: (start(*a)[0], start(*a)[1][:, :2]))
    with pytest.raises(ShapeError, match=r"log-probs \(1, 3\), expected \(\d+, 3\)"):
        broken(step=lambda *a: (step(*a)[0][:1], step(*a)[1]))
    with pytest.raises(ShapeError, match=r"log-probs \(\d+, 1, 3\), expected"):
        broken(step=lambda *a: (step(*a)[0][:, None], step(*a)[1]))
    with pytest.raises(LogprobError, match="adds up to .* are they logits"):
        broken(start=lambda *a: (start(*a)[0], start(*a)[1] + 1))
    nan = torch.tensor([[0.0], [math.nan]])
    with pytest.raises(LogprobError, match="NaN or .inf") as caught:
        broken(start=lambda *a: (start(*a)[0], start(*a)[1] + nan))
    assert caught.value.utterance == 1


def test_what_does_not_fit_is_refused():
    model = model_of()
    decoder = decoder_of(model)
    with pytest.raises(BoostError, match="this decoder has no words"):
        decoder.decode([model.frames()], boosts=[BoostEntry("a", [["a"]], 1.0)])
    with pytest.raises(ShapeError, match="expected floating-point .T, D. of the"):
        decoder.decode([torch.zeros(3)])
    with pytest.raises(ShapeError, match="length 9, expected 0 to 3"):
        decoder.decode([model.frames()], [9])
    with pytest.raises(OptionError, match="batch_size=0"):
        AttentionDecoder(model, batch_size=0)
    model.tokens[1] = "a"
    with pytest.raises(TokenTableError, match="both 'a'"):
        AttentionDecoder(model)
    model = model_of()
    model.eos = 7
    with pytest.raises(OptionError, match="eos has 7, expected outputs, 0 to 2"):
        AttentionDecoder(model)


def test_options_are_checked():
    wrong = {"beam_size": 0, "end_rule": "open", "length_norm": "sum", "stop": "late"}
    wrong |= {"max_tokens_per_s": 0, "no_repeat_ngram": -1}
    wrong |= {"ctc_weight": 1.5, "pre_beam": 0}
    for name, value in wrong.items():
        with pytest.raises(OptionError, match=f"{name}="):
            AttentionOptions(**{name: value})
