"""Audio to words: pieces and joins against the model and the decoder called bare."""

import dataclasses
import importlib.util
import io
import itertools
import threading
import time

import made_hypotheses
import numpy as np
import pytest
from cli_files import small_decoder, write_files
from spoken import FRAME, RATE, SpokenEncoder, SpokenStream, speech, spoken, write_wav
from wav_files import wav_bytes

import wfstdec
from wfstdec import token_table
from wfstdec.batch import LatticeReading
from wfstdec.errors import (
    AudioError,
    FormatError,
    LatticeError,
    ModelError,
    OptionError,
)
from wfstdec.io import Restart
from wfstdec.lattice import LatticeWriter
from wfstdec.search.hypothesis import Word
from wfstdec.transcription import (
    CutOptions,
    Recording,
    find_recordings,
    transcribe_files,
)
from wfstdec.transcription.encoding import Encoded, Encoding
from wfstdec.transcription.pieces import join_nbest

needs_soundfile = pytest.mark.skipif(
    importlib.util.find_spec("soundfile") is None, reason="needs soundfile"
)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    return small_decoder(write_files(tmp_path_factory.mktemp("small")))


def bits(hypothesis):
    return hypothesis.__getstate__() | {"_make": None}


def texts(parts):
    return " ".join(part for part in parts if part)


def no_threads_left():
    for _ in range(100):
        if not [t for t in threading.enumerate() if t.name.startswith("wfstdec-")]:
            return True
        time.sleep(0.02)
    return False


@needs_soundfile
def test_short_audio_is_the_decoders_words_of_the_models_logprobs(decoder, tmp_path):
    model = SpokenEncoder()
    transcriber = wfstdec.Transcriber(model, decoder, workers=2)
    spoken_ones = [speech(seconds, seed) for seed, seconds in enumerate((1, 3, 8, 2))]
    [*expected] = decoder.decode(model.encode([sound for _, sound in spoken_ones]))
    assert [one.text for one in expected] == [texts(words) for words, _ in spoken_ones]
    recordings = [Recording(str(i), sound) for i, (_, sound) in enumerate(spoken_ones)]
    found = list(transcriber.run(recordings))
    assert [one.name for one in found] == ["0", "1", "2", "3"]
    for one, hypothesis, (_, sound) in zip(found, expected, spoken_ones, strict=True):
        assert bits(one.hypothesis) == bits(hypothesis)
        assert one.audio_s == len(sound) / RATE
    path = write_wav(tmp_path / "a.wav", spoken_ones[1][1])
    for audio in (path, path.read_bytes(), io.BytesIO(path.read_bytes())):
        assert bits(transcriber(audio)) == bits(expected[1])
    assert transcriber.encode_s > 0 and transcriber.decode_s > 0
    assert no_threads_left()


def test_long_audio_is_cut_in_silences_and_each_piece_encoded_whole(decoder):
    words, sound = speech(150, seed=5)
    model = SpokenEncoder()
    transcriber = wfstdec.Transcriber(model, decoder, workers=2)
    seconds, pieces = [], []
    [found] = transcriber.run(
        [Recording("long", sound)],
        on_audio=seconds.append,
        on_piece=lambda start, hypotheses: pieces.append((start, hypotheses)),
    )
    assert tuple(pieces) == found.pieces
    frames = np.rint(8 * sound.reshape(-1, FRAME)[:, 0]).astype(int)
    starts = [start for start, _ in found.pieces]
    assert len(starts) > 5 and starts[0] == 0
    for start in starts[1:]:
        assert not frames[start - 3 : start + 3].any(), "not in a silence"
    ends = [*starts[1:], len(frames)]
    for (start, [hypothesis]), end in zip(found.pieces, ends, strict=True):
        [rows] = model.encode([sound[start * FRAME : end * FRAME]])
        assert bits(hypothesis) == bits(decoder.decode([rows])[0])
    joined = found.hypothesis
    assert joined.text == texts(words) and joined.num_frames == len(frames)
    assert sum(seconds) == pytest.approx(found.audio_s) == len(sound) / RATE
    [whole] = decoder.decode(model.encode([sound]))
    assert [w[:5] for w in joined.words] == [w[:5] for w in whole.words]
    assert joined.token_frames == whole.token_frames
    assert joined.token_ids == whole.token_ids and joined.reached_final


