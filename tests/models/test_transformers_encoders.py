"""Models of Transformers: true classes in tiny, as a folder and as objects."""

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from wfstdec.errors import BackendError, FormatError, ModelError
from wfstdec.models import load_model
from wfstdec.models.encoder import log_softmax

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
VOCAB = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "a": 5, "-": 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Wav2Vec2ForCTC with its processor, saved; 9 outputs, 7 of them named."""
    path = tmp_path_factory.mktemp("wav2vec2")
    (path / "vocab.json").write_text(json.dumps(VOCAB))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(path / "vocab.json")
    extractor = transformers.Wav2Vec2FeatureExtractor(
        sampling_rate=8000, do_normalize=True, return_attention_mask=True
    )
    transformers.Wav2Vec2Processor(extractor, tokenizer).save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.Wav2Vec2Config(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(8, 8),
        conv_kernel=(10, 4),
        conv_stride=(40, 4),
        num_feat_extract_layers=2,
        feat_extract_norm="layer",
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        vocab_size=9,
        pad_token_id=0,
    )
    transformers.Wav2Vec2ForCTC(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder, max_batch=4)


@pytest.fixture(scope="module")
def bare(folder):
    theirs = transformers.Wav2Vec2ForCTC.from_pretrained(folder).eval()
    return theirs, transformers.Wav2Vec2Processor.from_pretrained(folder)


def test_a_folder_tells_all_there_is(model):
    spec = model.spec
    assert (spec.sample_rate, spec.frame_shift_s, spec.blank) == (8000, 0.02, 0)
    assert spec.tokens.names[:7] == tuple(VOCAB)
    assert spec.tokens.names[7:] == ("<unused_7>", "<unused_8>")


def test_log_probs_are_those_of_the_model_called_bare(bare, model, speech):
    theirs, processor = bare
    for size in (16000, 4321):
        inputs = processor(speech[:size], sampling_rate=8000, return_tensors="pt")
        with torch.inference_mode():
            logits = theirs(**inputs).logits[0].numpy()
        (found,) = model.encode([speech[:size]])
        np.testing.assert_allclose(found, log_softmax(logits), atol=1e-5)


def test_a_batch_of_equal_length_and_what_is_padded_in_no_batch(model, speech):
    audio = [speech[:8000], speech[8000:16000], speech[:12000]]
    for one, waveform in zip(model.encode(audio), audio, strict=True):
        np.testing.assert_allclose(one, model.encode([waveform])[0], atol=1e-5)


def test_objects_of_any_class(bare, model, speech):
    pair = load_model(bare)
    np.testing.assert_array_equal(pair.encode([speech])[0], model.encode([speech])[0])
    named = load_model(bare, tokens=model.spec.tokens)
    assert named.spec.tokens is model.spec.tokens


def test_the_page_about_hugging_face(bare, speech, tmp_path, monkeypatch, capsys):
    """The page's snippet runs as it is, but for the model, which is not fetched."""
    soundfile = pytest.importorskip("soundfile")
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    part = page[page.index("## From Hugging Face") :]
    code = part[part.index("```python\n") + 10 :].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    soundfile.write("talk.flac", speech, 8000)
    Path("words.txt").write_text("a aa")
    arpa = "\\data\\\nngram 1=4\n\n\\1-grams:\n-1 <s>\n-1 </s>\n-1 a\n-1 aa\n\\end\\\n"
    with gzip.open("lm.arpa.gz", "wt") as file:
        file.write(arpa)
    network, processor = bare
    loads = {"AutoModelForCTC": network, "AutoProcessor": processor}
    for name, found in loads.items():
        kind = getattr(transformers, name)
        given = staticmethod(lambda name, found=found: found)
        monkeypatch.setattr(kind, "from_pretrained", given)
    names = {}
    exec(compile(code, "models.md", "exec"), names)
    assert names["decoder"].vocabulary.tokens == names["model"].spec.tokens
    assert set(capsys.readouterr().out.split()) <= {"a", "aa"}
    assert Path("own.npz").stat().st_size > 0


def test_a_processor_that_tells_too_little():
    config = SimpleNamespace(vocab_size=7, pad_token_id=0, inputs_to_logits_ratio=None)
    theirs = SimpleNamespace(config=config, eval=lambda: None)
    tokenizer = SimpleNamespace(get_vocab=lambda: VOCAB)
    with pytest.raises(ModelError, match=r"\(--sample-rate\)"):
        load_model((theirs, SimpleNamespace(tokenizer=tokenizer)))
    extractor = SimpleNamespace(tokenizer=tokenizer, sampling_rate=16000)
    with pytest.raises(ModelError, match=r"\(--frame-shift\)"):
        load_model((theirs, extractor))
    with pytest.raises(ModelError, match=r"\(--tokens\)"):
        load_model((theirs, SimpleNamespace(sampling_rate=16000)))


def test_parakeets_frame_is_hops_times_subsampling():
    config = transformers.ParakeetCTCConfig(vocab_size=7, pad_token_id=6)
    extractor = SimpleNamespace(sampling_rate=16000, hop_length=160)
    tokenizer = SimpleNamespace(get_vocab=lambda: VOCAB | {"<pad>": 6, "-": 0})
    theirs = SimpleNamespace(config=config, eval=lambda: None)
    processor = SimpleNamespace(feature_extractor=extractor, tokenizer=tokenizer)
    spec = load_model((theirs, processor)).spec
    assert (spec.frame_shift_s, spec.blank) == (0.08, 6)


def test_a_folder_that_transformers_cannot_load(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["Wav2Vec2ForCTC"]}')
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(FormatError, match="Transformers cannot load it"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(FormatError, match="config.json: not a readable JSON object"):
        load_model(tmp_path)


def test_without_transformers(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(BackendError, match="pip install transformers torch"):
        load_model(folder)
