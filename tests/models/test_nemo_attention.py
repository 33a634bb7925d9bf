"""NeMo's decoder in our own search: a stand-in with its calls, `tiny_nemo`."""

import importlib.util

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs torch", allow_module_level=True)

import torch
from tiny_nemo import DIM, Classifier, Decoder, Embedding

from wfstdec import AttentionDecoder, AttentionOptions
from wfstdec.models.attention import NemoAttentionModel

NUM_TOKENS, EOS = 6, 5


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    return Embedding(NUM_TOKENS).eval(), Decoder().eval(), Classifier(NUM_TOKENS).eval()


@pytest.fixture
def model(parts):
    names = [*"abcde", "</s>"]
    return NemoAttentionModel(*parts, names, eos=EOS, prompt=(EOS, 0, 1), max_tokens=6)


def frames_of(*lengths):
    generator = torch.Generator().manual_seed(1)
    return [2 * torch.randn(n, DIM, generator=generator) for n in lengths]


@torch.no_grad()
def whole(parts, frames, text):
    embedding, decoder, classifier = parts
    ids = torch.tensor([text])
    memories, _ = decoder(
        embedding(ids),
        torch.ones(ids.shape),
        frames[None],
        torch.ones(1, len(frames)),
        return_mems=True,
    )
    return classifier(hidden_states=memories[-1])[0]


def test_steps_equal_the_whole_text_at_once(parts, model):
    frames = frames_of(7, 4)
    batch = torch.nn.utils.rnn.pad_sequence(frames, batch_first=True)
    state, found = model.start(
        batch, torch.tensor([7, 4]), torch.tensor([model.prompt] * 2)
    )
    texts = [[*model.prompt], [*model.prompt]]
    for rows, labels in (([1, 0, 1], [2, 3, 4]), ([2, 0, 1, 1], [0, 0, 1, 2])):
        utterance = state.utterance[torch.tensor(rows)]
        state = model.take(state, torch.tensor(rows))
        found, state = model.step(torch.tensor(labels), state)
        texts = [[*texts[r], t] for r, t in zip(rows, labels, strict=True)]
        for row, text, of in zip(found, texts, utterance.tolist(), strict=True):
            expected = whole(parts, frames[of], text)[-1]
            assert torch.allclose(row, expected, atol=1e-5)


def test_memories_go_with_their_utterance_in_batches_of_three(model):
    """NeMo 3.0.0 orders them k * B + b in a beam: 22 of 120 texts were others'."""
    decoder = AttentionDecoder(model, options=AttentionOptions(beam_size=4))
    frames = frames_of(*[5, 6, 7] * 4)
    different = set()
    for first in range(0, len(frames), 3):
        some = frames[first : first + 3]
        together = decoder.texts(some)
        for one, found in zip(some, together, strict=True):
            (alone,) = decoder.texts([one])
            assert [t.token_ids for t in alone] == [t.token_ids for t in found]
            totals = [t.total_cost for t in alone]
            assert [t.total_cost for t in found] == pytest.approx(totals, abs=1e-4)
            different.add(alone[0].token_ids)
    assert len(different) > 3


class Tokenizer:
    vocab_size, eos_id = NUM_TOKENS, EOS

    def ids_to_tokens(self, ids):
        return [[*"abcda", "</s>"][i] for i in ids]

    def text_to_ids(self, text):
        return ["abcd".find(letter) for letter in text.strip().lower()]


class Aggregate(Tokenizer):
    """Of two languages and of marks, as NeMo has them: another language's ids."""

    tokenizers_dict = dict.fromkeys(("spl_tokens", "de", "en"))

    def text_to_ids(self, text, lang):
        ids = super().text_to_ids(text)
        return {"en": ids, "de": [4 if i == 0 else i for i in ids]}[lang]


def asr_of(parts, tokenizer):
    asr = torch.nn.Module()
    asr.tokenizer, asr.log_softmax = tokenizer, parts[2]
    asr.transf_decoder = torch.nn.Module()
    asr.transf_decoder.embedding, asr.transf_decoder.decoder = parts[:2]
    return asr


@pytest.mark.parametrize(
    ("tokenizer", "ways"), [(Tokenizer(), [(0, 1)]), (Aggregate(), [(4, 1), (0, 1)])]
)
def test_phrases_are_cut_by_its_tokenizer(parts, tokenizer, ways):
    model = NemoAttentionModel.of(asr_of(parts, tokenizer), prompt=(EOS,))
    compiler = AttentionDecoder(model).phrase_compiler()
    assert list(compiler.speller(["Ab"])) == [ways]
    boosts = compiler.compile(["Ab"])
    assert all(boosts.total(way) < 0 for way in ways)
    assert AttentionDecoder(model).phrase_compiler().compile(["b"]).unknown == ()


def test_parts_of_a_model_are_found(parts):
    asr = asr_of(parts, Tokenizer())
    model = NemoAttentionModel.of(asr, prompt=(EOS,), max_tokens=3)
    assert model.tokens == ("a", "b", "c", "d", "a<4>", "</s>")
    (hyp,) = AttentionDecoder(model).decode(frames_of(5))
    assert len(hyp.token_ids) <= 3