def test_audio_without_pauses_is_cut_between_words(decoder):
    sound = spoken(["cab", "c", "ab"] * 120)
    transcriber = wfstdec.Transcriber(SpokenEncoder(), decoder, workers=1)
    [found] = transcriber.run([Recording("fast", sound)])
    assert len(found.pieces) > 1
    assert found.hypothesis.text == texts(["cab", "c", "ab"] * 120)


@needs_soundfile
def test_memory_is_bounded_where_nobody_takes_what_is_made(decoder):
    """Of 20 minutes no more is read than windows and pieces under way need."""

    class CountedWords(io.BytesIO):
        most = 0

        def readinto(self, buffer):
            size = super().readinto(buffer)
            self.most = max(self.most, self.tell())
            return size

        def read(self, size=-1):
            data = super().read(size)
            self.most = max(self.most, self.tell())
            return data

    _, sound = speech(120, seed=6)
    file = CountedWords(wav_bytes(np.tile(sound, 10)))
    encoding = Encoding(
        SpokenEncoder(),
        decoder,
        CutOptions(),
        wfstdec.Transcriber(SpokenEncoder(), decoder).audio,
        workers=1,
    )
    parts = encoding.run([Recording("long", file)])
    assert isinstance(next(parts), Encoded)
    before = -1
    while before != file.most:
        before = file.most
        time.sleep(0.3)
    read_s = file.most / 2 / RATE
    assert 20 < read_s < 150, "pieces ahead, windows ahead, and no more"
    parts.close()
    assert no_threads_left()


