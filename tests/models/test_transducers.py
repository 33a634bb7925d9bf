"""Transducers from audio: layouts of NeMo, onnx-asr, sherpa-onnx and icefall."""

import shlex
import shutil

import numpy as np
import pytest
import tiny_models
import tiny_transducers as tiny
from spoken import write_wav

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

import wfstdec  # noqa: E402
from wfstdec import Transcriber, TransducerDecoder, TransducerOptions, load_model  # noqa: E402
from wfstdec.audio.reading import read_audio  # noqa: E402
from wfstdec.cli.main import main  # noqa: E402
from wfstdec.compare import load_comparison  # noqa: E402
from wfstdec.errors import ModelError, OptionError, ShapeError  # noqa: E402
from wfstdec.models import StreamingEncoder  # noqa: E402
from wfstdec.transcription import CutOptions  # noqa: E402

RATE = 16000
KINDS = pytest.mark.parametrize("num_durations", [0, 5], ids=["rnnt", "tdt"])


@pytest.fixture(scope="module")
def recordings():
    """Noise with an envelope: of 0.05 to 6 s."""
    random = np.random.default_rng(1)
    sizes = [800, 1600, *random.integers(2000, 96000, 28)]
    return [
        (np.abs(np.sin(np.arange(n) / 3000)) * 0.2 * random.standard_normal(n)).astype(
            np.float32
        )
        for n in sizes
    ]


def greedy_of(model, **options):
    options = TransducerOptions(strategy="greedy", **options)
    return TransducerDecoder(model, options=options)


def onnx_asr_model(kind, folder):
    """A model of onnx-asr, whose own search is `_decoding`."""
    pytest.importorskip("onnx_asr")
    from onnx_asr.loader import Manager, create_asr_resolver
    from onnxruntime import SessionOptions

    manager = Manager(SessionOptions(), ["CPUExecutionProvider"])
    if kind == "zipformer":
        from onnx_asr.models.kaldi import KaldiTransducer

        files = {p: folder / f"{p}.onnx" for p in ("encoder", "decoder", "joiner")}
        files["vocab"] = folder / "tokens.txt"
        how = manager._create_preprocessor, manager.default_onnx_config
        return KaldiTransducer(files, *how)
    resolver = create_asr_resolver(kind, folder)
    files = resolver.resolve_model(quantization=None)
    how = manager._create_preprocessor, manager.default_onnx_config
    return resolver.model_type(files, *how)


