"""Six seconds of sound written once in every form that is read."""

import numpy as np
import pytest

RATE = 16000
SECONDS = 6


@pytest.fixture(scope="session")
def sound():
    """Chirps with noise, float32 [96000], peak below 0.5."""
    times = np.arange(RATE * SECONDS) / RATE
    tone = 0.3 * np.sin(2 * np.pi * (200 + 150 * times) * times)
    noise = np.random.default_rng(3).standard_normal(len(times))
    return (tone + 0.02 * noise).astype(np.float32)


@pytest.fixture(scope="session")
def sounds(tmp_path_factory, sound):
    """A folder with the sound as `sound.<form>`."""
    soundfile = pytest.importorskip("soundfile")
    folder = tmp_path_factory.mktemp("sounds")
    for form in ("wav", "flac", "ogg", "mp3", "aiff"):
        soundfile.write(folder / f"sound.{form}", sound, RATE)
    soundfile.write(folder / "sound.opus", sound, RATE, format="OGG", subtype="OPUS")
    return folder


def write_av(path, sound, codec):
    """Write what only FFmpeg reads."""
    av = pytest.importorskip("av")
    with av.open(path, "w") as container:
        stream = container.add_stream(codec, rate=48000 if "opus" in codec else RATE)
        stream.layout = "mono"
        resampler = av.AudioResampler(
            stream.format, "mono", stream.rate, frame_size=stream.frame_size or None
        )
        frame = av.AudioFrame.from_ndarray(sound[None], "fltp", "mono")
        frame.rate = RATE
        for given in (frame, None):
            for piece in resampler.resample(given):
                container.mux(stream.encode(piece))
        container.mux(stream.encode(None))


@pytest.fixture(scope="session")
def av_sounds(tmp_path_factory, sound):
    """A folder with the sound in what libsndfile does not read."""
    folder = tmp_path_factory.mktemp("av_sounds")
    for form, codec in (("m4a", "aac"), ("mp4", "aac"), ("webm", "libopus")):
        write_av(str(folder / f"sound.{form}"), sound, codec)
    write_av(str(folder / "sound.aac"), sound, "aac")
    return folder
