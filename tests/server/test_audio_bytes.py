"""Bytes of streams: the same samples however they are cut, from every form."""

import io
import threading
import time
import wave

import numpy as np
import pytest
from wav_files import av_bytes, wav_bytes

from wfstdec.audio import read_audio
from wfstdec.errors import AudioError
from wfstdec.server.audio import open_bytes

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("av")

RATE = 16000
TIMES = np.arange(3 * RATE) / RATE
SOUND = (
    0.3 * np.sin(2 * np.pi * (200 + 150 * TIMES) * TIMES)
    + 0.02 * np.random.default_rng(3).standard_normal(len(TIMES))
).astype(np.float32)


def samples_of(audio, data, sizes, step_s=0.7):
    parts, at = [], 0
    for size in sizes:
        audio = audio.give(data[at : at + size], 0.0)
        at += size
        parts.append(audio.take(step_s)[0])
    audio.end()
    deadline = time.monotonic() + 20
    while not audio.is_through:
        assert time.monotonic() < deadline, "the bytes did not come to their end"
        parts.append(audio.take(step_s)[0])
        time.sleep(0.001)
    parts += [audio.take(step_s)[0], audio.rest()]
    audio.close()
    return np.concatenate(parts)


def cuts(size, seed):
    rng = np.random.default_rng(seed)
    if seed == 0:
        return [size]
    most = (0, 300, 20_000)[seed]
    sizes = rng.integers(0, most, 2 * size // most + 20)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), size))]
    return [*sizes.tolist(), size - int(sizes.sum())]


def raw(encoding, rate=RATE, channels=1):
    return open_bytes(encoding, rate, channels, RATE, 10.0, lambda: None)


def container(most_s=10.0):
    return open_bytes(None, RATE, 1, RATE, most_s, lambda: None)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100, 48000])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_are_those_of_a_file_however_they_are_cut(rate, channels):
    sound = np.stack([SOUND, SOUND[::-1]][:channels], axis=1)
    with wave.open(io.BytesIO(file := wav_bytes(sound, rate=rate))) as opened:
        data = opened.readframes(opened.getnframes())
    expected = read_audio(file, RATE).waveform
    for seed in range(3):
        sizes = cuts(len(data), seed)
        for audio, given in (
            (raw("linear16", rate, channels), data),
            (container(), file),
        ):
            some = sizes if given is data else cuts(len(file), seed)
            assert np.array_equal(samples_of(audio, given, some), expected)


@pytest.mark.parametrize(("encoding", "subtype"), [("mulaw", "ULAW"), ("alaw", "ALAW")])
def test_telephone_codes_are_those_of_the_standard(encoding, subtype):
    codes = bytes(range(256))
    expected, _ = soundfile.read(
        io.BytesIO(codes),
        dtype="float32",
        samplerate=RATE,
        channels=1,
        format="RAW",
        subtype=subtype,
    )
    assert np.array_equal(samples_of(raw(encoding), codes, [100, 156]), expected)


def test_a_part_of_a_sample_waits_for_the_rest_of_it():
    audio = raw("linear16", RATE, 2)
    data = np.arange(8, dtype="<i2").tobytes()
    audio.give(data[:5], 1.0)
    assert audio.waiting_s > 0 and audio.waits_since == 1.0
    samples, arrived = audio.take(1.0)
    assert len(samples) == 1 and arrived == 1.0
    assert audio.is_through and len(audio.rest()) == 0
    audio.give(data[5:], 2.0)
    samples, arrived = audio.take(1.0)
    assert arrived == 2.0 and audio.waiting_s == 0
    assert np.array_equal(samples, np.array([2.5, 4.5, 6.5], np.float32) / 2**15)


@pytest.mark.parametrize(
    "subtype",
    ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"],
)
@pytest.mark.parametrize("form", ["WAV", "WAVEX"])
def test_wav_of_all_kinds(form, subtype):
    file = io.BytesIO()
    soundfile.write(file, SOUND, RATE, format=form, subtype=subtype)
    data = file.getvalue()
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    for seed in range(3):
        assert np.array_equal(
            samples_of(container(), data, cuts(len(data), seed)), expected
        )


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_wav_of_a_pipe_goes_on_to_its_end(size):
    data = wav_bytes(SOUND)
    at = data.index(b"data") + 4
    data = data[:at] + size.to_bytes(4, "little") + data[at + 4 :]
    assert len(samples_of(container(), data, [len(data)])) == len(SOUND)


def test_what_follows_the_samples_of_a_wav_is_no_audio():
    data = wav_bytes(SOUND) + b"LIST" + bytes([4, 0, 0, 0]) + b"abcd" * 100
    assert len(samples_of(container(), data, cuts(len(data), 1))) == len(SOUND)


