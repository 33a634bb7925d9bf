"""Two verbs and their checks: batches, rows that sum to one, frames that cover."""

import json

import numpy as np
import pytest
from tiny_models import in_any_chunks

from wfstdec import token_table
from wfstdec.errors import (
    AudioError,
    FormatError,
    LogprobError,
    ModelError,
    OptionError,
    ShapeError,
    TokenTableError,
)
from wfstdec.models import (
    Encoder,
    EncoderSpec,
    MappedTokens,
    StreamingEncoder,
    Windowed,
    load_model,
)
from wfstdec.models.encoder import BatchEncoder, log_softmax

TOKENS = token_table(["<blk>", "a", "b"])


def energies(waveform, hop=160):
    frames = waveform[: len(waveform) // hop * hop].reshape(-1, hop)
    level = (frames**2).mean(1)
    return np.stack([level, 20 * level, 1 - level], 1)


def encoder(function=energies, logits=True, **options):
    options = {"frame_shift_s": 0.01, "sample_rate": 16000, **options}
    return load_model(function, TOKENS, logits=logits, **options)


MODEL = encoder()


class Recorder(BatchEncoder):
    def __init__(self, **options):
        spec = EncoderSpec(TOKENS, 0.01, 16000, **options)
        super().__init__(spec, self.run, logits=True)
        self.batches = []

    def run(self, batch, lengths):
        self.batches.append(lengths.tolist())
        return [energies(x[:n]) for x, n in zip(batch, lengths, strict=True)]


def test_a_function_of_ones_own(speech):
    one = encoder()
    assert isinstance(one, Encoder) and not isinstance(one, StreamingEncoder)
    (found,) = one.encode([speech])
    assert found.dtype == np.float32 and found.shape == (200, 3)
    np.testing.assert_allclose(found, log_softmax(energies(speech)), atol=1e-6)
    assert one.spec.blank == 0 and one.spec.tokens.names == TOKENS.names


def test_torch_tensors_come_back_as_arrays(speech):
    torch = pytest.importorskip("torch")
    one = encoder(lambda x: torch.from_numpy(energies(x))[None].requires_grad_())
    np.testing.assert_array_equal(
        one.encode([speech])[0], encoder().encode([speech])[0]
    )


@pytest.mark.parametrize("pads_exactly", (False, True))
def test_a_batch_is_shared_at_equal_length_only(speech, pads_exactly):
    one = Recorder(max_batch=3, pads_exactly=pads_exactly)
    sizes = [3200, 6400, 3200, 3200, 6400, 3200, 4800]
    found = one.encode([speech[:size] for size in sizes])
    expected = {
        False: [[3200] * 3, [3200], [4800], [6400] * 2],
        True: [[3200] * 3, [3200, 4800, 6400], [6400]],
    }
    assert one.batches == expected[pads_exactly]
    for logprobs, size in zip(found, sizes, strict=True):
        np.testing.assert_array_equal(logprobs, encoder().encode([speech[:size]])[0])


def test_very_short_audio(speech):
    for size in (0, 1, 100, 400):
        (found,) = encoder().encode([speech[:size]])
        assert len(found) == -(-size // 160)


def test_logits_taken_for_log_probs(speech):
    with pytest.raises(ModelError, match="sum to .*expected 1: logits.*--logits"):
        encoder(logits=False).encode([speech])
    with pytest.raises(ModelError, match="gives probabilities"):
        encoder(lambda x: np.exp(log_softmax(energies(x))), False).encode([speech])


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    (
        (np.full((200, 3), np.nan), LogprobError, "NaN"),
        (np.zeros((200, 4)), ModelError, r"4 outputs.*3 tokens.*blank=3 \(--blank\)"),
        (np.zeros((200, 9)), ModelError, "9 outputs.*--tokens"),
        (np.zeros(200), ShapeError, r"expected \[T, V\]"),
        (np.full((200, 3), np.inf), ModelError, "sum to inf"),
    ),
    ids=str,
)
def test_rows_that_are_no_log_probs(speech, rows, error, words):
    with pytest.raises(error, match=words):
        encoder(lambda x: rows, False).encode([speech])


def test_a_models_window_limit_is_found(speech):
    long = np.tile(speech, 28)  # 56 s
    with pytest.raises(ModelError) as caught:
        encoder(lambda x: energies(x)[:3000]).encode([long])
    assert "30.00 s" in str(caught.value) and "56.00 s" in str(caught.value)
    assert "cut the recording" in str(caught.value)


def test_another_frame_shift_is_found(speech):
    with pytest.raises(ModelError, match=r"4.00 s, expected 2.00 s.*--frame-shift"):
        encoder(frame_shift_s=0.02).encode([speech])


def test_waveforms_of_another_form(speech):
    with pytest.raises(ShapeError, match=r"\(2, 16000\), expected \[N\]"):
        encoder().encode([speech.reshape(2, -1)])
    with pytest.raises(ModelError, match="dtype 'int16'.*read_audio"):
        encoder().encode([np.zeros(1600, np.int16)])
    with pytest.raises(AudioError, match="integers kept as floats"):
        encoder().encode([32768 * speech])
    with pytest.raises(OptionError, match="frame_shift_s=0"):
        EncoderSpec(TOKENS, 0, 16000)


def test_windows_of_any_chunks_are_the_whole_of_a_causal_model(speech):
    """Frames of their own samples alone: windows lose nothing."""
    one = Windowed(encoder(), chunk_s=0.13, left_s=0.2, right_s=0.05)
    assert isinstance(one, StreamingEncoder)
    random = np.random.default_rng(2)
    audio = [speech[:n] for n in (32000, 17000, 500, 0, 160)]
    whole = one.encode(audio)
    for _ in range(10):
        found = in_any_chunks(one, audio, random)
        for rows, expected in zip(found, whole, strict=True):
            np.testing.assert_allclose(rows, expected, atol=1e-5)


@pytest.mark.parametrize("short", (1, 3))
def test_windows_of_a_model_whose_last_frames_are_missing(speech, short):
    """Convolutions need audio behind a frame: no frame is lost or doubled."""
    model = encoder(lambda x: energies(x)[:-short])
    one = Windowed(model, chunk_s=0.01, left_s=0.2, right_s=0)
    state, found = one.start(), []
    for i, chunk in enumerate(np.split(speech[:8000], 10)):
        found += one.step([state], [chunk], [i == 9])
    np.testing.assert_allclose(
        np.concatenate(found), model.encode([speech[:8000]])[0], atol=1e-5
    )


def test_windows_keep_what_they_need_and_no_more(speech):
    one = Windowed(encoder(), chunk_s=0.2, left_s=0.4, right_s=0.1)
    state = one.start()
    for _ in range(20):
        one.step([state], [speech], [False])
        assert len(state.samples) <= 16000 * 0.71
    one.step([state], [speech[:10]], [True])
    with pytest.raises(OptionError, match="has ended"):
        one.step([state], [speech], [False])


def test_windows_out_of_range():
    with pytest.raises(OptionError, match="chunk_s=0"):
        Windowed(encoder(), 0, 1, 1)
    with pytest.raises(OptionError, match="whole number"):
        Windowed(encoder(sample_rate=16030), 1, 1, 1)


def test_tokens_are_summed_by_name(speech):
    source = token_table(["<blk>", "g", "ɡ", "x", "y"])
    random = np.random.default_rng(0)
    rows = log_softmax(random.standard_normal((200, 5)))
    model = load_model(lambda x: rows, source, frame_shift_s=0.01, sample_rate=16000)
    target = token_table(["<other>", "<blk>", "g"])
    mapped = MappedTokens(model, target, same={"ɡ": "g"}, rest="<other>")
    (found,) = mapped.encode([speech])
    p = np.exp(rows)
    expected = np.stack([p[:, 3] + p[:, 4], p[:, 0], p[:, 1] + p[:, 2]], 1)
    np.testing.assert_allclose(np.exp(found), expected, atol=1e-6)
    assert mapped.spec.tokens is target and mapped.spec.frame_shift_s == 0.01


def test_a_file_says_which_tokens_are_whose(speech, tmp_path, monkeypatch):
    """`model.json`, its paths from its own folder; what a caller gives goes before."""
    (tmp_path / "tokens.txt").write_text("<other>\n<blank>\na\n")
    described = {
        "model": "hama",
        "tokens": "tokens.txt",
        "same": {"<blk>": "<blank>"},
        "rest": "<other>",
    }
    path = tmp_path / "model.json"
    path.write_text(json.dumps(described))
    monkeypatch.setattr("wfstdec.models.loading.hama_encoder", lambda given: MODEL)
    model = load_model(path)
    assert model.spec.tokens.names == ("<other>", "<blank>", "a")
    target = token_table(["<other>", "<blank>", "a"])
    expected = MappedTokens(MODEL, target, same={"<blk>": "<blank>"}, rest="<other>")
    (found,), (rows,) = model.encode([speech]), expected.encode([speech])
    np.testing.assert_array_equal(found, rows)
    given = load_model(str(path), tokens=token_table(["<blank>", "a", "<other>"]))
    assert given.spec.tokens.names == ("<blank>", "a", "<other>")
    moved = rows[:, [1, 2, 0]]  # summed in another order
    np.testing.assert_allclose(given.encode([speech])[0], moved, atol=1e-6)
    for changes, message in (
        ({"model": 3}, "found 'model': 3, expected model, tokens"),
        ({"others": "x"}, "found 'others': 'x', expected"),
        ({"model": f"{__name__}:MODEL"}, "expected a file, a folder or 'hama'"),
    ):
        path.write_text(json.dumps(described | changes))
        with pytest.raises(FormatError, match=message):
            load_model(path)
    path.write_text(json.dumps({"model": "hama"}))
    with pytest.raises(FormatError, match="found no 'tokens'"):
        load_model(path)


def test_tokens_that_have_no_place():
    model = encoder()
    with pytest.raises(TokenTableError, match="'b' of the model has no place"):
        MappedTokens(model, token_table(["<blk>", "a"]))
    with pytest.raises(TokenTableError, match="'c' is no token of the model"):
        MappedTokens(model, token_table(["<blk>", "a", "b", "c"]))
    with pytest.raises(TokenTableError, match="the blank 'a' is not the model's"):
        MappedTokens(model, token_table(["<blk>", "a", "b"], "a"))
    with pytest.raises(OptionError, match="'z'"):
        MappedTokens(model, TOKENS, same={"z": "a"})


def test_a_function_is_loaded_by_name_or_as_it_is(speech, tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "import numpy as np\n"
        "def noise(x): return np.full((len(x) // 160, 3), -np.log(3))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = {"tokens": TOKENS, "frame_shift_s": 0.01, "sample_rate": 16000}
    model = load_model("my_models:noise", **options)
    assert model.encode([speech])[0].shape == (200, 3)
    assert load_model(model) is model
    flags = ("--tokens", "--frame-shift", "--sample-rate")
    for missing, flag in zip(options, flags, strict=True):
        some = {name: value for name, value in options.items() if name != missing}
        with pytest.raises(ModelError, match=flag):
            load_model(energies, **some)
    with pytest.raises(ModelError, match="'my_models:none': cannot be imported"):
        load_model("my_models:none", **options)
