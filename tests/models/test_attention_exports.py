"""Attention models as folders: ONNX exports in six layouts, and Transformers' own."""

import importlib.util
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

if any(
    importlib.util.find_spec(name) is None
    for name in ("torch", "transformers", "onnx", "onnxruntime", "onnx_asr")
):
    pytest.skip("needs transformers, torch, onnx-asr, onnx", allow_module_level=True)

import tiny_attention as tiny
import torch
import transformers
from tiny_nemo import NemoModel
from tiny_whisper import letter_tokenizer, moonshine

from wfstdec import AttentionDecoder, AttentionOptions, Transcriber, load_model
from wfstdec.audio import read_audio
from wfstdec.errors import AudioLengthError, ModelError
from wfstdec.models.loading import family_of
from wfstdec.models.onnx_asr_models import whisper_features
from wfstdec.transcription import CutOptions, Recording

DEMO = "graphs/librispeech_demo/audio/1462-170142-0030.mp3"
MAKERS = {
    "optimum merged": tiny.optimum_whisper,
    "optimum two files": lambda folder: tiny.optimum_whisper(folder, merged=False),
    "sherpa whisper": tiny.sherpa_whisper,
    "nemo canary": tiny.nemo_canary,
    "sherpa canary": tiny.sherpa_canary,
    "sherpa moonshine": tiny.sherpa_moonshine,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each layout, made when it is asked for."""
    base, made = tmp_path_factory.mktemp("exports"), {}

    def folder(layout):
        if layout not in made:
            made[layout] = base / layout.replace(" ", "-")
            MAKERS[layout](made[layout])
        return made[layout]

    return folder


@pytest.fixture(scope="module")
def audio():
    random = np.random.default_rng(0)
    sizes = 16000, 23000
    return [(0.3 * random.standard_normal(n)).astype(np.float32) for n in sizes]


def decoder_of(model, size, **more):
    options = AttentionOptions(beam_size=size, max_tokens_per_s=8)
    return AttentionDecoder(model, options=options, **more)


def greedy(step, prompt, eos, limit, barred=()):
    """Tokens by argmax: `step(labels)` gives logits [V] of what comes next."""
    text, labels = [], list(prompt)
    while len(text) < limit:
        logits = np.array(step(labels), np.float64)
        logits[list(barred)] = -np.inf
        if (token := int(logits.argmax())) == eos:
            return text
        text.append(token)
        labels = [token]
    return text


def merged_step(folder, frames):
    decoder = tiny.session(folder / "decoder_model_merged.onnx")
    names = tiny.past_names("past_key_values")
    width = tiny.WIDTH // tiny.HEADS
    past = [np.zeros((1, tiny.HEADS, 0, width), np.float32)] * len(names)
    used = [False]

    def step(labels):
        given = {"input_ids": np.array([labels]), "encoder_hidden_states": frames[None]}
        given |= dict(zip(names, past, strict=True), use_cache_branch=np.array(used))
        logits, *new = decoder.run(None, given)
        for i, name in enumerate(names):
            if ".decoder." in name or not used[0]:
                past[i] = new[i]
        used[0] = True
        return logits[0, -1]

    return step


def pair_step(folder, frames):
    first = tiny.session(folder / "decoder_model.onnx")
    later = tiny.session(folder / "decoder_with_past_model.onnx")
    past = []

    def step(labels):
        given = {"input_ids": np.array([labels])}
        if past:
            given |= dict(zip(tiny.past_names("past_key_values"), past, strict=True))
            logits, *past[:] = later.run(None, given)
        else:
            given["encoder_hidden_states"] = frames[None]
            logits, *past[:] = first.run(None, given)
        return logits[0, -1]

    return step


def sherpa_whisper_step(folder, frames):
    decoder = tiny.session(folder / "tiny-decoder.onnx")
    shape = tiny.LAYERS, 1, tiny.POSITIONS, tiny.WIDTH
    own = [np.zeros(shape, np.float32)] * 2
    sizes = len(frames), 2, tiny.LAYERS, tiny.WIDTH
    keys, values = frames.reshape(sizes).transpose(1, 2, 0, 3)[:, :, None]
    names = [one.name for one in decoder.get_inputs()]
    done = [0]

    def step(labels):
        given = [np.array([labels]), *own, keys, values, np.array(done)]
        logits, *own[:] = decoder.run(None, dict(zip(names, given, strict=True)))
        done[0] += len(labels)
        return logits[0, -1]

    return step


def nemo_canary_step(folder, frames):
    decoder = tiny.session(folder / "decoder-model.onnx")
    mems = [np.zeros((3, 1, 0, frames.shape[1]), np.float32)]
    mask = np.ones((1, len(frames)), np.int64)

    def step(labels):
        given = {"input_ids": np.array([labels]), "encoder_embeddings": frames[None]}
        given |= {"encoder_mask": mask, "decoder_mems": mems[0]}
        logits, mems[0] = decoder.run(None, given)
        return logits[0, -1]

    return step


def sherpa_canary_step(folder, frames):
    decoder = tiny.session(folder / "decoder.onnx")
    names = [one.name for one in decoder.get_inputs()]
    mems = [np.zeros((1, 0, frames.shape[1]), np.float32)] * 3
    mask = np.ones((1, len(frames)), bool)

    def step(labels):
        for label in labels:
            ids = np.array([[label, mems[0].shape[1]]], np.int32)
            given = [ids, *mems, frames[None], mask]
            logits, *mems[:] = decoder.run(None, dict(zip(names, given, strict=True)))
        return logits[0, -1]

    return step


def sherpa_moonshine_step(folder, frames):
    first = tiny.session(folder / "uncached_decode.onnx")
    later = tiny.session(folder / "cached_decode.onnx")
    states, count = [], [0]

    def step(labels):
        count[0] += 1
        decoder = later if states else first
        names = [one.name for one in decoder.get_inputs()]
        given = [np.array([labels], np.int32), frames[None], np.array(count, np.int32)]
        given = dict(zip(names, [*given, *states], strict=True))
        logits, *states[:] = decoder.run(None, given)
        return logits[0, -1]

    return step


STEPS = {
    "optimum merged": merged_step,
    "optimum two files": pair_step,
    "sherpa whisper": sherpa_whisper_step,
    "nemo canary": nemo_canary_step,
    "sherpa canary": sherpa_canary_step,
    "sherpa moonshine": sherpa_moonshine_step,
}


def ids_of(*names):
    ids = tiny.byte_tokenizer().get_vocab()
    return [ids[name] for name in names]


PROMPTS = {
    "whisper": ids_of(
        *("<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")
    ),
    "canary": [tiny.CANARY.index(name) for name in tiny.CANARY[1:5]]
    + [tiny.CANARY.index(name) for name in ("<|en|>", *tiny.CANARY[6:10])],
    "moonshine": [1],
}


@pytest.mark.parametrize("layout", MAKERS)
def test_greedy_search_equals_an_argmax_loop_over_the_sessions(layout, folders, audio):
    model = load_model(folders(layout))
    kind = next(one for one in PROMPTS if one in layout.replace("optimum", "whisper"))
    prompt = PROMPTS[kind]
    if layout == "nemo canary":
        prompt = [tiny.CANARY.index("\u2581"), *prompt]
    assert list(model.net.prompt) == prompt
    eos = {"whisper": ids_of("<|endoftext|>")[0], "moonshine": 2}.get(kind, 10)
    barred = []
    if kind == "whisper":
        barred = [1, 5, *ids_of(*tiny.MARKS[1:])]
    if layout == "sherpa whisper":  # its metadata leave timestamps alone
        barred = [1, 5, *ids_of(*tiny.MARKS[1:10])]
    rows = model.encode(audio)
    shift = model.spec.frame_shift_s
    for one, samples, text in zip(
        rows, audio, decoder_of(model, 1).texts(rows), strict=True
    ):
        num_frames = len(one)
        if kind == "whisper":
            assert one.shape[0] == 1500
            num_frames, one = int(one[:, -1].sum()), np.ascontiguousarray(one[:, :-1])
            assert num_frames == -(-len(samples) // 320)
        limit = int(np.ceil(8 * num_frames * shift)) + 5
        step = STEPS[layout](folders(layout), one)
        assert list(text[0].token_ids) == greedy(step, prompt, eos, limit, barred)


def same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert [t.token_ids for t in one] == [t.token_ids for t in other]
        totals = [t.total_cost for t in other]
        assert [t.total_cost for t in one] == pytest.approx(totals, abs=2e-3)


def whisper_pair():
    extractor = transformers.WhisperFeatureExtractor(80)
    parts = {"feature_extractor": extractor, "tokenizer": tiny.byte_tokenizer()}
    return tiny.whisper(), SimpleNamespace(**parts)


@pytest.mark.parametrize("layout", ["optimum merged", "optimum two files"])
def test_whisper_exports_equal_the_model_of_transformers(layout, folders, audio):
    model, theirs = load_model(folders(layout)), load_model(whisper_pair())
    assert model.spec == theirs.spec
    rows = model.encode(audio)
    same(
        decoder_of(model, 5, batch_size=3).texts(rows),
        decoder_of(theirs, 5).texts(theirs.encode(audio)),
    )
    together = decoder_of(model, 5, batch_size=3).texts(rows)
    same([decoder_of(model, 5).texts([one])[0] for one in rows], together)


def test_whispers_of_both_toolkits_are_equal_where_they_bar_the_same(folders, audio):
    models = [load_model(folders(one)) for one in ("optimum merged", "sherpa whisper")]
    names, theirs = (one.net.tokens for one in models)
    assert names[:289] == theirs[:289] and names[-3:] == theirs[-3:]
    models[1].net.suppressed = models[0].net.suppressed
    same(*(decoder_of(one, 5).texts(one.encode(audio)) for one in models))


@pytest.mark.parametrize("layout", ["nemo canary", "sherpa canary"])
def test_canary_exports_equal_the_decoder_in_torch(layout, folders, audio):
    model = load_model(folders(layout))
    parts = tiny.canary()
    theirs = NemoModel(
        parts[:3],
        model.net.tokens,
        eos=10,
        prompt=model.net.prompt,
        neutral=model.net.neutral,
        max_tokens=20,
    )
    rows = model.encode(audio)
    expected = decoder_of(theirs, 5, frame_shift_s=0.08).texts(rows)
    same(decoder_of(model, 5).texts(rows), expected)
    same(decoder_of(model, 5, batch_size=3).texts(rows), expected)


def test_nemos_features_reach_the_encoder_normalised(folders, audio):
    rows = [load_model(folders(one)).encode(audio) for one in MAKERS if "canary" in one]
    for one, other in zip(*rows, strict=True):
        assert np.allclose(one, other, atol=1e-6)
    size = -(-(len(audio[0]) // 160 + 1) // tiny.STRIDE)
    assert abs(len(rows[0][0]) - size) <= 1


@pytest.mark.parametrize("bins", [80, 128])
def test_features_are_those_of_whisper(bins, audio):
    extractor = transformers.WhisperFeatureExtractor(bins)
    features = whisper_features(bins, 1)
    for samples in (*audio, np.zeros(8000, np.float32)):
        inputs = extractor(samples, sampling_rate=16000, return_tensors="np")
        (found,) = features(samples)
        assert np.abs(found - inputs.input_features[0]).max() < 1e-4


def test_a_recording_becomes_words_with_times_within_it(folders):
    pytest.importorskip("soundfile")
    model = load_model(folders("optimum merged"))
    audio = read_audio(DEMO, 16000)
    decoder = decoder_of(model, 5)
    (hyp,) = decoder.decode(model.encode([audio.waveform]))
    text = tiny.byte_tokenizer().decode(list(hyp.token_ids))
    assert hyp.text == " ".join(filter(None, (w.strip() for w in text.split(" "))))
    assert "na\u00efve" in hyp.text and "\u0120" not in hyp.text
    seconds = len(audio.waveform) / 16000
    assert hyp.words[-1].end_s == pytest.approx(seconds, abs=0.02)
    assert hyp.num_frames == -(-len(audio.waveform) // 320)
    with pytest.raises(AudioLengthError, match=r"31\.00 s of audio, expected at most"):
        model.encode([np.zeros(31 * 16000, np.float32)])
    assert decoder.decode(model.encode([np.zeros(0, np.float32)]))[0].text == ""


def test_bytes_of_pieces_and_pieces_of_languages_are_text(folders):
    model = load_model(folders("sherpa moonshine"))
    reader = decoder_of(model, 1)._reader(None).cutter
    spell, names = reader._spelling.text, tiny.MOONSHINE
    at = [names.index(name) for name in ("\u2581e", "<0xC3>", "<0xA9>", "b")]
    assert spell(at) == "e\u00e9b" and spell(at[:2]) == "e\ufffd"
    model = load_model(folders("nemo canary"))
    assert model.net.tokens[-2:] == ("\u2581a<16>", "b<17>")
    spelling = decoder_of(model, 1)._reader(None).cutter._spelling
    assert spelling.text([16, 17]) == "ab" and spelling.begins[16]


def test_phrases_are_cut_by_the_tokenizer_of_the_folder(folders, audio):
    model = load_model(folders("optimum merged"))
    decoder = decoder_of(model, 3)
    names, cut = decoder.tokens.names, tiny.byte_tokenizer().tokenize
    boosts = decoder.phrase_compiler().compile({"linen": 3.0})
    for text in (" linen", " Linen"):
        assert boosts.total([names.index(one) for one in cut(text)]) < 0
    rows = model.encode(audio[:1])
    (plain,), (boosted,) = decoder.decode(rows), decoder.decode(rows, boosts=boosts)
    assert "linen" in boosted.text and "linen" not in plain.text
    # The two Canaries and Moonshine have pieces, cut by as few as can be.
    other = decoder_of(load_model(folders("nemo canary")), 3)
    assert other.phrase_compiler().compile(["ab"]).total([12, 13]) < 0


def test_languages(folders):
    names = load_model(folders("optimum merged"), language="de").net.prompt
    assert names[1] == ids_of("<|de|>")[0]
    prompt = load_model(folders("nemo canary"), language="de").net.prompt
    assert prompt[4:6] == (5, 5)
    with pytest.raises(ModelError, match="no token '<|xx|>'"):
        load_model(folders("sherpa whisper"), language="xx")


def test_folders_of_transformers(tmp_path, audio):
    model, processor = whisper_pair()
    marks = dict.fromkeys(("eos_token", "unk_token", "bos_token"), tiny.MARKS[0])
    inner = processor.tokenizer.backend_tokenizer
    tokenizer = transformers.WhisperTokenizer(tokenizer_object=inner, **marks)
    processor = transformers.WhisperProcessor(processor.feature_extractor, tokenizer)
    processor.save_pretrained(tmp_path / "whisper")
    model.save_pretrained(tmp_path / "whisper")
    torch.manual_seed(0)
    sounds, _ = moonshine(2)
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False)
    processor = transformers.Wav2Vec2Processor(extractor, letter_tokenizer())
    processor.save_pretrained(tmp_path / "moonshine")
    sounds.save_pretrained(tmp_path / "moonshine")
    pairs = {"whisper": whisper_pair(), "moonshine": (sounds, processor)}
    for name, pair in pairs.items():
        assert family_of(tmp_path / name) == family_of(pair) == "attention"
        ours = load_model(tmp_path / name, kind="transformers-attention")
        theirs = load_model(pair)
        assert ours.spec.family == "attention"
        assert (ours.spec.window_s == 30) == (name == "whisper")
        rows = ours.encode(audio)
        assert [one.shape[1] for one in rows] == [ours.spec.frame_dim] * 2
        expected = decoder_of(theirs, 3).texts(theirs.encode(audio))
        same(decoder_of(ours, 3).texts(rows), expected)


@pytest.mark.parametrize(
    "layout, gone, message",
    [
        ("optimum merged", "encoder_model.onnx", "expected a file of encoder"),
        ("optimum two files", "decoder_model.onnx", "expected a file of decoder"),
        ("optimum two files", "decoder_with_past_model.onnx", "expected caches"),
        ("sherpa whisper", "tiny-encoder.onnx", "expected a file of encoder"),
        ("nemo canary", "decoder-model.onnx", "expected a file of decoder"),
        ("sherpa moonshine", "preprocess.onnx", "expected a file of preprocess"),
        ("sherpa moonshine", "cached_decode.onnx", "expected a file of cached_decode"),
        ("sherpa canary", "tokens.txt", "found no tokens"),
    ],
)
def test_a_file_that_is_missing_is_named(layout, gone, message, folders, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(folders(layout), folder)
    (folder / gone).unlink()
    with pytest.raises(ModelError, match=message):
        load_model(folder)


def test_files_are_found_as_hubs_have_them(folders, tmp_path, audio):
    """In `onnx/`, with others of lower precision; a file by name chooses its kind."""
    folder = tmp_path / "hub"
    shutil.copytree(folders("optimum merged"), folder)
    (folder / "onnx").mkdir()
    for file in folder.glob("*.onnx"):
        shutil.copy(file, folder / "onnx" / f"{file.stem}_int8.onnx")
        shutil.copy(file, folder / "onnx" / f"{file.stem}_quantized.onnx")
        file.rename(folder / "onnx" / file.name)
    model = load_model(folder, kind="onnx-attention")
    assert family_of(folder) == "attention" and len(model.spec.tokens) == 300
    lower = load_model(folder / "onnx" / "encoder_model_int8.onnx")
    assert lower.spec == model.spec
    same(*(decoder_of(one, 2).texts(one.encode(audio)) for one in (model, lower)))


def test_kinds(folders, tmp_path):
    assert load_model(folders("nemo canary"), kind="nemo-attention")
    with pytest.raises(ModelError, match="nemo-attention is a folder with"):
        load_model(folders("sherpa canary"), kind="nemo-attention")
    for layout in MAKERS:
        assert family_of(folders(layout)) == "attention"
    (tmp_path / "whisper-base_beamsearch.onnx").touch()
    for path in (tmp_path, tmp_path / "whisper-base_beamsearch.onnx"):
        assert family_of(path) == "attention"
        with pytest.raises(ModelError, match="gives texts, no log-probs"):
            load_model(path)


def test_whisper_of_english_alone(folders, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(folders("optimum merged"), folder)
    path = folder / "generation_config.json"
    known = json.loads(path.read_text()) | {"is_multilingual": False}
    path.write_text(json.dumps(known))
    prompt = load_model(folder).net.prompt
    assert list(prompt) == ids_of("<|startoftranscript|>", "<|notimestamps|>")
    with pytest.raises(ModelError, match="of an English-only Whisper"):
        load_model(folder, language="de")


def test_long_audio_is_cut_at_pauses_and_streams_have_finals(folders):
    model = load_model(folders("nemo canary"))
    decoder = AttentionDecoder(model, options=AttentionOptions(beam_size=2))
    random = np.random.default_rng(3)
    parts = [
        (level * random.standard_normal(round(16000 * seconds))).astype(np.float32)
        for seconds in (9.0, 10.0, 7.0)
        for level in (0.1, 0.0)
    ]
    parts[1::2] = [one[:12800] for one in parts[1::2]]  # pauses of 0.8 s
    waveform = np.concatenate(parts[:-1])
    transcriber = Transcriber(model, decoder, cuts=CutOptions(whole_s=5.0), workers=1)
    [found] = transcriber.run([Recording("long", waveform)])
    starts = [start for start, _ in found.pieces]
    assert [0.08 * start for start in starts] == pytest.approx([0, 9.4, 20.2], abs=0.4)
    size = round(0.08 * 16000)
    for start, end, (_, [hyp]) in zip(
        starts, [*starts[1:], 10**6], found.pieces, strict=True
    ):
        frames = model.encode([waveform[start * size : end * size]])
        assert decoder.decode(frames) == [hyp]
    stream, finals = transcriber.stream(), []
    for chunk in np.array_split(waveform, 40):
        finals += stream.send(chunk)
    finals += stream.finish()
    assert len(finals) >= 3 and all(one.hypothesis.num_frames for one in finals)