def tokens_by(peer, waveform):
    padded = np.pad(waveform, (0, max(0, RATE // 10 - len(waveform))))
    features = peer._preprocessor(padded[None], np.array([len(padded)]))
    ((tokens, frames, _),) = peer._decoding(*peer._encode(*features))
    return tuple(map(int, tokens)), tuple(map(int, frames))


@KINDS
def test_both_layouts_of_nemo_give_the_tokens_of_onnx_asr(
    tmp_path, recordings, num_durations
):
    """Greedy tokens and their frames; a token in a padded frame is cut off again."""
    folder = tiny.nemo_folder(tmp_path / "nemo", num_durations)
    models = [load_model(folder)]
    models.append(load_model(tiny.sherpa_folder(tmp_path / "sherpa", num_durations)))
    for model in models:
        spec = model.spec
        assert (spec.family, spec.frame_shift_s, spec.sample_rate) == (
            *("transducer", 0.08, RATE),
        )
        assert model.net.durations == tuple(range(num_durations))
        assert model.net.max_symbols == 10
    found = [greedy_of(m).decode(m.encode(recordings)) for m in models]
    assert found[0] == found[1]
    assert sum(len(hyp.tokens) for hyp in found[0]) > 100
    kind = f"nemo-conformer-{'tdt' if num_durations else 'rnnt'}"
    peer = onnx_asr_model(kind, folder)
    for waveform, hyp in zip(recordings[1:], found[0][1:], strict=True):
        assert (hyp.token_ids, hyp.token_frames[0]) == tokens_by(peer, waveform)


def test_icefalls_stateless_decoder_gives_the_tokens_of_onnx_asr(tmp_path, recordings):
    folder = tiny.zipformer_folder(tmp_path)
    model = load_model(folder)
    assert (model.spec.frame_shift_s, model.net.max_symbols) == (0.04, 1)
    hyps = greedy_of(model, max_symbols=1).decode(model.encode(recordings[1:]))
    peer = onnx_asr_model("zipformer", folder)
    expected = [tokens_by(peer, waveform) for waveform in recordings[1:]]
    found = [(h.token_ids, h.token_frames[0]) for h in hyps]
    # Features of two libraries differ by 2e-4.
    assert sum(a == b for a, b in zip(found, expected, strict=True)) >= len(found) - 1


def features_of_sherpa_onnx(waveform):
    """What sherpa-onnx 2.0.1 computes for NeMo's models: not what NeMo does."""
    knf = pytest.importorskip("kaldi_native_fbank")
    options = knf.FbankOptions()
    frames, mels = options.frame_opts, options.mel_opts
    frames.dither, frames.snip_edges, frames.remove_dc_offset = 0, False, False
    mels.num_bins, mels.low_freq, mels.high_freq = tiny.FEATURES, 0, -400
    mels.is_librosa = True
    fbank = knf.OnlineFbank(options)
    fbank.accept_waveform(RATE, waveform)
    fbank.input_finished()
    rows = np.stack([fbank.get_frame(i) for i in range(fbank.num_frames_ready)])
    return ((rows - rows.mean(0)) / (rows.std(0) + 1e-5)).astype(np.float32)


@KINDS
def test_tokens_of_sherpa_onnx_on_its_features(tmp_path, recordings, num_durations):
    sherpa = pytest.importorskip("sherpa_onnx")
    folder = tiny.sherpa_folder(tmp_path, num_durations)
    names = {p: str(folder / f"{p}.onnx") for p in ("encoder", "decoder", "joiner")}
    recognizer = sherpa.OfflineRecognizer.from_transducer(
        tokens=str(folder / "tokens.txt"),
        model_type="nemo_transducer",
        feature_dim=tiny.FEATURES,
        **names,
    )
    options = TransducerOptions(
        strategy="greedy", max_symbols=5 if num_durations else 10
    )
    net = load_model(folder).net
    decoder = TransducerDecoder(net, options=options, input="features")
    same, short = 0, [one for one in recordings[1:] if len(one) < 3 * RATE]
    for waveform in short:
        stream = recognizer.create_stream()
        stream.accept_waveform(RATE, waveform)
        recognizer.decode_stream(stream)
        [hyp] = decoder.decode([features_of_sherpa_onnx(waveform)])
        names = [decoder.tokens.names[i].replace("\u2581", " ") for i in hyp.token_ids]
        same += names == list(stream.result.tokens)
    # Random nets have close calls, and features differ in their last bits.
    assert same >= 0.8 * len(short) > 8


@KINDS
def test_beams_of_both_layouts_agree(tmp_path, recordings, num_durations):
    models = [
        load_model(tiny.nemo_folder(tmp_path / "nemo", num_durations)),
        load_model(tiny.sherpa_folder(tmp_path / "sherpa", num_durations)),
    ]
    for strategy in ("alsd", "aes"):
        options = TransducerOptions(strategy=strategy, beam_size=3, max_symbols=3)
        boosts = {"w0w1": 2.0, "w3": 1.0}
        found = [
            TransducerDecoder(m, options=options).decode_nbest(
                m.encode(recordings[:8]), boosts=boosts
            )
            for m in models
        ]
        for hyps, others in zip(*found, strict=True):
            assert [h.text for h in hyps] == [h.text for h in others]
            costs = [h.total_cost for h in others]
            assert [h.total_cost for h in hyps] == pytest.approx(costs, abs=1e-4)


def test_what_a_folder_may_lack(tmp_path):
    folder = tiny.nemo_folder(tmp_path / "nemo", 5, config=False)
    model = load_model(folder)  # the joiner has as many outputs as a TDT's
    assert model.net.durations == (0, 1, 2, 3, 4) and model.spec.frame_shift_s == 0.08
    (folder / "encoder-model.onnx").rename(tmp_path / "encoder-model.onnx")
    with pytest.raises(ModelError, match="found decoder_joint-model.*file of encoder"):
        load_model(folder)
    sherpa = tiny.sherpa_folder(tmp_path / "sherpa")
    (sherpa / "decoder.onnx").unlink()
    with pytest.raises(ModelError, match="encoder.onnx, joiner.onnx, .* of decoder"):
        load_model(sherpa)
    zipformer = tiny.zipformer_folder(tmp_path / "zip")
    tiny.write_vocabulary(zipformer / "tokens.txt", ["<blk>", *tiny.PIECES, "more"])
    with pytest.raises(ShapeError, match="joiner gives 11 outputs, expected 12: V=11"):
        load_model(zipformer)
    with pytest.raises(OptionError, match="head='rnnt', expected one of ctc, trans"):
        load_model(zipformer, head="rnnt")


def test_names_with_epochs_and_quantised_files(tmp_path, recordings):
    folder = tiny.zipformer_folder(tmp_path, name="{}-epoch-99-avg-1.onnx")
    plain = load_model(folder)
    for part in ("encoder", "decoder", "joiner"):
        name = f"{part}-epoch-99-avg-1"
        shutil.copy(folder / f"{name}.onnx", folder / f"{name}.int8.onnx")
    assert load_model(folder).spec == plain.spec
    named = load_model(folder / "encoder-epoch-99-avg-1.int8.onnx")
    for one, other in zip(
        plain.encode(recordings[:3]), named.encode(recordings[:3]), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    shutil.copy(
        folder / "encoder-epoch-99-avg-1.onnx", folder / "encoder-epoch-9-avg-1.onnx"
    )
    with pytest.raises(ModelError, match=r"encoder-epoch-9-.*, expected one encoder"):
        load_model(folder)


def test_hybrids_have_two_heads(tmp_path):
    pytest.importorskip("onnx_asr")
    folder = tiny.nemo_folder(tmp_path, 5)
    assert load_model(folder).spec.family == "transducer"
    with pytest.raises(ModelError, match="unknown kind"):
        load_model(folder, head="ctc")
    (tmp_path / "ctc").mkdir()
    ctc = tiny_models.nemo_folder(tmp_path / "ctc")
    shutil.copy(ctc / "model.onnx", folder / "model.onnx")
    names = [*tiny.PIECES[:6], "<blk>"]
    tiny.write_vocabulary(folder / "vocab.txt", names)
    (folder / "config.json").unlink()
    assert load_model(folder, head="ctc").spec.family == "ctc"


@pytest.mark.parametrize("layout", ["zipformer2", "nemo"])
def test_streaming_encoders_stream(tmp_path, recordings, layout):
    """Chunks of any size give the frames, and the words, of the whole."""
    if layout == "nemo":
        tiny.sherpa_folder(tmp_path, 5)
        tiny_models.nemo_streaming_model(
            tmp_path / "encoder.onnx", tiny.D, "outputs", pred_hidden=tiny.H
        )
    else:
        tiny.zipformer_folder(tmp_path)
        tiny_models.zipformer2_model(tmp_path / "encoder.onnx", tiny.D, "encoder_out")
    model = load_model(tmp_path)
    assert isinstance(model, StreamingEncoder) and model.spec.frame_dim == tiny.D
    whole = model.encode(recordings[:6])
    random = np.random.default_rng(4)
    for frames, rows in zip(
        tiny_models.in_any_chunks(model, recordings[:6], random), whole, strict=True
    ):
        np.testing.assert_allclose(frames, rows, atol=1e-6)
    options = TransducerOptions(beam_size=2, max_symbols=1)
    decoder = TransducerDecoder(model, options=options)
    expected = decoder.decode(whole)
    assert any(hyp.text for hyp in expected)
    transcriber = Transcriber(model, decoder, cuts=CutOptions(whole_s=60))
    for waveform, hyp in zip(recordings[:6], expected, strict=True):
        stream = transcriber.stream()
        finals = []
        for chunk in np.array_split(waveform, 7):
            finals += stream.send(chunk)
            _ = stream.partial.text
        finals += stream.finish()
        assert " ".join(f.hypothesis.text for f in finals if f.hypothesis.words) == (
            hyp.text
        )


@KINDS
def test_long_recordings_are_cut_and_transcribed(tmp_path, num_durations):
    model = load_model(tiny.nemo_folder(tmp_path, num_durations))
    options = TransducerOptions(beam_size=2, max_symbols=1)
    decoder = TransducerDecoder(model, options=options)
    random = np.random.default_rng(2)
    waveform = (0.1 * random.standard_normal(60 * RATE)).astype(np.float32)
    cuts = CutOptions(window_s=4.0, whole_s=10.0)
    [found] = Transcriber(model, decoder, cuts=cuts, workers=1).run(
        [wfstdec.transcription.Recording("long", waveform)]
    )
    assert len(found.pieces) >= 3
    starts = [start for start, _ in found.pieces]
    for start, end, (_, [hyp]) in zip(
        starts, [*starts[1:], 10**9], found.pieces, strict=False
    ):
        size = round(0.08 * RATE)
        [frames] = model.encode([waveform[start * size : end * size]])
        assert decoder.decode([frames]) == [hyp]
    assert found.hypothesis.num_frames == pytest.approx(60 / 0.08, abs=2)


def test_decoders_of_another_family_are_refused(tmp_path):
    model = load_model(tiny.nemo_folder(tmp_path))
    decoder = wfstdec.GreedyDecoder(tokens=model.spec.tokens, frame_shift_s=0.08)
    with pytest.raises(OptionError, match="GreedyDecoder for .* family 'transducer'"):
        Transcriber(model, decoder)


@pytest.mark.parametrize("num_durations", [None, 5], ids=["stateless", "tdt"])
def test_compare_and_tune_from_audio(tmp_path, recordings, num_durations, capsys):
    """The texts of the family's decoder; the command that tune prints transcribes."""
    folder = (
        tiny.zipformer_folder(tmp_path / "model")
        if num_durations is None
        else tiny.nemo_folder(tmp_path / "model", num_durations)
    )
    (tmp_path / "in").mkdir()
    names = [f"utt{i}" for i in range(4)]
    for name, waveform in zip(names, recordings[2:], strict=False):
        write_wav(tmp_path / f"in/{name}.wav", waveform)
    model = load_model(folder)
    most = model.net.max_symbols or TransducerOptions.max_symbols
    options = TransducerOptions(beam_size=3, max_symbols=most)
    audio = [read_audio(tmp_path / f"in/{n}.wav", RATE).waveform for n in names]
    decoder = TransducerDecoder(model, options=options)
    texts = [h.text or "nothing" for h in decoder.decode(model.encode(audio))]
    lines = zip(names, texts, strict=True)
    (tmp_path / "ref.txt").write_text("".join(f"{n} {t}\n" for n, t in lines))
    given = ["--audio", f"{tmp_path}/in", "--model", str(folder)]
    given += ["--ref", f"{tmp_path}/ref.txt", "--transducer", "beam_size=3"]
    more = ["--repeats", "1", "--json", f"{tmp_path}/c.json"]
    assert main(["compare", *given, *more]) == 0
    [point] = load_comparison(tmp_path / "c.json").points
    assert point.wer == 0 and point.setting == {"beam_size": 3}
    capsys.readouterr()
    assert main(["tune", *given, "--max-trials", "2", "--quiet"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert "%WER 0" in line or line.startswith("wfstdec transcribe ")
    assert main(shlex.split(line)[1:]) == 0
    found = [one.split(" ", 1)[-1] for one in capsys.readouterr().out.splitlines()]
    assert found == [text.replace("nothing", "") for text in texts]
