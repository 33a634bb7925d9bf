"""Audio as a model hears it: forms, rates, channels, and the usual mistakes."""

import importlib.util
import io
import os
import sys
import tempfile
import threading

import numpy as np
import pytest
from wav_files import av_bytes, wav_bytes

from wfstdec.audio import ResampleStream, open_audio, read_audio
from wfstdec.audio.sources import SoundfileSource
from wfstdec.errors import AudioError, BackendError, OptionError

pytest.importorskip("soundfile")
pytest.importorskip("soxr")
RATE = 16000
FORMS = ("wav", "flac", "ogg", "opus", "mp3", "aiff")
AV_FORMS = ("m4a", "mp4", "webm", "aac")


def kinds(audio):
    return [note.kind for note in audio.notes]


def likeness(first, second):
    """Correlation at the best lag of some milliseconds: codecs shift a little."""
    size = min(len(first), len(second)) - 4000
    spectra = [np.fft.rfft(x[:size], 2 * size) for x in (first, second)]
    best = np.fft.irfft(spectra[0] * spectra[1].conj()).max()
    return best / np.sqrt(np.sum(first[:size] ** 2) * np.sum(second[:size] ** 2))


@pytest.mark.parametrize("form", FORMS)
def test_what_libsndfile_reads(sounds, sound, form):
    audio = read_audio(sounds / f"sound.{form}", RATE)
    assert audio.waveform.dtype == np.float32 and audio.notes == ()
    assert abs(audio.duration_s - 6) < 0.1
    assert likeness(sound, audio.waveform) > 0.98


@pytest.mark.parametrize("form", AV_FORMS)
def test_what_ffmpeg_reads(av_sounds, sound, form):
    audio = read_audio(av_sounds / f"sound.{form}", RATE)
    assert abs(audio.duration_s - 6) < 0.2
    assert likeness(sound, audio.waveform) > 0.98


@pytest.mark.parametrize("width", (1, 2, 3, 4))
def test_wav_of_all_widths(sound, width):
    waveform = read_audio(wav_bytes(sound, width), RATE).waveform
    np.testing.assert_allclose(waveform, sound, atol=2.0 ** (1 - 8 * width) + 1e-7)


@pytest.mark.parametrize("rate", (8000, 11025, 44100, 48000))
def test_another_rate_is_resampled_and_said_once(sound, rate):
    audio = read_audio(wav_bytes(sound, rate=rate), RATE)
    assert kinds(audio) == ["rate"] and f"{rate} Hz" in audio.notes[0].text
    assert audio.source_rate == rate
    assert abs(len(audio.waveform) - len(sound) * RATE / rate) <= 1


def test_stereo_is_mixed_and_said_or_a_channel_is_taken(sound):
    stereo = np.stack([sound, 0.5 * sound], 1)
    audio = read_audio(wav_bytes(stereo, 4), RATE)
    assert kinds(audio) == ["channels"] and audio.num_channels == 2
    np.testing.assert_allclose(audio.waveform, 0.75 * sound, atol=1e-6)
    second = read_audio(wav_bytes(stereo, 4), RATE, channel=1)
    np.testing.assert_allclose(second.waveform, 0.5 * sound, atol=1e-6)
    with pytest.raises(AudioError, match="channel 2 of 2, expected 0 to 1"):
        read_audio(wav_bytes(stereo), RATE, channel=2)


def test_channels_that_cancel_each_other(sound):
    with pytest.raises(AudioError, match="cancel each other.*--channel"):
        read_audio(wav_bytes(np.stack([sound, -sound], 1), 4), RATE)


def test_int16_taken_as_float(tmp_path, sound):
    import soundfile

    path = tmp_path / "loud.wav"
    soundfile.write(path, sound * 32768, RATE, subtype="FLOAT")
    with pytest.raises(AudioError, match=r"loud.wav: .*integers kept as floats"):
        read_audio(path, RATE)
    with pytest.raises(AudioError, match="integers kept as floats"):
        read_audio(np.rint(sound * 32768), RATE)
    integers = read_audio(np.rint(sound * 32768).astype(np.int16), RATE)
    np.testing.assert_allclose(integers.waveform, sound, atol=2e-5)


