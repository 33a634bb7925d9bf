"""Speech for heads on Whisper's encoder: who says what, and the encoder's frames.

    speech = read_speech(Path("../shared/data"))
    frames = cached_frames(speech, Path("build/heads"), speed=1.1)    # by name

Speakers of LibriSpeech dev-clean are in one of three parts; the others (speechocean762,
LJ Speech) are trained on. Nothing is chosen by the speakers of `TEST`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr

from tools.data.whisper import SAMPLE_RATE, encode, load_whisper
from wfstdec.audio import read_audio
from wfstdec.io.results import read_text
from wfstdec.text.files import read_lines

TEST = ("1673", "174", "1993", "2086")
TUNING = ("2078", "2902")
PARTS = {speaker: "test" for speaker in TEST} | dict.fromkeys(TUNING, "tuning")
FRAME_SHIFT_S = 0.02


@dataclass(frozen=True)
class Utterance:
    """One recording."""

    name: str
    audio: Path
    words: tuple[str, ...]
    speaker: str
    part: str  # `training`, `tuning` or `test`


def read_speech(data: Path) -> list[Utterance]:
    """All utterances with audio of the development data."""
    folder, found = data / "audio_train", []
    texts = {
        "librispeech": read_text(folder / "librispeech" / "text.txt"),
        "ljspeech": read_text(data / "posteriors" / "ljspeech.txt"),
        "speechocean762": {
            name: words
            for name, _, *words in map(
                str.split, read_lines(folder / "speechocean762" / "text.txt")
            )
        },
    }
    for corpus, references in texts.items():
        for name, words in references.items():
            speaker = name.split("-")[0] if corpus == "librispeech" else corpus
            audio = folder / corpus / f"{name}.mp3"
            part = PARTS.get(speaker, "training")
            found.append(Utterance(name, audio, tuple(words), speaker, part))
    return found


def of_part(speech: Sequence[Utterance], part: str) -> list[Utterance]:
    """The utterances of a part."""
    return [one for one in speech if one.part == part]


def cached_frames(
    speech: Sequence[Utterance], cache: Path, speed: float = 1.0
) -> Mapping[str, np.ndarray]:
    """Frames float16 [T, 384] of each utterance, computed once and then mapped.

    `speed`: by how much the audio is sped up.
    """
    stored, index = cache / f"frames-{speed}.npy", cache / f"frames-{speed}.json"
    if not index.exists():
        started, (model, extractor, _) = time.perf_counter(), load_whisper()
        sizes, rows = {}, []
        for one in speech:
            samples = read_audio(one.audio, SAMPLE_RATE).waveform
            if speed != 1.0:
                samples = soxr.resample(samples, SAMPLE_RATE * speed, SAMPLE_RATE)
            rows.append(encode(model, extractor, samples).astype(np.float16))
            sizes[one.name] = len(rows[-1])
            if len(rows) % 500 == 0:
                seconds = time.perf_counter() - started
                print(f"{len(rows)} recordings encoded, {seconds:.0f} s", flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        np.save(stored, np.concatenate(rows))
        partial = index.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(sizes))
        partial.rename(index)
    sizes = json.loads(index.read_text())
    cuts = np.cumsum(list(sizes.values()))[:-1]
    arrays = np.split(np.load(stored, mmap_mode="r"), cuts)
    return dict(zip(sizes, arrays, strict=True))