@needs_soundfile
def test_parts_of_files_and_those_that_are_not_there(decoder, tmp_path):
    _, sound = speech(6, seed=7)
    path = write_wav(tmp_path / "a.wav", sound)
    model = SpokenEncoder()
    transcriber = wfstdec.Transcriber(model, decoder)
    data = path.read_bytes()
    (tmp_path / "cut.wav").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.wav").write_text("no audio")
    same = Recording("part", path, start_s=1.0, duration_s=2.5)
    recordings = [
        same,
        same,
        Recording("missing", tmp_path / "missing.wav"),
        Recording("cut", tmp_path / "cut.wav"),
        Recording("text", tmp_path / "text.wav"),
        Recording("behind", path, start_s=100.0),
        Recording("loud", 3000 * sound),
        Recording("boosts", path, {"ab": float("nan")}),
        Recording("last", path),
    ]
    found = list(transcriber.run(recordings))
    assert [one.name for one in found] == [one.name for one in recordings]
    part = np.rint(sound * 2**15)[RATE : RATE * 7 // 2].astype(np.float32) / 2**15
    [expected] = decoder.decode(model.encode([part]))
    assert bits(found[0].hypothesis) == bits(found[1].hypothesis) == bits(expected)
    errors = {one.name: str(one.error) for one in found[2:-1]}
    assert "missing.wav" in errors["missing"] and "cut short" in errors["cut"]
    assert "no audio from 100 s on" in errors["behind"]
    assert "nan" in errors["boosts"]
    with pytest.raises(AudioError):
        _ = found[2].hypothesis
    assert found[-1].error is None and found[-1].hypothesis.words
    assert no_threads_left()


def test_a_model_that_fails_in_the_middle_fails_its_recording_alone(decoder):
    class Breaks(SpokenEncoder):
        def encode(self, waveforms):
            if any((one > 0.55).any() for one in waveforms):
                raise ModelError("too loud")
            return super().encode(waveforms)

    words, sound = speech(60, seed=8)
    loud = sound.copy()
    loud[40 * RATE] = 0.9
    transcriber = wfstdec.Transcriber(Breaks(), decoder, workers=2)
    sounds = {"a": sound, "b": loud, "c": sound}
    found = list(transcriber.run(itertools.starmap(Recording, sounds.items())))
    assert [one.name for one in found] == ["a", "b", "c"]
    assert found[1].error.message == "too loud" and not found[1].pieces
    assert found[0].hypothesis.text == found[2].hypothesis.text == texts(words)


def test_lattices_of_a_recording_that_failed_do_not_shift_those_of_a_resumed_run(
    decoder, tmp_path, monkeypatch
):
    """Pieces before the fault are in the file, and the journal forgot them."""
    monkeypatch.setattr("wfstdec.transcription.transcriber._BATCH_PARTS", 1)
    sounds = {"bad": speech(60, 1)[1], "good": speech(2, 2)[1], "last": speech(3, 3)[1]}

    class Failing(LatticeReading):
        stops = False

        def __call__(self, utterance, lattice):
            if utterance == "last" and self.stops:
                raise ZeroDivisionError
            if utterance.startswith("bad-") and not utterance.startswith("bad-0000000"):
                raise LatticeError("no words", utterance)
            return super().__call__(utterance, lattice)

    def run(name, stops=False, resume=False):
        Failing.stops = stops
        transcriber = wfstdec.Transcriber(SpokenEncoder(), decoder, lattices=Failing())
        sources = [Recording(*one) for one in sounds.items()]
        transcribe_files(
            *(transcriber, sources, tmp_path / f"{name}.txt"),
            keep=LatticeWriter(tmp_path / f"{name}.lat"),
            restart=Restart(resume=resume),
        )

    run("whole")
    with pytest.raises(ZeroDivisionError):
        run("resumed", stops=True)
    run("resumed", resume=True)
    for ending in ("txt", "lat"):
        found, expected = (tmp_path / f"{n}.{ending}" for n in ("resumed", "whole"))
        assert found.read_bytes() == expected.read_bytes()


def test_ctrl_c_and_closing_leave_no_threads(decoder):
    _, sound = speech(40, seed=9)
    recordings = [Recording(str(i), sound) for i in range(20)]
    transcriber = wfstdec.Transcriber(SpokenEncoder(), decoder, workers=2)
    run = transcriber.run(recordings)
    next(run)
    run.close()
    assert no_threads_left()

    def interrupts(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        list(transcriber.run(recordings, on_audio=interrupts))
    assert caught.tb is not None and no_threads_left()  # though its frames live


def test_a_decoder_of_another_model_is_refused(decoder):
    class Other(SpokenEncoder):
        def __init__(self, **changes):
            super().__init__()
            self.spec = dataclasses.replace(self.spec, **changes)

    tokens = token_table(["<blank>", "<wb>", "a", "x", "c"])
    with pytest.raises(OptionError, match=r"token 3 is 'b' and 'x'"):
        wfstdec.Transcriber(Other(tokens=tokens), decoder)
    tokens = token_table(["<blank>", "<wb>", "a", "b"])
    with pytest.raises(OptionError, match="of 5 tokens for a model of 4"):
        wfstdec.Transcriber(Other(tokens=tokens), decoder)
    with pytest.raises(OptionError, match=r"frame_shift_s=0.02 for a model with 0.04"):
        wfstdec.Transcriber(Other(frame_shift_s=0.04), decoder)


def test_nbest_of_pieces_are_the_best_of_all_products():
    random = np.random.default_rng(1)

    def timed(words, cost):
        spans = [Word(w, i, i + 1, i, i + 1) for i, w in enumerate(words)]
        return made_hypotheses.hypothesis(spans, cost, frame_shift_s=1.0, num_frames=10)

    pieces = []
    for i in range(4):
        costs = sorted(random.random(4) * 10)
        lists = [timed([f"w{i}{j}"], cost) for j, cost in enumerate(costs)]
        pieces.append((10 * i, lists))
    products = itertools.product(*(lists for _, lists in pieces))
    brute = sorted(
        (sum(one.total_cost for one in some), texts(one.text for one in some))
        for some in products
    )
    found = join_nbest(pieces, 7)
    assert [one.text for one in found] == [text for _, text in brute[:7]]
    np.testing.assert_allclose(
        [one.total_cost for one in found], [cost for cost, _ in brute[:7]]
    )
    assert [word.start_frame for word in found[0].words] == [0, 10, 20, 30]
    same = [(0, [timed("a", 1), timed("ab", 2)])]
    same.append((10, [timed("bc", 1), timed("c", 1.5)]))
    assert [one.text for one in join_nbest(same, 4)] == ["a b c", "a c", "a b b c"]


def test_lists_and_lattices_of_a_streaming_encoder_are_searched_again(decoder):
    _, sound = speech(40, seed=10)
    best = wfstdec.Transcriber(SpokenStream(), decoder)(sound)
    transcriber = wfstdec.Transcriber(SpokenStream(), decoder, nbest=True)
    [found] = transcriber.run([Recording("x", sound)])
    assert max(len(lists) for _, lists in found.pieces) > 1
    assert bits(found.hypothesis)["words"] == best.words


def finals_of(transcriber, sound, sizes):
    stream, finals, at = transcriber.stream(), [], 0
    for size in sizes:
        finals += stream.send(sound[at : at + size])
        at += size
    assert at >= len(sound)
    return finals + stream.finish()


@pytest.mark.parametrize("kind", [SpokenEncoder, SpokenStream])
def test_finals_are_the_same_however_the_audio_comes(decoder, kind):
    words, sound = speech(60, seed=11)
    random = np.random.default_rng(2)
    found = []
    for most in (900, 5000, 40000, len(sound)):
        sizes = []
        while sum(sizes) < len(sound):
            sizes.append(int(random.integers(most // 3, most + 1)) if found else most)
        transcriber = wfstdec.Transcriber(kind(), decoder)
        finals = finals_of(transcriber, sound, sizes)
        found.append([(bits(one.hypothesis), one.rule) for one in finals])
    assert found.count(found[0]) == len(found)
    assert len(finals) > 5 and finals[-1].rule is None
    spoken = [word for final in finals for word in final.hypothesis.words]
    assert [word.text for word in spoken] == words
    assert all(a.end_frame <= b.start_frame for a, b in itertools.pairwise(spoken))
    for word in spoken:  # where it was spoken
        sounds = sound[word.start_frame * FRAME : word.end_frame * FRAME : FRAME]
        assert sounds[0] > 0.2 and sounds[-1] > 0.2


def test_finals_of_one_pass_are_those_of_its_rows(decoder):
    _, sound = speech(40, seed=12)
    model = SpokenStream()
    finals = finals_of(
        wfstdec.Transcriber(model, decoder), sound, [RATE] * (len(sound) // RATE + 1)
    )
    assert not model.lengths, "nothing is encoded twice"
    rows, at = np.concatenate(model.rows), 0
    for final in finals:
        end = final.hypothesis.num_frames  # joined: from the start of the stream
        [expected] = decoder.decode([rows[at:end]])
        assert final.hypothesis.text == expected.text
        assert final.hypothesis.total_cost == expected.total_cost
        at = end
    assert at == len(rows)


def test_partials_of_a_stream_grow(decoder):
    stream = wfstdec.Transcriber(SpokenEncoder(), decoder).stream({"cab": 1.0})
    assert stream.send(spoken(["cab", "c"], [2])) == []
    stream.send(spoken(["ab"] * 12, [2]))
    assert stream.partial.text.startswith("cab c")
    stream.close()


def names_of(*places):
    return [source.name for source in find_recordings(places)]


def test_folders_lists_and_manifests_are_found(tmp_path):
    for name in ("b.wav", "a.flac", "deep/c.MP3", "notes.md"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()
    assert names_of(tmp_path / "in") == ["a", "b", "c"]
    (tmp_path / "all.txt").write_text("in/b.wav\n\nin/a.flac\n")
    assert names_of(tmp_path / "all.txt") == ["b", "a"]
    assert find_recordings([tmp_path / "all.txt"])[0].audio == tmp_path / "in/b.wav"
    (tmp_path / "wav.scp").write_text("one in/b.wav\ntwo in/deep/c.MP3\n")
    assert names_of(tmp_path / "wav.scp") == ["one", "two"]
    (tmp_path / "m.jsonl").write_text(
        '{"audio_filepath": "in/b.wav", "duration": 3.0, "text": "x"}\n'
        '{"audio_filepath": "in/b.wav", "offset": 2.5, "duration": 1.5}\n'
        '{"audio_filepath": "in/b.wav", "offset": 0, "duration": 1, "id": "y"}\n'
    )
    found = find_recordings([tmp_path / "m.jsonl"])
    assert [(one.name, one.start_s, one.duration_s) for one in found] == [
        ("b", 0.0, None),
        ("b-0000250", 2.5, 1.5),
        ("y", 0.0, 1.0),
    ]


def test_recordings_of_one_name_get_that_of_their_folder_or_are_refused(tmp_path):
    for name in ("x/1/a.wav", "x/2/a.wav"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert names_of(tmp_path / "x") == ["x-1-a", "x-2-a"]
    with pytest.raises(FormatError, match=r"would both be .*expected different names"):
        names_of(tmp_path / "x", tmp_path / "x/1/a.wav")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="no audio in it"):
        names_of(tmp_path / "empty")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(FormatError, match=r"bad.jsonl:1: .*audio_filepath"):
        names_of(tmp_path / "bad.jsonl")
    (tmp_path / "bad.scp").write_text("a sox x.wav |\n")
    with pytest.raises(FormatError, match="commands are not run"):
        names_of(tmp_path / "bad.scp")