def test_arrays_of_any_rate(sound):
    audio = read_audio(sound, RATE, source_rate=8000)
    assert kinds(audio) == ["rate"] and abs(audio.duration_s - 12) < 0.01
    with pytest.raises(AudioError, match="NaN or inf"):
        read_audio(np.array([0.1, np.nan]), RATE)
    with pytest.raises(AudioError, match="dtype 'complex64'"):
        read_audio(np.zeros(5, np.complex64), RATE)


@pytest.mark.parametrize("level", (0, 1e-5))
def test_silence(sound, level):
    audio = read_audio(level * sound, RATE)
    assert kinds(audio) == ["silence"] and "-80 dB" in audio.notes[0].text


@pytest.mark.parametrize("form", FORMS)
def test_files_cut_short(sounds, form):
    data = (sounds / f"sound.{form}").read_bytes()
    with pytest.raises(AudioError, match="cut"):
        read_audio(data[: len(data) * 6 // 10], RATE)
    audio = read_audio(data[: len(data) * 6 // 10], RATE, allow_cut=True)
    assert "cut" in kinds(audio) and len(audio.waveform) > RATE


def test_an_mp4_cut_short(av_sounds):
    data = (av_sounds / "sound.m4a").read_bytes()
    with pytest.raises(AudioError, match="damaged or cut MP4"):
        read_audio(data[: len(data) // 2], RATE)


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\0\0\0\0"])
@pytest.mark.parametrize("whole", [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x24\0\0\0"])
def test_a_size_that_a_pipe_could_not_know(tmp_path, sound, size, whole):
    data = bytearray(wav_bytes(sound))
    data[4:8], data[40:44] = whole, size
    (tmp_path / "x.wav").write_bytes(data)
    for source in (bytes(data), tmp_path / "x.wav"):
        assert len(read_audio(source, RATE).waveform) == len(sound)


def test_a_flac_that_does_not_say_how_long_it_is(sounds, sound):
    data = bytearray((sounds / "sound.flac").read_bytes())
    data[21] &= 0xF0
    data[22:26] = b"\0\0\0\0"
    assert len(read_audio(bytes(data), RATE).waveform) == len(sound)


def test_headers_that_ask_for_the_impossible(sound):
    for rate in (1, 2**31 - 1):
        with pytest.raises(AudioError, match=f"sample rate of {rate} Hz"):
            read_audio(wav_bytes(sound[:100], rate=rate), RATE)
    with open_audio(sound, RATE, block_s=1e9) as reader:
        assert len(list(reader)) == 1


def test_stereo_in_an_mp4(sound):
    data = av_bytes(np.stack([sound, 0.5 * sound], 1), "mp4", "aac")
    audio = read_audio(data, RATE)
    assert kinds(audio) == ["channels"]
    assert likeness(0.75 * sound, audio.waveform) > 0.98


def test_raw_aac_of_much_silence(sound):
    # What FFmpeg says of its length follows from the bit rate of the beginning.
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, 10 * RATE)
    samples = np.concatenate([np.zeros(10 * RATE), noise]).astype(np.float32)
    data = av_bytes(samples, "adts", "aac")
    audio = read_audio(data, RATE, max_seconds=21.0)
    assert len(audio.waveform) / RATE == pytest.approx(20.0, abs=0.3)


@pytest.mark.parametrize(
    "data", (b"", b"hello" * 99, bytes(range(256)) * 20, b"RIFF\0\0\0\0WAVE"), ids=len
)
def test_what_is_not_audio(tmp_path, data):
    path = tmp_path / "notes.wav"
    path.write_bytes(data)
    with pytest.raises(AudioError, match="notes.wav: .*expected"):
        read_audio(path, RATE)


def test_random_bytes_are_errors_of_ours():
    random = np.random.default_rng(5)
    heads = [b"", b"RIFF", b"OggS", b"fLaC", b"ID3\3\0\0\0\0\1\1", b"\xff\xfb", b"FORM"]
    if importlib.util.find_spec("av"):
        heads += [b"\0\0\0\x20ftypM4A ", b"\x1a\x45\xdf\xa3"]
    for head in heads:
        with pytest.raises(AudioError):
            read_audio(head + random.bytes(3000), RATE)


def test_no_samples_and_no_file(tmp_path):
    with pytest.raises(AudioError, match="no samples"):
        read_audio(wav_bytes(np.zeros(0)), RATE)
    with pytest.raises(AudioError, match="none.wav: cannot read: No such file"):
        read_audio(tmp_path / "none.wav", RATE)
    with pytest.raises(AudioError, match="cannot read: Is a directory"):
        read_audio(tmp_path, RATE)


@pytest.mark.parametrize("form", AV_FORMS)
def test_a_file_that_is_open_for_writing_too_is_read(av_sounds, form):
    """Servers keep uploads so: PyAV took such a file for one to be written."""
    with tempfile.SpooledTemporaryFile() as file:
        file.write((av_sounds / f"sound.{form}").read_bytes())
        file.seek(0)
        audio = read_audio(file, RATE)
    assert abs(audio.duration_s - 6) < 0.2


def test_a_bomb_is_stopped_while_it_is_decoded(sounds):
    with open_audio(sounds / "sound.opus", RATE, max_seconds=2, block_s=0.5) as reader:
        with pytest.raises(AudioError, match="longer than 2 s.*--max-audio-seconds"):
            num_samples = 0
            for block in reader:
                num_samples += len(block)
    assert num_samples <= 2 * RATE


def test_no_header_asks_for_much_memory_at_once(monkeypatch):
    """A second of 200 channels at a million samples is not read in one block."""
    sizes = []
    blocks = SoundfileSource.blocks
    monkeypatch.setattr(
        SoundfileSource,
        "blocks",
        lambda self, size: sizes.append(size) or blocks(self, size),
    )
    data = wav_bytes(np.full((50_000, 200), 0.25), 1, 1_000_000)
    audio = read_audio(data, 1_000_000)
    assert audio.num_channels == 200 and len(audio.waveform) == 50_000
    assert sizes == [2**22 // 200]


@pytest.mark.parametrize("form", FORMS)
def test_blocks_are_the_whole(sounds, form):
    """Of MP3 too, where a seek after each block changes a quarter of the samples."""
    import soundfile

    path = sounds / f"sound.{form}"
    whole, _ = soundfile.read(path, dtype="float32")
    with open_audio(path, RATE, block_s=0.37) as reader:
        blocks = list(reader)
    assert len(blocks) == 17
    np.testing.assert_allclose(np.concatenate(blocks), whole, atol=1e-6)
    resampled = read_audio(path, 22050)
    with open_audio(path, 22050, block_s=0.37) as reader:
        blocks = list(reader)
    np.testing.assert_allclose(np.concatenate(blocks), resampled.waveform, atol=1e-6)
    assert tuple(reader.notes) == resampled.notes


def test_resampling_does_not_depend_on_the_chunks(sound):
    random = np.random.default_rng(1)
    whole = ResampleStream(44100, RATE)
    expected = np.concatenate([whole(sound), whole.finish()])
    for _ in range(5):
        cuts = np.sort(random.integers(0, len(sound), 40))
        stream = ResampleStream(44100, RATE)
        found = [stream(part) for part in np.split(sound, cuts)] + [stream.finish()]
        np.testing.assert_array_equal(np.concatenate(found), expected)
    with pytest.raises(OptionError, match="rate of 0"):
        ResampleStream(0, RATE)


def test_bytes_file_objects_and_pipes(tmp_path, sound):
    data = wav_bytes(sound)
    expected = read_audio(data, RATE).waveform
    np.testing.assert_array_equal(read_audio(io.BytesIO(data), RATE).waveform, expected)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=[data])
    writer.start()
    np.testing.assert_array_equal(read_audio(pipe, RATE).waveform, expected)
    writer.join()


@pytest.mark.parametrize("name", ("soundfile", "soxr", "av"))
def test_what_is_not_installed_is_named(monkeypatch, av_sounds, sound, name):
    monkeypatch.setitem(sys.modules, name, None)
    source = (
        (av_sounds / "sound.m4a").read_bytes()
        if name == "av"
        else wav_bytes(sound, rate=8000)
    )
    with pytest.raises(BackendError, match=f"pip install {name}$"):
        read_audio(source, RATE)