def written(form, subtype=None):
    file = io.BytesIO()
    soundfile.write(file, SOUND, RATE, format=form, subtype=subtype)
    return file.getvalue()


FORMS = {
    "flac": lambda: written("FLAC"),
    "aiff": lambda: written("AIFF"),
    "vorbis": lambda: written("OGG"),
    "opus": lambda: written("OGG", "OPUS"),
    "mp3": lambda: written("MP3"),
    "webm": lambda: av_bytes(SOUND, "webm", "libopus", live="1"),
    "aac": lambda: av_bytes(SOUND, "adts", "aac"),
    "mp4": lambda: av_bytes(SOUND, "mp4", "aac", movflags="frag_keyframe+empty_moov"),
}


@pytest.mark.parametrize("form", FORMS)
def test_containers_are_heard_whole_as_they_come(form):
    """FFmpeg's `nobuffer` lost an MP3's first second."""
    data = FORMS[form]()
    found = [samples_of(container(), data, cuts(len(data), seed)) for seed in range(3)]
    assert all(np.array_equal(one, found[0]) for one in found)
    assert len(SOUND) - RATE // 50 <= len(found[0]) <= len(SOUND) + RATE // 10
    if form in ("flac", "aiff"):
        assert np.array_equal(found[0], read_audio(data, RATE).waveform)
    elif form in ("vorbis", "opus"):
        same = read_audio(data, RATE).waveform[: len(found[0])]
        assert np.corrcoef(found[0][: len(same)], same)[0, 1] > 0.99


def test_a_small_file_of_many_hours_fills_no_memory():
    """The thread waits for room; what it has decoded comes when it is taken."""
    silence = np.zeros(90 * RATE, np.float32)
    file = io.BytesIO()
    soundfile.write(file, silence, RATE, format="OGG", subtype="OPUS")
    data = file.getvalue()
    assert len(data) < len(silence) / 20
    audio = container(most_s=2.0).give(data, 0.0)
    audio.end()
    deadline, most, taken = time.monotonic() + 60, 0, 0
    while not audio.is_through:
        assert time.monotonic() < deadline
        most = max(most, len(audio._samples))
        taken += len(audio.take(1.0)[0])
    assert most < 3.5 * RATE, "2 s, and what one packet has"
    assert abs(taken - len(silence)) < RATE
    audio.close()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"this is no audio", "begins with b'this is no a'"),
        (b"RIFF", "expected the head of an audio file"),
        (b"RIFF\0\0\0\0WAVEdata\0\0\0\0", "before their form"),
        (b"RIFF\0\0\0\0WAVEfmt \x02\0\0\0ab", "a fmt chunk of 2 bytes"),
        (b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\xff", "4294967295 bytes of b'junk'"),
        (wav_bytes(SOUND).replace(b"fmt \x10\0\0\0\x01", b"fmt \x10\0\0\0\x63"), "99"),
        (b"fLaC" + bytes(5000), "FLAC"),
        (b"OggS" + bytes(range(256)) * 20, "Ogg"),
        (b"\x1a\x45\xdf\xa3" + bytes(5000), "WebM"),
        (b"ID3" + b"x" * 5000, "MP3"),
    ],
)
def test_what_is_no_audio_is_an_error(data, match):
    for seed in (0, 1):
        with pytest.raises(AudioError, match=match):
            samples_of(container(), data, cuts(len(data), seed))


def test_an_mp4_with_its_index_at_the_end_is_no_stream():
    # FFmpeg keeps 32 KiB, and seeks in them.
    data = av_bytes(np.tile(SOUND, 5), "mp4", "aac")
    assert data.index(b"moov") > len(data) // 2
    with pytest.raises(AudioError, match="goes by a request with a file"):
        samples_of(container(), data, [len(data)])


def test_audio_cut_short_is_heard_as_far_as_it_goes():
    for form in FORMS:
        data = FORMS[form]()
        found = samples_of(container(), data[: len(data) // 2], [len(data) // 2])
        assert 0.5 * RATE < len(found) < 2.5 * RATE, form


def test_random_bytes_end_as_audio_or_as_an_error():
    rng = np.random.default_rng(0)
    for form in (*FORMS, "wav"):
        data = bytearray(wav_bytes(SOUND) if form == "wav" else FORMS[form]())
        for _ in range(3):
            for at in rng.integers(0, len(data), 60):
                data[at] = rng.integers(256)
            try:
                found = samples_of(container(), bytes(data), [len(data)])
            except AudioError:
                continue
            assert found.dtype == np.float32


def test_closing_at_any_moment_leaves_no_thread():
    data = FORMS["opus"]()
    for size in (4, 12, 100, 2000, len(data)):
        audio = container(most_s=0.2).give(data[:size], 0.0)
        audio.close()
    deadline = time.monotonic() + 5
    while [t for t in threading.enumerate() if t.name == "wfstdec-container"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
