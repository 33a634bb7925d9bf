"""ONNX models of waveforms, onnx-asr's, streaming exports; tiny ones and a real one."""

import json
import sys

import numpy as np
import pytest
import tiny_models as tiny

from wfstdec import read_tokens
from wfstdec.audio import read_audio
from wfstdec.errors import (
    BackendError,
    FormatError,
    ModelError,
    OptionError,
    TokenTableError,
)
from wfstdec.models import KINDS, MappedTokens, StreamingEncoder, load_model
from wfstdec.models.encoder import log_softmax
from wfstdec.models.streaming_onnx import KaldiFbank, NemoFbank, StreamingOnnx

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
RATE = 16000


def bare(path, *inputs):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the bits depend on it
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_inputs()]
    return session.run(None, dict(zip(names, inputs, strict=True)))[0]


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("causal")
    tiny.write_tokens(folder / "tokens.txt", 6, at=-1)
    return tiny.waveform_model(folder / "model.onnx", metadata={"sample_rate": 16000})


def test_onnx_with_waveform_input(causal, speech):
    model = load_model(causal)
    spec = model.spec
    assert (spec.frame_shift_s, spec.sample_rate, spec.blank) == (0.02, RATE, 5)
    assert len(spec.tokens) == 6
    for size in (32000, 20000, 1000):
        (found,) = model.encode([speech[:size]])
        given = np.pad(speech[:size], (0, max(0, 1600 - size)))
        expected = bare(causal, given[None], np.array([len(given)]))[0]
        np.testing.assert_array_equal(found, expected[: -(-size // 320)])


def test_logits_are_known_by_their_name_or_said(tmp_path, speech):
    tiny.write_tokens(tmp_path / "tokens.txt", 6)
    path = tiny.waveform_model(tmp_path / "m.onnx", output="logits")
    (found,) = load_model(path, sample_rate=RATE).encode([speech])
    expected = bare(path, speech[None], np.array([32000]))[0]
    np.testing.assert_allclose(found, log_softmax(expected), atol=1e-6)
    with pytest.raises(ModelError, match="logits.*--logits"):
        load_model(path, sample_rate=RATE, logits=False).encode([speech])


def test_a_model_that_tells_too_little(tmp_path, speech):
    path = tiny.waveform_model(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"m.onnx: found no tokens.*\(--tokens\)"):
        load_model(path)
    tokens = tiny.write_tokens(tmp_path / "list.txt", 6)
    with pytest.raises(ModelError, match=r"sample rate.*\(--sample-rate\)"):
        load_model(path, tokens)
    assert load_model(path, tokens, sample_rate=8000).spec.frame_shift_s == 0.04
    short = tiny.waveform_model(tmp_path / "short.onnx", limit=40)
    with pytest.raises(ModelError, match=r"no frame shift.*\(--frame-shift\)"):
        load_model(short, tokens, sample_rate=RATE)


def test_wav2vec2_exported_to_onnx(tmp_path, speech):
    """Names of Optimum's export; Transformers' files say how audio is normalised."""
    text = """g (float[B, N] input_values) => (float[B, T, 4] logits) {
        x = Unsqueeze(input_values, one)
        y = Conv<strides=[320]>(x, w)
        logits = Transpose<perm=[0, 2, 1]>(y)
    }"""
    weights = {"one": np.array([1])} | tiny.random_weights(8, w=(4, 1, 400))
    path = tiny.write_onnx(tmp_path / "model.onnx", text, weights)
    (tmp_path / "vocab.json").write_text('{"-": 0, "|": 1, "<pad>": 2, "A": 3}')
    with pytest.raises(ModelError, match="preprocessor_config.json"):
        load_model(path)
    features = {"do_normalize": True, "sampling_rate": RATE}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(features))
    (tmp_path / "config.json").write_text(
        '{"architectures": ["Wav2Vec2ForCTC"], "pad_token_id": 2}'
    )
    model = load_model(tmp_path)
    assert model.spec.blank == 2 and model.spec.frame_shift_s == 0.02
    (found,) = model.encode([0.5 * speech + 0.3])
    normal = ((speech - speech.mean()) / speech.std()).astype(np.float32)
    expected = log_softmax(bare(path, normal[None])[0])
    np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize(
    ("make", "shift", "rate", "blank"),
    (
        (tiny.nemo_folder, 0.08, RATE, 6),
        (tiny.gigaam_folder, 0.04, RATE, 4),
        (tiny.tone_folder, 0.03, 8000, 3),
    ),
    ids=("nemo", "gigaam", "tone"),
)
def test_exports_that_onnx_asr_knows(tmp_path, speech, make, shift, rate, blank):
    """onnx-asr's own search finds the tokens that ours would, at the same times."""
    pytest.importorskip("onnx_asr")
    model = load_model(make(tmp_path))
    spec = model.spec
    assert abs(spec.frame_shift_s - shift) < 1e-12
    assert (spec.sample_rate, spec.blank) == (rate, blank)
    (found,) = model.encode([speech])
    best = found.argmax(1)
    new = (best != blank) & (np.diff(best, prepend=blank) != 0)
    (onnx_asr_model,) = model._run.args
    size = np.array([len(speech)])
    (theirs,) = onnx_asr_model.recognize_batch(speech[None], size)
    marks = [name.replace("▁", " ") for name in np.array(spec.tokens.names)[best[new]]]
    assert theirs.tokens == marks and len(marks) > 3
    if make is tiny.nemo_folder:  # names are those of the file
        assert spec.tokens.names[:3] == ("▁the", "▁", "a")
    times = np.flatnonzero(new) * shift
    np.testing.assert_allclose(theirs.timestamps, times, atol=1e-9)


def test_what_onnx_asr_cannot_load_is_told(tmp_path):
    pytest.importorskip("onnx_asr")
    tiny.nemo_folder(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(FormatError, match="cannot load it as nemo.*vocab.txt"):
        load_model(tmp_path)


STREAMING = {
    "zipformer2": (tiny.zipformer2_model, (0.04, RATE, 0)),
    "nemo_ctc": (tiny.nemo_streaming_model, (0.08, RATE, 4)),
    "wenet_ctc": (tiny.wenet_model, (0.04, RATE, 0)),
    "t_one_ctc": (tiny.tone_model, (0.03, 8000, 3)),
}
"""How each is written; its frame shift, rate and blank."""


@pytest.fixture(scope="module")
def streaming(tmp_path_factory):
    pytest.importorskip("kaldi_native_fbank")
    models = {}
    for name, (make, (_, _, blank)) in STREAMING.items():
        folder = tmp_path_factory.mktemp(name)
        options = {}
        if name == "t_one_ctc":
            own = {"frame_length_ms": 300, "state_dim": 3, "sample_rate": 8000}
            options["metadata"] = own
        path = make(folder / "model.onnx", **options)
        tiny.write_tokens(folder / "tokens.txt", 4 if options else 5, at=blank)
        models[name] = load_model(path, max_batch=4)
    return models


@pytest.mark.parametrize("form", STREAMING)
def test_streaming_exports_tell_all_there_is(streaming, form):
    model = streaming[form]
    assert isinstance(model, StreamingOnnx) and isinstance(model, StreamingEncoder)
    spec = model.spec
    assert (spec.frame_shift_s, spec.sample_rate, spec.blank) == STREAMING[form][1]


@pytest.mark.parametrize("form", STREAMING)
def test_a_step_of_any_chunks_is_the_whole(streaming, speech, form):
    """Bit for bit, streams of different ages together or alone."""
    model = streaming[form]
    audio = [speech[:n] for n in (32000, 31999, 12345, 900, 0)]
    whole = [model.encode([samples])[0] for samples in audio]
    shift = model.spec.frame_shift_s * model.spec.sample_rate
    assert [len(rows) for rows in whole] == [-(-len(x) // shift) for x in audio]
    random = np.random.default_rng(9)
    for _ in range(3):
        found = tiny.in_any_chunks(model, audio, random)
        for rows, expected in zip(found, whole, strict=True):
            np.testing.assert_allclose(rows, expected, atol=2e-5)
    state = model.start()
    model.step([state], [speech], [True])
    with pytest.raises(OptionError, match="has ended"):
        model.step([state], [speech], [False])


def features_of(features, samples, num):
    features.accept(samples)
    features.accept(np.zeros(16000, np.float32))
    return features.frames(0, num)


def rows_by_hand(model, states, num, inputs):
    """Rows of `num` calls; `inputs(turn, states)` are those of one."""
    names = [one.name for one in model._session.get_inputs()]
    rows = []
    for turn in range(num):
        given = dict(zip(names, inputs(turn, states), strict=True))
        logprobs, *more = model._session.run(None, given)
        rows.append(logprobs[0])
        states = more[-len(states) :]
    return np.concatenate(rows)


def test_zipformer2_is_called_as_sherpa_onnx_calls_it(streaming, speech):
    """Windows of 45 frames every 32; states go round in the order of the inputs."""
    model = streaming["zipformer2"]
    x = features_of(KaldiFbank(1, -400), speech, 32 * 7 + 45)
    shapes = [one.shape for one in model._session.get_inputs()[1:-1]]
    sizes = [[1 if size == "N" else size for size in shape] for shape in shapes]
    states = [*(np.zeros(size, np.float32) for size in sizes), np.zeros(1, np.int64)]
    rows = rows_by_hand(
        model, states, 7, lambda i, past: [x[None, 32 * i : 32 * i + 45], *past]
    )
    np.testing.assert_allclose(model.encode([speech])[0], rows[:50], atol=1e-6)


def test_nemo_begins_with_an_empty_cache(streaming, speech):
    """Nine frames of zeros, then windows of 25 every 16."""
    model = streaming["nemo_ctc"]
    x = features_of(NemoFbank(80, 0), speech, 16 * 14)
    x = np.concatenate([np.zeros((9, 80), np.float32), x])
    states = [np.zeros((1, 2, 3, 4), np.float32), np.zeros((1, 2, 4, 3), np.float32)]

    def inputs(turn, states):
        window = x[None, 16 * turn : 16 * turn + 25].transpose(0, 2, 1)
        return [window, np.array([25]), *states]

    rows = rows_by_hand(model, [*states, np.zeros(1, np.int64)], 13, inputs)
    np.testing.assert_allclose(model.encode([speech])[0], rows[:25], atol=1e-6)


def test_wenet_masks_the_past_that_is_not_there(streaming, speech):
    """Chunks of 4, 2 to the left: the offset starts at 8, the mask fills up."""
    model = streaming["wenet_ctc"]
    x = features_of(KaldiFbank(32768, 0), speech, 16 * 13 + 19)
    states = [np.zeros((2, 1, 8, 8), np.float32), np.zeros((2, 1, 4, 2), np.float32)]

    def inputs(turn, states):
        there = [False] * (8 - 4 * min(turn, 2)) + [True] * (4 * min(turn, 2) + 4)
        window = x[None, 16 * turn : 16 * turn + 19]
        offset, cache = np.array([8 + 4 * turn]), np.array([8])
        return [window, offset, cache, *states, np.array(there)[None, None]]

    rows = rows_by_hand(model, states, 13, inputs)
    np.testing.assert_allclose(model.encode([speech])[0], rows[:50], atol=1e-5)


def test_nemo_features_are_those_of_nemo(speech):
    pytest.importorskip("kaldi_native_fbank")
    preprocessors = pytest.importorskip("onnx_asr.preprocessors.numpy_preprocessor")
    features = NemoFbank(80, 0)
    parts = []
    for chunk in np.split(speech, [100, 700, 5000, 17777]):
        features.accept(chunk)
        at = sum(map(len, parts))
        if features.num_ready > at:
            parts.append(features.frames(at, features.num_ready - at))
    found = np.concatenate(parts)
    theirs, _ = preprocessors.NemoPreprocessorNumpy("nemo80")(
        speech[None], np.array([len(speech)])
    )
    theirs = theirs[0].T[: len(found)]
    assert len(found) == 198
    scale = found.std(0) / theirs.std(0)  # they are normalised by mel
    centred = (theirs - theirs.mean(0)) * scale
    np.testing.assert_allclose(found - found.mean(0), centred, atol=2e-3)


def test_streaming_exports_that_cannot_be_streamed(tmp_path):
    pytest.importorskip("kaldi_native_fbank")
    tiny.write_tokens(tmp_path / "tokens.txt", 5)
    path = tiny.nemo_streaming_model(tmp_path / "n.onnx", normalize_type="per_feature")
    with pytest.raises(ModelError, match="'per_feature'.*normalised over an utterance"):
        load_model(path)
    path = tiny.nemo_streaming_model(tmp_path / "n.onnx", window_size="")
    with pytest.raises(ModelError, match="metadata.*sherpa-onnx"):
        load_model(path)
    path = tiny.nemo_streaming_model(tmp_path / "n.onnx", chunk_shift=24)
    with pytest.raises(ModelError, match="gave 2 frames for a step of 24, expected 3"):
        load_model(path).encode([np.zeros(8000, np.float32)])


def test_what_is_no_model_lists_the_kinds_tried(tmp_path):
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path)
    assert all(f"{kind} is " in str(caught.value) for kind in KINDS)
    with pytest.raises(ModelError, match="no such file.*'hama'"):
        load_model(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="int: unknown kind of model"):
        load_model(5)
    with pytest.raises(OptionError, match="kind='x', expected one of encoder, mapped"):
        load_model(tmp_path, kind="x")
    (tmp_path / "broken.onnx").write_bytes(b"no")
    with pytest.raises(FormatError, match="broken.onnx: not a readable ONNX"):
        load_model(tmp_path / "broken.onnx")
    text = "g (float[B, 3, 3, 3] x) => (float[B, 3, 3, 3] y) { y = Identity(x) }"
    tiny.write_onnx(tmp_path / "other.onnx", text)
    with pytest.raises(ModelError, match="unknown kind.*takes waveforms"):
        load_model(tmp_path / "other.onnx")
    with pytest.raises(ModelError, match="broken.onnx, other.onnx, expected one"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "package"),
    (
        ("onnxruntime", "onnxruntime"),
        ("onnx_asr.loader", "onnx-asr==0.12.0 onnxruntime"),
    ),
)
def test_what_is_not_installed_is_named(tmp_path, monkeypatch, name, package):
    model = tiny.nemo_folder(tmp_path)
    if name == "onnxruntime":
        model = tiny.waveform_model(tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BackendError, match=f"pip install {package}"):
        load_model(model)


def test_the_real_model_is_that_called_bare(real_model, real_audio):
    path, tokens = real_model
    with pytest.raises(TokenTableError, match=r"'<pad>' and '<blank>'.*\(--blank\)"):
        load_model(path, tokens, sample_rate=RATE)
    model = load_model(path, tokens, "<blank>", sample_rate=RATE)
    spec = model.spec
    assert (spec.frame_shift_s, spec.blank, len(spec.tokens)) == (0.02, 190, 191)
    file = min(real_audio, key=lambda path: path.stat().st_size)
    audio = read_audio(file, RATE).waveform
    expected = bare(path, audio[None], np.array([len(audio)]))
    np.testing.assert_array_equal(model.encode([audio])[0], expected[0])


def test_the_package_hama_gives_the_log_probs_that_are_shared(real_audio):
    """191 tokens are summed to 43, as the set's description says."""
    pytest.importorskip("hama")
    model = load_model("hama")
    spec = model.spec
    assert (spec.frame_shift_s, spec.sample_rate, spec.blank) == (0.02, RATE, 190)
    assert load_model(model) is model
    data = real_audio[0].parents[1]
    tokens = read_tokens(data / "tokens.txt")
    mapped = MappedTokens(model, tokens, same={"ɡ": "g"}, rest="<other>")
    path = min(real_audio, key=lambda path: path.stat().st_size)
    (found,) = mapped.encode([read_audio(path, RATE).waveform])
    with np.load(data / "posteriors" / "librispeech_dev.npz") as file:
        expected = file[path.stem].astype(np.float32)  # in sixteenths of a nat
    assert found.shape == expected.shape == (104, 43)
    kept = expected > -20
    np.testing.assert_allclose(found[kept], expected[kept], atol=0.05)
