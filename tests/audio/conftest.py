"""Six seconds of sound written once in every form that is read."""

import numpy as np
import pytest
from wav_files import av_bytes

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
    soundfile = pytest.importorskip("soundfile")
    folder = tmp_path_factory.mktemp("sounds")
    for form in ("wav", "flac", "ogg", "mp3", "aiff"):
        soundfile.write(folder / f"sound.{form}", sound, RATE)
    soundfile.write(folder / "sound.opus", sound, RATE, format="OGG", subtype="OPUS")
    return folder


@pytest.fixture(scope="session")
def av_sounds(tmp_path_factory, sound):
    folder = tmp_path_factory.mktemp("av_sounds")
    for ending, form, codec in (
        ("m4a", "ipod", "aac"),
        ("mp4", "mp4", "aac"),
        ("webm", "webm", "libopus"),
        ("aac", "adts", "aac"),
    ):
        (folder / f"sound.{ending}").write_bytes(av_bytes(sound, form, codec))
    return folder
