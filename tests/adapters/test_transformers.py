"""Models of Transformers: labels, logits to beams, offsets to seconds.

The model is a tiny random one, made here; nothing is downloaded.
"""

import importlib.util
import json

import numpy as np
import pytest
from processes import python

from wfstdec.adapters.pyctcdecode import build_ctcdecoder
from wfstdec.adapters.transformers import labels_of
from wfstdec.errors import TokenTableError

VOCABULARY = ("<pad>", "<s>", "</s>", "<unk>", "|", "a", "b", "c")
NEEDS = ("transformers", "torch", "tokenizers")
TRANSFORMERS = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, NEEDS)), reason="needs transformers and torch"
)
PROCESSOR = """
import sys
from wfstdec.adapters.pyctcdecode import install_shim
install_shim()
import numpy as np
from pyctcdecode import build_ctcdecoder
from transformers import (
    Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor, Wav2Vec2ProcessorWithLM
)
from wfstdec.adapters.transformers import labels_of
vocabulary, arpa, logits, folder = sys.argv[1:]
tokenizer = Wav2Vec2CTCTokenizer(vocabulary)
decoder = build_ctcdecoder(labels_of(tokenizer), arpa)
processor = Wav2Vec2ProcessorWithLM(Wav2Vec2FeatureExtractor(), tokenizer, decoder)
logits = np.load(logits)
one = processor.decode(logits[0], output_word_offsets=True)
batch = processor.batch_decode(logits, n_best=2, output_word_offsets=True)
assert batch.text[0][0] == one.text and batch.word_offsets[0][0] == one.word_offsets
processor.save_pretrained(folder)
again = Wav2Vec2ProcessorWithLM.from_pretrained(folder, alpha=0.5)
assert again.decode(logits[0]).text == one.text
assert again.language_model.alpha == 0.5
again = Wav2Vec2ProcessorWithLM.from_pretrained(folder, alpha=3.0)
assert again.decode(logits[0]).lm_score != one.lm_score
print(one.text, one.word_offsets[0])
"""


class Tokenizer:
    pad_token, word_delimiter_token = "[blank]", "/"

    def __init__(self, vocabulary):
        self._vocabulary = vocabulary

    def get_vocab(self):
        return self._vocabulary


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2CTCTokenizer, Wav2Vec2ForCTC

    path = tmp_path_factory.mktemp("model") / "vocab.json"
    path.write_text(json.dumps({name: i for i, name in enumerate(VOCABULARY)}))
    shape = {"conv_dim": (8, 8), "conv_stride": (5, 4), "conv_kernel": (10, 8)}
    config = Wav2Vec2Config(
        **{"vocab_size": 8, "hidden_size": 16, "intermediate_size": 16},
        **{"num_hidden_layers": 1, "num_attention_heads": 2},
        **{"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2},
        **shape,
    )
    torch.manual_seed(0)
    model = Wav2Vec2ForCTC(config).eval()
    with torch.no_grad():
        logits = 20 * model(torch.randn(2, 4000)).logits
    return Wav2Vec2CTCTokenizer(str(path)), config, logits, path


def test_labels_by_hand():
    tokenizer = Tokenizer({"a": 2, "[blank]": 0, "/": 1, "<unk>": 3})
    assert labels_of(tokenizer) == ["", " ", "a", "<unk>"]
    assert labels_of(tokenizer, 3) == ["", " ", "a"]
    assert labels_of(tokenizer, 5) == ["", " ", "a", "<unk>", "<unused_4>"]
    assert build_ctcdecoder(labels_of(tokenizer)).decode(np.eye(4)[[2, 0, 2]]) == "aa"


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ({"a": 0, "b": 0}, "'a' and 'b' both have id 0"),
        ({"a": 0, "b": 2}, "1 ids have no token, such as 1, expected 3 tokens; give"),
    ],
)
def test_tokenizers_that_have_no_labels(vocabulary, message):
    with pytest.raises(TokenTableError, match=message):
        labels_of(Tokenizer(vocabulary))
    with pytest.raises(TokenTableError, match="int has no get_vocab"):
        labels_of(3)


@TRANSFORMERS
def test_logits_of_a_model_to_words_with_seconds(speech, arpa):
    tokenizer, config, logits, _ = speech
    labels = labels_of(tokenizer)
    assert labels == ["", "<s>", "</s>", "<unk>", " ", "a", "b", "c"]
    decoder = build_ctcdecoder(labels, arpa)
    beams = decoder.decode_beams(logits[0])
    text, _, words, _, _ = beams[0]
    assert text == " ".join(word for word, _ in words) and text
    frame_s = config.inputs_to_logits_ratio / 16000
    spans = [(start * frame_s, end * frame_s) for _, (start, end) in words]
    assert all(0 <= start < end for start, end in spans)
    assert spans == sorted(spans) and spans[-1][1] <= 4000 / 16000
    texts = decoder.decode_batch(None, logits)
    assert texts[0] == decoder.decode(logits[0]) and len(texts) == 2


@TRANSFORMERS
@pytest.mark.share
@pytest.mark.skipif(
    importlib.util.find_spec("kenlm") is None, reason="Transformers asks for kenlm"
)
def test_transformers_own_processor_runs_on_the_shim(speech, arpa, tmp_path):
    _, _, logits, vocabulary = speech
    np.save(tmp_path / "logits.npy", logits.numpy())
    given = [vocabulary, arpa, tmp_path / "logits.npy", tmp_path / "processor"]
    done = python("-c", PROCESSOR, *given)
    assert done.returncode == 0, done.stderr
    text = build_ctcdecoder(labels_of(speech[0]), arpa).decode_beams(logits[0])[0][0]
    assert done.stdout.startswith(text)
