"""Models of Transformers in our own search: random ones, of true classes, in tiny."""

import importlib.util
import pickle

import pytest

from wfstdec.errors import AudioLengthError, ShapeError

if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
    pytest.skip("needs transformers and torch", allow_module_level=True)

import torch
from tiny_whisper import (
    SOT,
    features,
    letter_tokenizer,
    moonshine,
    speech_to_text,
    tiny_whisper,
)
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from wfstdec import AttentionDecoder, AttentionOptions
from wfstdec.attention.rescoring import spelling_of
from wfstdec.models import HfAttentionModel


def whisper(num):
    return tiny_whisper(1), {"input_features": features(num)}


@pytest.fixture(params=[whisper, moonshine, speech_to_text])
def made(request):
    torch.manual_seed(0)
    model, inputs = request.param(3)
    return model.eval(), inputs


def test_steps_equal_the_model_called_as_a_whole(made):
    """Rows reordered, repeated and dropped between steps."""
    model, inputs = made
    hf = HfAttentionModel(model, letter_tokenizer(), suppress=())
    frames = hf.encode(**inputs)
    batch = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)
    lengths = torch.tensor([len(one) for one in frames])
    state, found = hf.start(batch, lengths, torch.full((3, 1), SOT))
    texts, utterance = torch.full((3, 1), SOT), torch.arange(3)
    for rows, labels in (
        ([0, 0, 1, 2], [0, 1, 2, 3]),
        ([1, 0, 2, 3], [1, 1, 0, 2]),
        ([3, 3, 2], [0, 1, 3]),
    ):
        rows, labels = torch.tensor(rows), torch.tensor(labels)
        state = hf.take(state, rows)
        found, state = hf.step(labels, state)
        texts = torch.cat([texts[rows], labels[:, None]], 1)
        utterance = utterance[rows]
        with torch.no_grad():
            whole = model(
                **{name: one[utterance] for name, one in inputs.items()},
                decoder_input_ids=texts,
            ).logits[:, -1]
        assert torch.allclose(found, whole.log_softmax(-1), atol=2e-5)


def test_a_batch_decodes_as_each_utterance_does(made):
    model, inputs = made
    hf = HfAttentionModel(model, letter_tokenizer(), max_tokens=5)
    decoder = AttentionDecoder(hf, options=AttentionOptions(beam_size=3))
    frames = hf.encode(**inputs)
    together = decoder.texts(frames)
    for i, one in enumerate(together):
        given = {name: value[i : i + 1] for name, value in inputs.items()}
        (alone,) = decoder.texts(hf.encode(**given))
        assert [t.token_ids for t in alone] == [t.token_ids for t in one]
        totals = [t.total_cost for t in alone]
        assert [t.total_cost for t in one] == pytest.approx(totals, abs=1e-4)


def test_names_go_through_the_tokenizer():
    model = tiny_whisper(4, temperature=0.3)
    hf = HfAttentionModel(model, letter_tokenizer(), max_tokens=6)
    decoder = AttentionDecoder(hf, options=AttentionOptions(end_rule="none"))
    frames = hf.encode(input_features=features(1, 4))
    boosts = decoder.phrase_compiler().compile({"dcba": 2.0})
    (hyp,) = decoder.decode(frames, boosts=boosts)
    assert "3, 2, 1, 0" in str(hyp.token_ids) and hyp.boost_cost < -5
    assert hf.neutral == frozenset(range(5, 10))


def byte_level_tokenizer():
    """A BPE over bytes, trained here: words behind a space are other pieces."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>", "<|startoftranscript|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = ["the garment of linen", "the only garment", "argument, payment"] * 20
    inner.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|endoftext|>")


def test_phrases_are_cut_as_a_byte_level_tokenizer_writes_them(caplog):
    tokenizer = byte_level_tokenizer()
    model = tiny_whisper(0)
    model.resize_token_embeddings(len(tokenizer))
    hf = HfAttentionModel(model, tokenizer, prompt=[1], suppress=())
    decoder = pickle.loads(pickle.dumps(AttentionDecoder(hf)))
    names = decoder.tokens.names
    boosts = decoder.phrase_compiler().compile(["garment"])
    for text in (" garment", " Garment"):
        pieces = tokenizer.tokenize(text)
        assert boosts.total([names.index(one) for one in pieces]) < 0
    assert tokenizer.tokenize(" garment") == ["\u0120garment"]
    assert spelling_of(hf)("garment") == [names.index("\u0120garment")]
    caplog.clear()
    # The fewest pieces may be others: without a tokenizer a warning says so.
    del hf.tokenizer
    fewest = AttentionDecoder(hf).phrase_compiler().compile(["garment"])
    assert fewest.total([names.index("\u0120garment")]) < 0
    assert ["no tokenizer" in one for one in caplog.messages] == [True]


def test_long_audio_is_for_generate():
    hf = HfAttentionModel(tiny_whisper(0), letter_tokenizer())
    with pytest.raises(AudioLengthError, match="PhraseBoostLogitsProcessor"):
        hf.encode(input_features=features(1, frames=40))
    state_of = torch.randn(2, 10, 8), torch.tensor([10, 4]), torch.full((2, 1), SOT)
    with pytest.raises(ShapeError, match="this decoder takes no mask"):
        hf.start(*state_of)
